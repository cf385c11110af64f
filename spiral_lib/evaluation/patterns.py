"""Reasoning patterns in replies: a deterministic, linear-time classifier by wording, and its metrics.

It reads words, not thoughts: its measured precision and recall stand in ``docs/evaluation.md`` and in its test. The
paper's own labelling is not published, so the numbers are comparable within this project only, and never a reward.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spiral_lib import stats
from spiral_lib.stats import ShareChange


class Pattern(enum.StrEnum):
    """Ways of reasoning that the classifier knows."""

    EXPECTED_VALUE = "expected_value"
    CASE_BY_CASE = "case_by_case"
    PATTERN_RECOGNITION = "pattern_recognition"
    DECOMPOSITION = "decomposition"


MAX_CHARS = 60_000
"""A reply's first characters that are read; the rest is ignored."""


_SOME = r"(?:one|two|three|four|five|six|nine|ten|\d+)"
_SEVERAL = r"(?:two|three|four|several)"
_GAINS = r"costs?|pays?|wins?|loses?|gain(?:s|ed)?|earns?|brings?"
_MOVE = r"(?:call|fold|check|bet|raise|accept|reject|roll|hold|pass|deny)(?:ing)?"


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rule:
    """A pattern is present with one ``strong`` marker, two ``twice`` ones, or ``least`` of every pattern in ``all_of``.

    ``distinct`` counts a marker in ``all_of`` once, however often it stands there.
    """

    strong: re.Pattern[str]
    all_of: tuple[re.Pattern[str], ...]
    least: int
    twice: re.Pattern[str] | None = None
    distinct: bool = False


# Every marker starts at the start of a word, quantifiers do not nest and gaps are bounded: every search is linear.
_RULES: Mapping[Pattern, _Rule] = {
    Pattern.EXPECTED_VALUE: _Rule(
        strong=_words(
            r"expected (?:value|gain|loss|return|payoff|profit)", r"ev\(", r"in expectation", r"on average",
            r"in the (?:long run|mean)\b", r"risk against reward", r"weighted", r"the (?:mean|average) is",
            r"well worth", r"breaks? even",
            r"\d(?:\.\d+)?/?\d* ?(?:\*|×|x|\\times|\\cdot) ?\(?-?\d+(?:/\d+)?\)? ?[-+] ?\(?-?\d?\.?\d*/?\d* ?[*×x]",
        ),
        all_of=(
            _words(
                r"probabilit\w+", r"prob\.", r"chances?\b", r"odds\b", r"likely", r"percent", r"\d+ ?%", r"0\.\d+ ?\*",
                r"(?:about|one|exactly|has|are) half\b", r"half (?:are|is|of the)\b", r"(?:a third|a quarter) of\b",
                rf"{_SOME} (?:times? )?(?:out of|in|of) {_SOME}\b", r"(?:a|the) (?:coin|die)\b",
                r"one[- ](?:third|quarter|half|fifth|in[- ]\w+)\b", r"[1-9]/[1-9]\d?\b", r"(?:once|twice) in\b",
            ),
            _words(
                rf"(?:{_GAINS}) (?:me |my |only |about |another )?{_SOME}\b",
                r"worth\b", r"gamble", r"weigh(?:ed|s|ing)?\b", r"average", r"pot\b", r"pay(?:ing)? \w+ (?:chip|to)\b",
                r"risk(?:s|ing)? \w+", r"profitable", r"equity", r"net\b", r"the price is", r"purchase",
                r"with \d+ at stake", r"a (?:clear )?(?:plus|loss)\b", r"for sure\b", r"sure thing",
                r"one die (?:gained|lost)",
            ),
        ),
        least=1,
    ),
    Pattern.CASE_BY_CASE: _Rule(
        strong=_words(
            r"case by case", rf"(?:{_SEVERAL}|all) (?:cases|possibilities|scenarios|options|candidates|sorts)",
            r"case (?:1|one|i|a) ?[:.,]", r"option (?:a|1|one) ?[:.,]", r"on the one hand", r"either way",
            r"either \w[^.;:]{2,80} or\b", r"(?:for )?each possible", r"both (?:cases|possibilities|fail)",
            r"one by one", r"(?:options|candidates|possibilities) are\b", r"can be \w+, \w+ or \w+",
            r"(?:go through|look at|try) (?:the|all|every|my|each) (?:columns|rows|moves|cells|options|replies)",
            r"(?:each|every|all) repl(?:y|ies)\b", r"by the number of\b",
        ),
        all_of=(
            _words(
                r"(?:if|suppose|assum\w+|what if|in case|unless|maybe|perhaps|say (?:i|he|she|it))\b",
                r"when (?:the|he|she|it|they|my|\w is)\b", r"otherwise", r"right would", r"wrong would",
                r"(?:were|had) (?:he|she|it|they|the)\b", r"try \d", r"(?:for|take) \w [=<>]", r"on \d",
                r"with the (?:jack|queen|king|sum|product|first|second)\b", r"against (?:the|a) (?:jack|queen|king)\b",
                r"(?:doubling|growing \w+) (?:would|gives?)", r"guess\b", r"in (?:row|column|cell) \d",
                rf"(?:with|on) (?:a )?{_MOVE}\b", rf"(?:{_MOVE}|positive|negative)\b[^.:]{{0,30}}:",
                r"(?:column|row|cell|reply|\[\d\])(?: \d)?:", r"(?:odd|even) numbers give",
            ),
        ),
        least=2,
    ),
    Pattern.PATTERN_RECOGNITION: _Rule(
        strong=_words(
            r"(?:same|this|a|the) pattern\b(?! on)", r"sequence", r"symmetr\w+", r"mirror (?:image|each|his)",
            r"(?:two|three|four) (?:rounds |times |games )?in (?:a row|the (?:left|right|middle|top|bottom))",
            r"diagonal", r"fork with", r"same (?:shape|trick|fork|habit|values)", r"alternat\w+", r"whenever\b",
            r"(?:every|each) (?:single )?(?:time|round|turn|game|deal|loss)\b", r"(?<!i )always (?!\.)",
            r"in the last (?:two|three|four|\d+) (?:games|rounds|hands|turns)",
            r"in (?:all|most) (?:of )?(?:our|the|his|her|their) (?:games|rounds|hands|turns)",
            r"has \w+ in \w+ of (?:the )?\w+ (?:games|rounds|hands|turns)", r"(?:third|fourth|fifth) time\b",
            r"as usual", r"in rounds? \d", r"so far (?:he|she|they|my opponent|had|has)\b",
            r"(?:each|every) (?:number|term) is", r"of the form", r"pascal", r"(?:odd|even) powers",
            r"the rule is", r"with period", r"it goes \w+, \w+, \w+",
            r"the following (?:term|number)", r"(?:term|number) that comes (?:after|next)",
            r"next (?:term|number|odd)", r"\w+ is next\b", r"start over", r"writes it twice", r"well-known",
        ),
        all_of=(
            _words(
                r"again\b", r"habit", r"repeat\w*", r"never\b", r"usual\w*", r"as before", r"like (?:in|before)",
                r"just like", r"differences?", r"doubles?", r"last digits?", r"powers? of", r"multiples? of",
                r"opponent has (?:bet|checked)", r"already owns", r"all along", r"copy", r"the next (?:one )?should",
            ),
        ),
        least=2,
        distinct=True,
    ),
    Pattern.DECOMPOSITION: _Rule(
        strong=_words(
            r"break (?:this|it|the \w+) (?:down|into)", r"(?:step|stage) (?:1|one)\b",
            r"sub-?(?:goals?|problems?|tasks?)",
            r"smaller (?:ones|problems|parts|grids)", r"one (?:thing|step) at a time", r"my plan\b",
            r"part (?:one|1|a)\b", r"in (?:stages|pieces|steps|parts)\b",
            rf"{_SEVERAL} (?:steps|stages|parts|pieces|questions|decisions|tasks|things|jobs)\b",
            r"(?:split|cut|divide|separate) (?:this|it|on|the \w+) (?:in|into|up|from|by|at|the)\b",
            r"the (?:two |three )?parts", r"name the (?:pieces|parts|unknowns)", r"let me organi[sz]e", r"goal: ",
            r"layer by layer", r"apart from the", r"is that of (?:a|the) [\w ]{1,30} plus\b",
            r"one after the other", r"a part for", r"write \d+ as", r"solve for \w+ in", r"to do so",
            r"to (?:count|find|get|reach|decide|solve) the \w+, ", r"(?:total|number of) \w+ = ",
            r"before (?:the total|comparing|adding)",
        ),
        twice=re.compile(
            rf"(?:^|[.!?:] )(?!{_MOVE}|case|option|column|row|cell)[a-z][a-z ]{{0,28}}: [^.!?;:]{{0,60}}\d"
        ),
        all_of=(
            _words(
                r"first\b", r"then\b", r"next\b", r"finally", r"at the end", r"afterwards", r"to begin with",
                r"start (?:with|from)", r"for (?:this|that)\b", r"from (?:there|the (?:first|second))", r"in total",
                r"all together", r"altogether", r"in (?:sum|all)\b", r"what remains", r"what is left",
                r"with (?:that|this|\w+ known)\b", r"once (?:this|the)\b", r"after that", r"step \d", r"adding",
                r"plug", r"insert\w*", r"half of it", r"before (?:that|this|we)\b", r"(?:i|we) need\b", r"the rest\b",
                r"now the\b", r"the goal\b", r"subtract\w*",
            ),
        ),
        least=3,
        distinct=True,
    ),
}  # fmt: skip


def classify(text: str) -> frozenset[Pattern]:
    """Return the patterns whose wording a reply shows; linear in its length."""
    # Lower-casing once is several times faster than searching regardless of case.
    read = text[:MAX_CHARS].lower()
    return frozenset(pattern for pattern, rule in _RULES.items() if _shows(rule, read))


def metrics(texts: Sequence[str], place: str) -> dict[str, float]:
    """Return ``reasoning/pattern/<place>/<pattern>`` with interval and n, and ``..._per_1000_words``, over replies.

    The share of replies grows with their length, so the second number belongs beside it: replies that show the pattern
    per thousand words of all replies. ``place`` is ``games`` or a benchmark's name. No reply gives ``_n`` alone.
    """
    n = len(texts)
    shown = [classify(text) for text in texts]
    words = sum(len(text[:MAX_CHARS].split()) for text in texts)
    found: dict[str, float] = {}
    for pattern in Pattern:
        name = f"reasoning/pattern/{place}/{pattern}"
        count = sum(pattern in patterns for patterns in shown)
        found[f"{name}_n"] = float(n)
        if n:
            low, high = stats.wilson(count, n)
            found |= {name: count / n, f"{name}_low": low, f"{name}_high": high}
        if words:
            found[f"{name}_per_1000_words"] = 1000.0 * count / words
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """One pattern's change in play beside its change in another place; None where one evaluation has no replies."""

    pattern: Pattern
    play: ShareChange | None
    elsewhere: ShareChange | None

    @property
    def verdict(self) -> str:
        """What the two changes say about transfer; more than the two intervals allow is never said."""
        return stats.transfer(self.play, self.elsewhere)


def transfer(first: Mapping[str, float], last: Mapping[str, float], *, place: str = "bank") -> tuple[Transfer, ...]:
    """Return, for two evaluations' metrics, whether a pattern that grew in play grew elsewhere too."""
    return tuple(
        Transfer(pattern=p, play=_change(first, last, "games", p), elsewhere=_change(first, last, place, p))
        for p in Pattern
    )


def _change(
    first: Mapping[str, float], last: Mapping[str, float], place: str, pattern: Pattern
) -> ShareChange | None:
    return stats.share_change(first, last, f"reasoning/pattern/{place}/{pattern}")


def _shows(rule: _Rule, text: str) -> bool:
    if rule.strong.search(text) or (rule.twice is not None and _count(rule.twice, text, distinct=False) >= 2):
        return True
    return all(_count(markers, text, distinct=rule.distinct) >= rule.least for markers in rule.all_of)


def _count(markers: re.Pattern[str], text: str, *, distinct: bool) -> int:
    found = [match.group() for match in markers.finditer(text)]
    return len(set(found) if distinct else found)
