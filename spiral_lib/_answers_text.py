"""Written mathematics as text: one spelling for many, exact numbers, units, and what is too dangerous to evaluate."""

from __future__ import annotations

import re
from fractions import Fraction

_MAX_EXPONENT = 10_000
_MAX_DIGITS = 400
_MAX_FACTORIAL = 200

_SPACES = re.compile(r"\\(\\|[,;: ]|quad(?![a-z])|qquad(?![a-z]))|~")
_SIZES = re.compile(r"\\(?:left|right|bigl?|bigr|Bigl?|Bigr|displaystyle|limits)(?![a-z])\s*")
_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mbox|mathrm|mathbf|mathit|operatorname|texttt)\s*\{([^{}]*)\}")
_SHORT_FRACTION = re.compile(r"\\frac\s*(\d|\{[^{}]*\})\s*(\d|\{[^{}]*\})")
_DRESSING = (("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_REPLACED = (
    (r"\dfrac", r"\frac"), (r"\tfrac", r"\frac"), (r"\cfrac", r"\frac"), (r"\!", ""), ("{,}", ","), (r"\%", "%"),
    (r"\$", ""), ("$", ""), ("\u2212", "-"), ("\u2013", "-"), ("\u00d7", r"\times "), ("\u00b7", r"\cdot "),
    (r"^{\circ}", ""), (r"^\circ", ""), ("\u00b0", ""), (r"\degree", ""), ("\u221e", r"\infty"), ("\u03c0", r"\pi "),
    ("\u2264", r"\le "), ("\u2265", r"\ge "), ("<=", r"\le "), (">=", r"\ge "), (r"\lbrace", r"\{"),
    (r"\rbrace", r"\}"), (r"\lbrack", "["), (r"\rbrack", "]"), ("\u222a", r"\cup "), ("**", "^"), (r"\mid", "|"),
    (r"\ast", "*"), (r"\div", "/"), ("\u00b1", r"\pm "),
)  # fmt: skip

_INTEGER = r"[0-9]{1,400}"
_GROUPED = r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,3}(?: [0-9]{3})+"
_DECIMAL = rf"(?:{_GROUPED}|{_INTEGER})(?:\.[0-9]{{0,400}})?|\.[0-9]{{1,400}}"
_SIGN = r"([+-]?)\s*"
_PLAIN = re.compile(rf"{_SIGN}({_DECIMAL})")
_BRACED_DECIMAL = rf"\{{\s*([+-]?\s*(?:{_DECIMAL}))\s*\}}"
_FRACTION = re.compile(
    rf"{_SIGN}(?:\\frac\s*{_BRACED_DECIMAL}\s*{_BRACED_DECIMAL}|({_DECIMAL})\s*/\s*(-?(?:{_DECIMAL})))"
)
_PART = rf"\\frac\s*\{{({_INTEGER})\}}\s*\{{({_INTEGER})\}}"
_MIXED = re.compile(rf"{_SIGN}({_INTEGER})\s*(?:{_PART}|\s({_INTEGER})/({_INTEGER}))")
_TIMES_TEN = r"(?:\\times|\\cdot|\*|x)\s*10\s*\^\s*\{?\s*([+-]?[0-9]{1,3})\s*\}?"
_SCIENTIFIC = re.compile(rf"{_SIGN}({_DECIMAL})\s*(?:[eE]([+-]?[0-9]{{1,3}})|{_TIMES_TEN})")
_REPEATING = re.compile(rf"{_SIGN}([0-9]{{0,50}})\.([0-9]{{0,50}})\\overline\s*\{{\s*([0-9]{{1,50}})\s*\}}")
_POWER_OF_TEN = re.compile(rf"{_SIGN}10\s*\^\s*\{{?\s*([+-]?[0-9]{{1,3}})\s*\}}?")
_PERCENT = re.compile(r"(.*?)\s*(?:%|\bpercent)")

_UNIT = re.compile(r"(.*?[0-9A-Za-z}\)])\s+((?:[A-Za-z]{2,14}\.?\s*){1,3})(?:\^\s*\{?\s*[23]\s*\}?)?", re.DOTALL)
_UNIT_POWER = re.compile(r"\^\s*\{?\s*([23])\s*\}?\Z")
# Words behind a number that change its meaning, or that hedge.
_NO_UNIT = frozenset({
    "or", "and", "not", "if", "maybe", "either", "to", "is", "but", "nor", "than", "hundred", "thousand", "million",
    "billion", "trillion", "percent", "dozen", "half", "sin", "cos", "tan", "log", "ln", "exp", "sqrt", "pi", "in",
    "for", "all", "any", "more", "less", "least", "most", "wrong", "mod", "over", "where", "plus", "minus", "doubled",
    "tripled", "halved", "factorial", "divided", "multiplied", "twice", "root", "inverse", "negative", "approximately",
    "roughly", "about", "almost", "nearly",
})  # fmt: skip
# "5 squared" is another number, "5 meters squared" has a unit.
_POWER_WORDS = frozenset({"squared", "cubed"})

# One mark ends a sentence; more are no ending ("5.." and "1, 2, ..." say something else than "5" and "1, 2").
_SENTENCE_END = re.compile(r"(?<![.,;])(?<![.,;] )[.,;]\s*\Z")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_UNSEEN = re.compile(
    r"\\(?:[hv]?phantom|[hv]space\*?|color|textcolor|label|tag|begin|end)\s*\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
)
# The commands that are an answer by themselves.
_SYMBOL = re.compile(
    r"\\(?:alpha|(?:var)?(?:epsilon|theta|pi|rho|sigma|phi)|[bz]?eta|gamma|delta|iota|kappa|lambda|mu|nu|xi|tau"
    r"|upsilon|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Upsilon|Phi|Psi|Omega|infty|emptyset|varnothing|ell"
    r"|hbar|aleph|beth|Re|Im|nabla|partial|top|bot|perp|parallel|triangle|square|Box|diamond|bigcirc|star|bigstar"
    r"|checkmark|(?:heart|diamond|club|spade)suit)(?![A-Za-z])"
)

_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{5,}")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[a-z]+\}")
_FUNCTION = re.compile(r"(?<![\\A-Za-z])(sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp|pi|infty)(?![A-Za-z])")
_ALLOWED = re.compile(r"[A-Za-z0-9\s+\-*/^_=.,()\[\]{}\\|&!]*")
# What the parser drops, often with all that follows: a hedge would pass for its first value.
_DROPPED = re.compile(r"\\(?:approx|approxeq|[lc]?dots|and|or)(?![A-Za-z])|[0-9]\s*_|\.\s*[.,]|,\s*,|,\s*\.(?![0-9])")
_DECIMAL_IN_TEXT = re.compile(r"(?<![0-9.])([0-9]*)\.([0-9]+)")
_MIXED_IN_TEXT = re.compile(r"(?<![0-9.^_{}()A-Za-z\\])([0-9]+)\s*\\frac\{([0-9]+)\}\{([0-9]+)\}")
_PERCENT_IN_TEXT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")
_GROUPING = re.compile(r"(?<![0-9.])([0-9]{1,3}(?:,[0-9]{3})+)(?![0-9])")
_DIGITS_APART = re.compile(r"[0-9]\s+[0-9.]")
_EXPONENT = re.compile(r"\^\s*\{?\s*[+-]?\s*([0-9]+)")
_TOWER = re.compile(r"[0-9)}]\s*\^\s*[{(]?\s*\(?([0-9]+)\s*\)?\^\s*[{(]?\s*([0-9]+)(\s*\^)?")
_FACTORIAL = re.compile(r"([0-9]+|[)}\]!])\s*!")


def depth_of(text: str) -> int:
    """Return the greatest nesting of brackets of all kinds."""
    depth = deepest = 0
    for char in text:
        if char in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in ")]}":
            depth -= 1
    return deepest


def clean(text: str) -> str:
    """Return the answer in one spelling: no sizes, math marks or degree signs; text commands as plain words."""
    text = _SPACES.sub(lambda m: m.group() if m.group(1) == "\\" else " ", text.strip())
    text = _undressed(_SIZES.sub("", text))
    for old, new in _REPLACED:
        text = text.replace(old, new)
    for _ in range(4):  # wrappers in wrappers; what is nested deeper is no answer
        text = _TEXT.sub(_plain_words, text)
    text = _SHORT_FRACTION.sub(lambda m: f"\\frac{_braced(m.group(1))}{_braced(m.group(2))}", text)
    text = re.sub(r"\+\s*\\infty", r"\\infty", text)
    text = re.sub(r"_([0-9])\s", r"_{\1} ", text)
    text = re.sub(r"\^\s*(-?[0-9]+)", r"^{\1}", text)  # 2^10 as people write it, not 2^1 times 0
    return _SENTENCE_END.sub("", " ".join(text.split())).removesuffix("\\").strip()


def is_empty(text: str) -> bool:
    """Return whether an answer says nothing: no letter or digit to be seen, nor a symbol that is an answer itself."""
    seen = _UNSEEN.sub("", text.replace(r"\\", " "))
    if _SYMBOL.search(seen):
        return False
    return not any(char.isalnum() or char in "\u221e\u2205" for char in _COMMAND.sub("", seen))


def _plain_words(match: re.Match[str]) -> str:
    words = match.group(1)
    # "5\text{ m}" has a unit, "5 m" a variable: a letter of text set off by a blank becomes a word of its own.
    if match.start() > 0 and len(words.strip()) == 1 and words[0] == " " and words.strip().isalpha():
        return f" unit{words.strip()} "
    return f" {words} "


def _undressed(text: str) -> str:
    for _ in range(4):
        text = text.strip()
        boxed = re.fullmatch(r"\\boxed\s*\{(.*)\}", text, re.DOTALL)
        if boxed and depth_of(boxed[1]) >= 0 and "\\boxed" not in boxed[1]:
            text = boxed[1]
            continue
        for opening, closing in _DRESSING:
            if len(text) > len(opening + closing) and text.startswith(opening) and text.endswith(closing):
                text = text[len(opening) : -len(closing)]
    return text


def _braced(text: str) -> str:
    return text if text.startswith("{") else f"{{{text}}}"


def number(text: str) -> Fraction | None:
    """Return the exact value of a plain number of a cleaned text, or None.

    Read are integers, decimals, fractions, mixed numbers, scientific notation and powers of ten, with a percent sign
    as a division by 100. Nothing is rounded.
    """
    text = text.strip()
    if not text.isascii():
        return None
    percent = _PERCENT.fullmatch(text)
    if percent:
        value = number(percent[1])
        return None if value is None else value / 100
    for pattern, read in _READERS:
        match = pattern.fullmatch(text)
        if match:
            return read(match)
    return None


def _decimal(text: str) -> Fraction:
    digits = re.sub(r"[ ,]", "", text).removesuffix(".")
    return Fraction(f"0{digits}" if digits.startswith(".") else digits)


def _signed(match: re.Match[str], value: Fraction) -> Fraction:
    return -value if match[1] == "-" else value


def _read_plain(match: re.Match[str]) -> Fraction:
    return _signed(match, _decimal(match[2]))


def _read_fraction(match: re.Match[str]) -> Fraction | None:
    top, bottom = _decimal(match[2] or match[4]), _decimal(match[3] or match[5])
    return _signed(match, top / bottom) if bottom else None


def _read_mixed(match: re.Match[str]) -> Fraction | None:
    top, bottom = int(match[3] or match[5]), int(match[4] or match[6])
    return _signed(match, int(match[2]) + Fraction(top, bottom)) if 0 < top < bottom else None


def _read_scientific(match: re.Match[str]) -> Fraction:
    return _signed(match, _decimal(match[2]) * Fraction(10) ** int(match[3] or match[4]))


def _read_repeating(match: re.Match[str]) -> Fraction:
    fixed, cycle = match[3], match[4]
    start = Fraction(int(f"{match[2]}{fixed}" or "0"), 10 ** len(fixed))
    return _signed(match, start + Fraction(int(cycle), 10 ** len(fixed) * (10 ** len(cycle) - 1)))


def _read_power(match: re.Match[str]) -> Fraction:
    return _signed(match, Fraction(10) ** int(match[2]))


_READERS = (
    (_PLAIN, _read_plain),
    (_FRACTION, _read_fraction),
    (_MIXED, _read_mixed),
    (_SCIENTIFIC, _read_scientific),
    (_POWER_OF_TEN, _read_power),
    (_REPEATING, _read_repeating),
)


def split_top(text: str, separator: str) -> list[str]:
    """Split at a separator pattern outside all brackets."""
    parts, depth, start, position = [], 0, 0, 0
    pattern = re.compile(separator)
    while position < len(text):
        char = text[position]
        match = pattern.match(text, position) if depth == 0 else None
        if match:
            parts.append(text[start:position])
            start = position = match.end()
            continue
        depth += (char in "([{") - (char in ")]}")
        position += 1
    return [*parts, text[start:]]


def split_unit(text: str) -> tuple[str, str]:
    """Return a value and the unit words behind it (with their power), or the text and ""."""
    match = _UNIT.fullmatch(text)
    if match is None:
        return text, ""
    words = match[2].replace(".", " ").split()
    value = re.sub(r"\\[A-Za-z]+", "", match[1])
    changes_value = words[0].casefold() in _POWER_WORDS or any(word.casefold() in _NO_UNIT for word in words)
    if changes_value or re.search(r"[A-Za-z]{2}", value):
        return text, ""
    power = _UNIT_POWER.search(text)
    return match[1], " ".join(words).casefold() + (power[1] if power else "")


def is_harmless(text: str) -> bool:
    """Return whether a text may be evaluated: only mathematics, and no number that grows out of bounds."""
    if not _ALLOWED.fullmatch(_PERCENT_IN_TEXT.sub("1", text)) or "__" in text:
        return False
    if _DROPPED.search(text) or _DIGITS_APART.search(text) or _WORD.search(_ENVIRONMENT.sub("", text)):
        return False
    if any(len(run) > _MAX_DIGITS for run in re.findall(r"[0-9]+", text)):
        return False
    if any(len(e) > 6 or int(e) > _MAX_EXPONENT for e in _EXPONENT.findall(text)):
        return False
    for low, high, further in _TOWER.findall(text):
        if further or len(low) > 3 or len(high) > 2 or int(low) ** int(high) > _MAX_EXPONENT:
            return False
    return all(n.isdigit() and len(n) < 4 and int(n) <= _MAX_FACTORIAL for n in _FACTORIAL.findall(text))


def to_latex(text: str) -> str:
    """Return LaTeX without decimals, percent signs, mixed numbers or thousands separators, all made exact."""
    text = _GROUPING.sub(lambda m: m[1].replace(",", ""), text)
    text = _PERCENT_IN_TEXT.sub(lambda m: _fraction(_decimal(m[1]) / 100), text)
    text = _MIXED_IN_TEXT.sub(lambda m: f"({m[1]}+\\frac{{{m[2]}}}{{{m[3]}}})", text)
    text = _DECIMAL_IN_TEXT.sub(lambda m: _fraction(Fraction(f"{m[1] or '0'}.{m[2]}")), text)
    text = re.sub(r"(?<![\\A-Za-z])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = _FUNCTION.sub(lambda m: f"\\{m[1]} ", text)
    return re.sub(r"\^\s*\(([^()]*)\)", r"^{\1}", text).replace("*", r"\cdot ")


def _fraction(value: Fraction) -> str:
    return f"{{\\frac{{{value.numerator}}}{{{value.denominator}}}}}"
