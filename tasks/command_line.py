"""What ``pyflyte run`` shows for a path that is not there, and after Ctrl-C."""

import shlex
import sys
from pathlib import Path
from typing import Any, NoReturn

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


def stop(out: str) -> NoReturn:
    """Say what is kept after Ctrl-C and which command goes on, and leave with exit code 130 as ``spiral`` does."""
    kept = f"{kept_in(Path(out))} in {out}" if out and "://" not in out else "steps that were finished are kept"
    click.echo(f"stopped: {kept}", err=True)
    click.echo(f"continue with: {shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])}", err=True)
    raise SystemExit(INTERRUPTED)
