"""The parent's end of the TextArena process: started when first needed, killed when it overruns."""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from spiral_lib.errors import EngineError

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


class _Child:
    """One process for all matches; it answers the same whatever else it serves."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._registered = False

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to a request. Raises EngineError when the process ends or takes too long."""
        process = self._process or self._launch()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            reply = _read_line(process, time.monotonic() + _REPLY_S)
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

    def stop(self) -> None:
        """Kill the process and wait for its end."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()

    def _launch(self) -> subprocess.Popen[bytes]:
        if not self._registered:
            atexit.register(close)
            os.register_at_fork(after_in_child=_forget)
            self._registered = True
        # -P: the script's own folder holds a textarena.py. No variables but these: keys of APIs stay here.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("_textarena_child.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "PATH": os.environ.get("PATH", "")},
        )
        if _read_line(self._process, time.monotonic() + _START_S).strip() != b"ready":
            self.stop()
            raise EngineError(f"TextArena cannot be imported; try: python -c 'import textarena', or {_INSTALL}")
        return self._process


def _read_line(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """Return one line of the process's output, or b"" when it ends or the deadline passes first."""
    assert process.stdout is not None
    descriptor, line = process.stdout.fileno(), b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(descriptor, 1 << 16) if ready else b""
        if not part:
            return b""
        line += part
    return line


def _forget() -> None:
    """In a forked process: leave the parent's child alone and start with none."""
    global _CHILD
    _CHILD = _Child()


_CHILD = _Child()
