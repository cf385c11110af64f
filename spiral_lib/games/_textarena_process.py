"""The parent's end of the TextArena process: started when first needed, killed when it overruns."""

from __future__ import annotations

import importlib.metadata
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from spiral_lib.errors import EngineError
from spiral_lib.line_process import LineProcess

VERSION: Final = "0.7.4"
"""The release that the adapter is tested with; others name and end things differently."""

_START_S: Final = 120.0
_REPLY_S: Final = 60.0
_INSTALL: Final = "pip install 'spiral-pipeline[textarena]'"


def position(env_id: str, seed: int, actions: Sequence[str]) -> dict[str, Any]:
    """Return the child's reply on the position after the actions. Raises EngineError when there is none."""
    with _CHILD.lock:
        return _CHILD.ask({"env": env_id, "seed": seed, "actions": list(actions)})


def close() -> None:
    """Stop the process; the next request starts another one."""
    with _CHILD.lock:
        _CHILD.stop()


def check_version() -> None:
    """Raise EngineError where TextArena is absent or of another release than the tested one."""
    try:
        found = importlib.metadata.version("textarena")
    except importlib.metadata.PackageNotFoundError as error:
        raise EngineError(f"games 'textarena:...' need TextArena, which is not installed; {_INSTALL}") from error
    if found != VERSION:
        raise EngineError(f"TextArena {found} is installed, games 'textarena:...' need {VERSION}; {_INSTALL}")


class _Child(LineProcess):
    """One process for all matches; it answers the same whatever else it serves."""

    def __init__(self) -> None:
        # No variables but these: keys of APIs stay here.
        super().__init__(
            Path(__file__).with_name("_textarena_child.py"),
            environment={"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PATH": os.environ.get("PATH", "")},
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to a request. Raises EngineError when the process ends or takes too long."""
        if not self.wait_ready(_START_S):
            raise EngineError(f"TextArena cannot be imported; try: python -c 'import textarena', or {_INSTALL}")
        try:
            self.write(request)
            reply = self.read(time.monotonic() + _REPLY_S)
        except OSError:
            reply = b""
        if not reply:
            self.stop()
            raise EngineError(
                f"TextArena's {request['env']} gave no answer within {_REPLY_S:.0f} s or ended its process; "
                "leave this environment out"
            )
        found: dict[str, Any] = json.loads(reply)
        return found


_CHILD = _Child()
