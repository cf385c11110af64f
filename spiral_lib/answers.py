"""Final answers: finding the last box in a response, unwrapping it, and exact mathematical comparison."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from spiral_lib import _answers_compare
from spiral_lib.errors import SpiralError

DEADLINE_S = 2.0
"""Seconds that one check may take; the start of the child process and waits for a busy machine are not counted."""
_KILL_S = 0.2  # of these, kept back for ending the child and answering
# A verdict must not depend on how busy the machine is: a child that hardly got to compute is waited for.
_FAIR_CPU_S = 1.0
_STARVED_S = 30.0
_LOOK_S = 0.1
_START_S = 120.0

# Texts that end a turn in the chat formats of common model families. A response is cut at the first of them.
END_OF_TURN = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end|>",
    "<|return|>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
    "<｜end▁of▁sentence｜>",
)
_END = re.compile("|".join(re.escape(t) for t in END_OF_TURN))
_BOX = re.compile(r"\\boxed\s*\{")
# A backslash takes the next character with it, so that \{ and \} do not count as braces.
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_WRAPPER = re.compile(r"\\(?:text|textbf|textit|mathbf|mathrm|texttt|boxed)\s*\{")
_QUOTES = frozenset("\"'`$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """The content of a response's last box, or the reason why there is none."""

    content: str | None
    reason: str | None


def last_box(text: str) -> Box:
    r"""Return the content of the last top-level ``\boxed{...}`` of a response.

    The response is cut at its first end-of-turn text, and only what follows the last ``</think>`` counts. A box that
    never closes makes the whole response unreadable (``unclosed_box``): there is no fall-back to an earlier box, nor to
    a box inside the open one. The other reasons are ``no_box`` and ``unfinished_thinking``. Linear time.
    """
    end = _END.search(text)
    visible = text[: end.start()] if end else text
    visible = visible.rpartition("</think>")[2]
    if "<think>" in visible:
        return Box(content=None, reason="unfinished_thinking")
    content, position = None, 0
    while opening := _BOX.search(visible, position):
        close = _closing_brace(visible, opening.end())
        if close is None:
            return Box(content=None, reason="unclosed_box")
        content, position = visible[opening.end() : close], close + 1
    return Box(content=content, reason=None if content is not None else "no_box")


def unwrap(content: str) -> str:
    r"""Return a box's content without its dressing: the move or answer as plain text, letter case kept.

    Removed, from outside to inside: Unicode blanks, ``\text{...}``-like wrappers, quotes, backticks and ``$`` that
    cover all of the rest, then one pair of square brackets. Runs of blanks become one blank. Linear time.
    """
    partner = _brace_partners(content)
    low, high = 0, len(content)
    while True:
        while low < high and content[low].isspace():
            low += 1
        while low < high and content[high - 1].isspace():
            high -= 1
        wrapper = _WRAPPER.match(content, low, high)
        if wrapper and partner.get(wrapper.end() - 1) == high - 1:
            low, high = wrapper.end(), high - 1
        elif high - low >= 2 and content[low] in _QUOTES and content[low] == content[high - 1]:
            low, high = low + 1, high - 1
        else:
            break
    if high - low >= 2 and content[low] == "[" and content[high - 1] == "]":
        low, high = low + 1, high - 1
    return " ".join(content[low:high].split())


def extract(text: str) -> str | None:
    r"""Return the last complete top-level ``\boxed`` content, stripped, or None where ``last_box`` finds none."""
    content = last_box(text).content
    return None if content is None else content.strip()


def _closing_brace(text: str, start: int) -> int | None:
    """Return where the brace opened just before ``start`` closes, or None."""
    depth = 1
    for match in _BRACE.finditer(text, start):
        token = match.group()
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            if depth == 0:
                return match.start()
    return None


def _brace_partners(text: str) -> dict[int, int]:
    """Return the position of the closing brace for that of every opening brace that closes."""
    partners: dict[int, int] = {}
    unclosed: list[int] = []
    for match in _BRACE.finditer(text):
        token = match.group()
        if token == "{":
            unclosed.append(match.start())
        elif token == "}" and unclosed:
            partners[unclosed.pop()] = match.start()
    return partners


def check(gold: str, answer: str) -> bool:
    """Return whether an answer equals the gold answer, as exact mathematics.

    Nothing is rounded. A percent sign divides by 100, degree signs are ignored and never converted, base subscripts
    matter, a list is right only where the gold answer is one (order matters in tuples, not in lists and sets), and
    empty answers are wrong, even if both are empty. What takes longer than ``DEADLINE_S`` or too much memory is wrong
    and counted in ``timeouts()``; on a busy machine the child gets its share of computing time first. Works from any
    thread, and in forked processes.
    """
    with _CHILD.lock:
        _CHILD.deadline = time.monotonic() + DEADLINE_S - _KILL_S
        try:
            return _answers_compare.equal(gold, answer, _CHILD.compare)
        except _Overrun:
            _CHILD.num_timeouts += 1
            return False


def timeouts() -> int:
    """Return how many checks this process has given up, for time or memory."""
    return _CHILD.num_timeouts


def close() -> None:
    """End the child process, if there is one; the next check that needs it starts another."""
    with _CHILD.lock:
        _CHILD.stop()


class _Overrun(Exception):
    """The time or memory of one check is used up."""


class _Child:
    """The process that runs math-verify, started when first needed and killed when it overruns."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.deadline = 0.0
        self.num_timeouts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        self._registered = False

    def compare(self, gold: str, answer: str) -> bool:
        """Return the child's verdict on two LaTeX texts. Raises _Overrun when the deadline passes first."""
        process = self._ready()
        if time.monotonic() >= self.deadline:  # used up by the parts compared before; the child itself is well
            raise _Overrun
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps([gold, answer]).encode() + b"\n")
            process.stdin.flush()
            reply = self._await(process)
        except OSError:
            reply = b""
        if not reply:
            self.stop()
            self._launch()  # at once, so that it is ready by the next check
            raise _Overrun
        return reply.strip() == b"true"

    def _await(self, process: subprocess.Popen[bytes]) -> bytes:
        """Return the reply, or b"" past the deadline; time in which the child could not compute moves the deadline."""
        computed, started = _cpu_seconds(process.pid), time.monotonic()
        while True:
            reply = _read_line(process, self.deadline)
            now = time.monotonic()
            is_over = now >= self.deadline and now - started < _STARVED_S and process.poll() is None
            if reply or not is_over or _cpu_seconds(process.pid) - computed >= _FAIR_CPU_S:
                return reply
            self.deadline = now + _LOOK_S

    def stop(self) -> None:
        """Kill the process and wait for its end."""
        process, self._process, self._is_ready = self._process, None, False
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()

    def _ready(self) -> subprocess.Popen[bytes]:
        """Return a process that waits for requests; the wait for its start moves the deadline."""
        process = self._process or self._launch()
        if self._is_ready:
            return process
        started = time.monotonic()
        if _read_line(process, started + _START_S).strip() != b"ready":
            self.stop()
            raise SpiralError(
                "cannot start the process that compares mathematical answers; is math-verify installed? "
                "Try: python -c 'import math_verify'"
            )
        self._is_ready = True
        self.deadline += time.monotonic() - started
        return process

    def _launch(self) -> subprocess.Popen[bytes]:
        if not self._registered:
            atexit.register(close)
            os.register_at_fork(after_in_child=_forget)
            self._registered = True
        # -P: the script's own folder holds modules named like those of the standard library.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(_answers_compare.__file__).with_name("_answers_child.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return self._process


def _read_line(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """Return one line of the process's output, or b"" when it ends or the deadline passes first."""
    assert process.stdout is not None
    descriptor, line = process.stdout.fileno(), b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(descriptor, 4096) if ready else b""
        if not part:
            return b""
        line += part
    return line


def _cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used, infinity where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return float("inf")


def _forget() -> None:
    """In a forked process: leave the parent's child alone and start with none."""
    global _CHILD
    _CHILD = _Child()


_CHILD = _Child()
