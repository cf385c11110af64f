"""What commands write: tables and text on standard output, progress and logs on standard error."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import click

_WIDE = 160  # in a file or a pipe nothing needs to be folded to a terminal's width
_LOG_FORMAT = logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S")


def print_json(content: Any) -> None:
    """Print one JSON document; numbers that are not finite become null."""
    click.echo(json.dumps(_finite(content), indent=2, allow_nan=False))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """Print a table; cells are plain text, never markup."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    if not console.is_terminal:
        console.width = _WIDE
    console.print(table)


class Bar(Protocol):
    """A progress bar."""

    def __call__(
        self, done: float, total: float | None = None, text: str | None = None, *, restart: bool = False
    ) -> None:
        """Show how much of how much is done, and what is going on; with ``restart`` the rate is measured from here."""
        ...


@contextmanager
def progress(text: str, total: float | None, *, unit: str) -> Iterator[Bar]:
    """Show a bar with rate and estimate on a terminal, nothing else elsewhere; yields the function that moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn(f"{unit} · {{task.fields[rate]}}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(text, total=total, rate="")
        origin: list[tuple[float, float]] = []

        def move(
            done: float, total: float | None = None, text: str | None = None, *, restart: bool = False
        ) -> None:
            shown, now = bars.tasks[task], time.monotonic()
            if restart or not origin:
                origin[:] = [(now, done)]
            start, first = origin[0]
            total = shown.total if total is None else total
            speed = _rate(now - start, done - first, None if total is None else total - done)
            bars.update(task, completed=done, total=total, description=text or shown.description, rate=speed)

        with _logging_above(console):
            yield move


def _rate(elapsed: float, done: float, left: float | None) -> str:
    """Return rate and time left, from all that was done since the start: steadier than a window."""
    if elapsed <= 0 or done <= 0:
        return ""
    rate = done / elapsed
    speed = f"{rate:.1f}/s" if rate >= 1 else f"{1 / rate:.1f} s each"
    return speed if left is None else f"{speed}, {_duration(left / rate)} left"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


class _Above(logging.Handler):
    """Prints log lines above the bar."""

    def __init__(self, console: Any) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(self.format(record), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _logging_above(console: Any) -> Iterator[None]:
    log, handler = logging.getLogger("spiral_lib"), _Above(console)
    handler.setFormatter(_LOG_FORMAT)
    handler.setLevel(logging.INFO)
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def _finite(content: Any) -> Any:
    if isinstance(content, float):
        return content if content == content and abs(content) != float("inf") else None
    if isinstance(content, dict):
        return {str(key): _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content
