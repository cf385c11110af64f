"""What ``pyflyte run`` shows for a path that is not there, and after Ctrl-C."""

import shlex
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import rich_click as click
from flytekit.interaction.click_types import DirParamType, FileParamType, UnionParamType

from spiral_lib.state import kept_in

INTERRUPTED = 130


def refuse_missing_paths() -> None:
    """Make optional file and folder inputs refuse a path that does not exist, with one message.

    For an optional input flytekit swallows that refusal and hands the text on, which ends in a long traceback.
    """
    convert = UnionParamType.convert

    def strict(self: UnionParamType, value: Any, param: Any, ctx: Any) -> Any:
        found = convert(self, value, param, ctx)
        if isinstance(found, str) and any(isinstance(t, FileParamType | DirParamType) for t in self._types):
            kind = "file" if any(isinstance(t, FileParamType) for t in self._types) else "folder"
            raise click.BadParameter(f"there is no {kind} '{value}'", ctx, param)
        return found

    UnionParamType.convert = strict


_places: list[str] = []


def goes_to(out: str) -> None:
    """Note where the command's outputs go, for what is said after Ctrl-C."""
    if out:
        _places[:] = [out]


def explain_interrupts() -> None:
    """Make Ctrl-C during a local ``pyflyte run`` say what is kept and which command goes on, and exit with 130.

    Tasks run in a thread of flytekit's, where no KeyboardInterrupt ever arrives; so the signal itself is handled.
    """
    words = sys.argv[1:]
    is_local = Path(sys.argv[0]).name == "pyflyte" and "run" in words and not {"--remote", "-r"} & set(words)
    if is_local and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    out = _places[0] if _places else ""
    kept = f"{kept_in(Path(out))} in {out}" if out and "://" not in out else "steps that were finished are kept"
    click.echo(f"\nstopped: {kept}", err=True)
    click.echo(f"continue with: {shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])}", err=True)
    raise SystemExit(INTERRUPTED)
