"""Foreign text as data: what an opponent or an endpoint wrote, made safe to show to a model.

Shown text can neither close a turn, nor open a line of its own, nor look like a line or an action of the game.
Instead of looking for dangerous strings, whose removal can build new ones, ``quote`` maps single characters: afterwards
there is no square bracket and no bar, and a blank follows every ``<``. One pass is therefore a fixed point.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Final

MAX_CHARS: Final = 600
"""Characters of quoted text at most, quotation marks and cut mark included."""

SPECIAL_TOKENS: Final = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>",
    "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>", "<|finetune_right_pad_id|>", "<|system|>", "<|user|>",
    "<|assistant|>", "<|end|>", "<|pad|>", "<|channel|>", "<|message|>", "<|start|>", "<|return|>", "<|call|>",
    "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|fim_prefix|>", "<|vision_start|>",
    "<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>", "<mask>", "<sep>", "<cls>", "<extra_id_0>", "<reserved_106>",
    "<start_of_turn>", "<end_of_turn>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<<SYS>>",
    "<tool_response>", "<file_sep>", "<repo_name>", "<fim_prefix>", "<jupyter_code>",
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>",
    "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]", "[SYSTEM_PROMPT]", "[THINK]", "[/THINK]", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]", "[BOS]",
    "[EOS]", "[unused0]", "[gMASK]", "]~b]", "[e~[", ">>TITLE<<", "|||EMAIL_ADDRESS|||",
)  # fmt: skip
"""Control-token strings of widespread tokenizers. ``quote`` does not need the list; checks do."""

_to_json: Final = json.JSONEncoder(ensure_ascii=False).encode  # made once: dumps would make one a call
_CUT_MARK: Final = "... (truncated)"
_RAW_CHARS: Final = 4 * MAX_CHARS
_MAPPED: Final = str.maketrans({"[": "(", "]": ")", "|": "/", "<": "< ", "\u2581": "_"})
# Invisible, though their categories (letter, mark, symbol) are those of visible characters.
_BLANKS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0") | frozenset(
    map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)
_UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def quote(text: str) -> str:
    """Return the text as one line in JSON quotation marks, at most 600 characters; a cut is marked.

    Every kind of blank becomes a space; control, bidi, zero-width and unassigned characters go. Brackets become
    parentheses, ``|`` becomes ``/``, and ``<`` is followed by a space, so that no tokenizer finds a control token, no
    game finds a tag or an action. Compatibility forms (full-width, crossed ``<``) are decomposed first, since some
    tokenizers do so too. Linear in 2400 characters: what is beyond is cut unread.
    """
    was_cut = len(text) > _RAW_CHARS
    text = text[:_RAW_CHARS]
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
    text = " ".join(_visible(text).translate(_MAPPED).split())
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    quoted = _to_json(text)
    if len(quoted) <= MAX_CHARS and not was_cut:
        return quoted
    return _cut(quoted)


def _visible(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(c for c in text if c.isspace() or (c not in _BLANKS and unicodedata.category(c) not in _UNPRINTABLE))


def _cut(quoted: str) -> str:
    kept = quoted[:-1][: MAX_CHARS - len(_CUT_MARK) - 1]
    num_backslashes = len(kept) - len(kept.rstrip("\\"))
    if num_backslashes % 2:  # half of an escaped character
        kept = kept[:-1]
    return f'{kept}{_CUT_MARK}"'
