"""A process that answers one line for each line it is given: started when first needed, killed when it overruns."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BYTES = 1 << 16


class LineProcess:
    """One process over a script of ours, which says ``ready`` once it can answer.

    It ends with this process; a forked copy of this process starts one of its own. ``environment`` is all that the
    script sees of the variables here, None means everything. Whoever asks holds ``lock``.
    """

    def __init__(self, script: Path, *, environment: Mapping[str, str] | None = None) -> None:
        self.lock = threading.Lock()
        self._script, self._environment = script, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = self._is_registered = False
        self._half_line = b""

    @property
    def pid(self) -> int | None:
        """The process's id, None while there is none."""
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process if there is none, without waiting until it can answer."""
        if self._process is not None:
            return
        if not self._is_registered:
            atexit.register(self.stop)
            os.register_at_fork(after_in_child=self._forget)
            self._is_registered = True
        # -P: a script's own folder may hold modules named like those that it imports.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(self._script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
        )

    def wait_ready(self, wait_s: float) -> bool:
        """Return whether the process can answer, after starting it if there is none; one that cannot is stopped."""
        self.start()
        if not self._is_ready:
            self._is_ready = self.read(time.monotonic() + wait_s).strip() == b"ready"
            if not self._is_ready:
                self.stop()
        return self._is_ready

    def write(self, request: Any) -> None:
        """Send a request as one line of JSON. Raises OSError where the process has ended."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def read(self, deadline: float) -> bytes:
        """Return one line of output, or b"" where the process ends or the deadline (``time.monotonic``) passes.

        The start of a line that the deadline cut is kept for the next reading.
        """
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while not self._half_line.endswith(b"\n"):
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(descriptor, _BYTES) if ready else b""
            if not part:
                return b""
            self._half_line += part
        line, self._half_line = self._half_line, b""
        return line

    def cpu_seconds(self) -> float | None:
        """Return the processor time that the process has used, None where the system does not tell."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return None

    def stop(self) -> None:
        """Kill the process and wait for its end; the next request starts another one."""
        process, self._process, self._is_ready = self._process, None, False
        self._half_line = b""
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()

    def _forget(self) -> None:
        """In a forked process: leave the parent's process alone; another thread may have held the lock."""
        self.lock, self._process, self._is_ready, self._half_line = threading.Lock(), None, False, b""
