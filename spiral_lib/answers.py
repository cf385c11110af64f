"""Final answers: finding the last box in a response, unwrapping it, and exact mathematical comparison."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from spiral_lib import _answers_compare
from spiral_lib.errors import SpiralError
from spiral_lib.line_process import LineProcess

COMPUTE_S = 1.0
"""Seconds of processor time that one check may take: a verdict must not depend on how busy the machine is.

The slowest comparison with a published gold answer takes 0.6 s. On a machine with half a core to spare a check ends
within 2 s.
"""
_STARVED_S = 30.0  # of the clock, for a child that gets no time to compute
_CLOCK_S = 1.8  # of the clock, where the system does not tell processor time
_LOOK_S = 0.05
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
    empty answers are wrong, even if both are empty. What takes longer than ``COMPUTE_S`` or too much memory is wrong
    and counted in ``timeouts()``. Works from any thread, and in forked processes.
    """
    with _CHILD.lock:
        _CHILD.left_s = COMPUTE_S
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


class _Child(LineProcess):
    """The process that runs math-verify; ``left_s`` is what the check under way may still compute."""

    def __init__(self) -> None:
        super().__init__(Path(_answers_compare.__file__).with_name("_answers_child.py"))
        self.left_s = 0.0
        self.num_timeouts = 0

    def compare(self, gold: str, answer: str) -> bool:
        """Return the child's verdict on two LaTeX texts. Raises _Overrun where time or memory is used up first."""
        if not self.wait_ready(_START_S):
            raise SpiralError(
                "cannot start the process that compares mathematical answers; is math-verify installed? "
                "Try: python -c 'import math_verify'"
            )
        try:
            self.write([gold, answer])
            reply = self._await()
        except OSError:
            reply = b""
        if not reply:
            self.stop()
            self.start()  # at once, so that it is ready by the next check
            raise _Overrun
        return reply.strip() == b"true"

    def _forget(self) -> None:
        super()._forget()
        self.num_timeouts = 0

    def _await(self) -> bytes:
        """Return the reply, or b"" where the child ended or overran; what it computed is taken from ``left_s``."""
        before, started = self.cpu_seconds(), time.monotonic()
        while True:
            reply = self.read(time.monotonic() + _LOOK_S)
            now, waited_s = self.cpu_seconds(), time.monotonic() - started
            computed_s = waited_s * COMPUTE_S / _CLOCK_S if now is None or before is None else now - before
            if reply or not self.is_running or computed_s >= self.left_s or waited_s >= _STARVED_S:
                self.left_s -= computed_s
                return reply


_CHILD = _Child()
