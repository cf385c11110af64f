"""The end of a run: its result in a few lines, and the report as a deck."""

import logging

from flytekit import Deck, task

from spiral_lib import report
from tasks.config import Resolved, user_errors
from tasks.resources import CPU_IMAGE, SMALL
from tasks.types import TrainState, local

log = logging.getLogger("spiral_lib.report")


@task(container_image=CPU_IMAGE, requests=SMALL, enable_deck=True, deck_fields=())
def finish(state: TrainState, resolved: Resolved) -> TrainState:
    """Log what the run achieved and where its report lies."""
    with user_errors():
        history = local(state.history)
        files = report.read(history)
        for line in report.summary(files):
            log.info("%s", line)
        log.info("report: %s", history / "report.html")
        Deck("SPIRAL", report.body(files))
        return state
