"""The end of a run: its result in a few lines, and the report as a deck."""

import logging
from typing import Annotated

from flytekit import Artifact, Deck, task

from spiral_lib import report
from tasks.config import user_errors
from tasks.resources import CPU_IMAGE, SITE, SMALL
from tasks.types import TrainState, local

log = logging.getLogger("spiral_lib.report")


Final = Annotated[TrainState, Artifact(name=SITE["SPIRAL_ARTIFACT"])] if SITE["SPIRAL_ARTIFACT"] else TrainState
"""A run's result; with an artifact's name, a backend that has an artifact service lists it under that."""


@task(container_image=CPU_IMAGE, requests=SMALL, environment=SITE, enable_deck=True, deck_fields=())
def finish(state: TrainState) -> Final:
    """Log what the run achieved and where its report lies."""
    with user_errors():
        history = local(state.history)
        files = report.read(history)
        for line in report.summary(files):
            log.info("%s", line)
        log.info("report: %s/report.html", str(state.history.remote_source or history).rstrip("/"))
        Deck("SPIRAL", report.body(files))
        return state
