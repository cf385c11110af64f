"""What ``pyflyte run`` shows for a path that is not there."""

from typing import Any

import rich_click as click
from flytekit.interaction.click_types import DirParamType, FileParamType, UnionParamType


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
