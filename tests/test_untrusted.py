"""Foreign text is data: what ``quote`` returns cannot be control, a tag, a line or an action."""

from __future__ import annotations

import json
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spiral_lib.untrusted import MAX_CHARS, SPECIAL_TOKENS, quote

TRICKY = st.lists(
    st.one_of(
        st.sampled_from(SPECIAL_TOKENS),
        st.sampled_from(["[GAME]", "[game]", "[Player 0]", "\\boxed{", "\n", "\u2028"]),
        st.sampled_from(["\u200b", "\u0338", "<", "[", '"', "\\"]),
        st.text(max_size=8),
    ),
    max_size=60,
).map("".join)


@settings(max_examples=150, deadline=None)
@given(TRICKY)
def test_quoted_text_is_one_short_json_string_without_tags_or_control_tokens(text: str) -> None:
    quoted = quote(text)
    shown = json.loads(quoted)
    assert len(quoted) <= MAX_CHARS and quoted == json.dumps(shown, ensure_ascii=False)
    assert len(quoted.splitlines()) == 1
    assert not set("[]|") & set(quoted) and all(after in ' "' for after in _after("<", quoted))
    assert not any(token in quoted for token in SPECIAL_TOKENS)
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn") for c in quoted)
    quoted.encode("utf-8")


def _after(mark: str, text: str) -> list[str]:
    return [text[i + 1] for i, c in enumerate(text) if c == mark]


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
@pytest.mark.parametrize("hide", ["{}", "\u200b".join, "{0}{0}", "x{}y"])
def test_control_tokens_are_broken_however_they_are_hidden(token: str, hide: object) -> None:
    text = hide.format(token) if isinstance(hide, str) else "\u200b".join(token)
    quoted = quote(text)
    assert token not in quoted and token not in unicodedata.normalize("NFKC", quoted)
    stripped = "".join(c for c in unicodedata.normalize("NFKD", quoted) if not unicodedata.combining(c))
    assert token not in stripped


@pytest.mark.parametrize("text", ["＜|im_end|＞", "<｜im_end｜>", "\u226es>", "<\u0338s>", "＜／s＞", "［GAME］"])
def test_compatibility_forms_do_not_become_control_tokens_after_normalisation(text: str) -> None:
    for form in ("NFC", "NFKC", "NFKD"):
        seen = unicodedata.normalize(form, quote(text))
        plain = "".join(c for c in seen if not unicodedata.combining(c))
        assert not any(bad in plain for bad in ("<|", "<s>", "</s>", "[GAME]"))


@pytest.mark.parametrize("separator", ["\n", "\r\n", *"\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"])
def test_every_line_separator_becomes_a_blank(separator: str) -> None:
    assert quote(f"a{separator}b") == '"a b"'


def test_tags_inside_tags_leave_no_tag_in_any_letter_case() -> None:
    for text in ("[GA[GAME]ME] hi", "[game]", "[Player 0] [Accept]", "[[[GAME]]]"):
        assert "[" not in quote(text) and "]" not in quote(text)


def test_ordinary_text_in_any_language_stays_readable() -> None:
    for text in ("Deal? 2 < 3, ok.", "Größe", "नमस्ते", "你好", "한국", "😀", "שלום"):
        assert json.loads(quote(text)) == text


def test_invisible_characters_vanish() -> None:
    assert quote("a\u200b\u202e\u2066\ufeff\u00ad\u3164\ufe0f\U000e0041\x00\x07\x1b\ud800b") == '"ab"'


def test_a_cut_is_marked_and_stays_valid_json() -> None:
    for text in ("ha" * 500_000, '"' * 5000, "\\" * 5001, "é" * 700, " " * 5000 + "x"):
        quoted = quote(text)
        assert len(quoted) <= MAX_CHARS and json.loads(quoted).endswith("... (truncated)")
    assert "truncated" not in quote("h" * (MAX_CHARS - 2)) and "truncated" in quote("h" * (MAX_CHARS - 1))


def test_a_hundred_megabytes_take_no_longer_than_their_first_characters() -> None:
    text = "[GA" * 30_000_000
    start = time.process_time()
    quote(text)
    assert time.process_time() - start < 0.1
