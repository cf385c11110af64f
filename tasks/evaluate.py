"""Evaluation outside self-play."""


from flytekit import task

from spiral_lib import config as configs
from spiral_lib import lineage, steps
from tasks.config import user_errors
from tasks.resources import CACHE_VERSION, CPU, CPU_IMAGE, SECRETS, SITE, image_for
from tasks.types import Learned, Scores, TrainState, directory, file, placed, run_folder


@task(
    container_image=CPU_IMAGE,
    requests=CPU,
    environment=SITE,
    cache=True,
    cache_version=CACHE_VERSION,
    secret_requests=SECRETS,
)
def evaluate(state: TrainState, learned: Learned, config: str, out: str) -> Scores:
    """Measure the candidate: exact game metrics, matches against fixed opponents, the bank through lm-eval."""
    settings, iteration = configs.from_text(config), state.iteration + 1
    with user_errors(out), run_folder(out, image_for(settings)) as run:
        start = placed(state.cold_start, run, out)
        made = steps.evaluate(settings, placed(learned.checkpoint, run, out), start, iteration=iteration, run=run)
        record = lineage.record_path(run, iteration, "evaluate")
        replies = steps.replies_folder(settings, run, iteration)
        return Scores(
            evaluation=file(made, run, out),
            record=file(record, run, out),
            replies=None if replies is None else directory(replies, run, out),
        )
