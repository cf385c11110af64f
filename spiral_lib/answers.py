"""Final answers: finding the last box in a response, unwrapping it, and exact mathematical comparison."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
