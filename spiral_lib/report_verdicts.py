"""A reviewer's verdicts on the sample of a match audit: read strictly, kept in the run folder, shown in the report."""

from __future__ import annotations

import html
import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spiral_lib import charts, durable, stats
from spiral_lib.errors import ConfigError
from spiral_lib.report_style import table

log = logging.getLogger(__name__)

FOLDER = "match_audit"
VERDICTS: Mapping[str, str] = {
    "sound": "Sound",
    "flawed": "Flawed",
    "empty": "Templated or empty",
    "unclear": "Unclear",
}
"""Verdict to what its button says."""
_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9_.\- ]{1,40}")
_MAX_BYTES = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """Which seats of which matches were drawn, key to stratum."""

    id: str
    seed: int
    strata: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Review:
    """One reviewer's verdicts by match key, with the stratum of each."""

    reviewer: str
    sample: str
    verdicts: Mapping[str, str]
    strata: Mapping[str, str]


def write_sample(run: Path, sample: Sample) -> None:
    """Write which matches were drawn, so that verdicts can be held to them."""
    content = {"version": _VERSION, "id": sample.id, "seed": sample.seed, "strata": dict(sample.strata)}
    durable.write_text(run / FOLDER / "sample.json", json.dumps(content, indent=1, sort_keys=True))


def save(run: Path, file: Path) -> Path:
    """Keep a reviewer's file in the run folder and return where; a second one of the same reviewer replaces the first.

    Raises ConfigError where it is no such file or judges matches that were not drawn.
    """
    try:
        sample = json.loads((run / FOLDER / "sample.json").read_text())
        strata = {str(key): str(stratum) for key, stratum in sample["strata"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"'{run}' has no match audit ({error}); spiral report RUN --matches 40 draws one") from error
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"'{file}' has more than {_MAX_BYTES} bytes; that is no file of verdicts")
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read '{file}': {error}") from error
    verdicts = _checked(content, sample, strata, file)
    reviewer = content["reviewer"].strip()
    kept = {
        "version": _VERSION,
        "reviewer": reviewer,
        "sample": sample["id"],
        "verdicts": verdicts,
        "strata": {key: strata[key] for key in verdicts},
    }
    out = run / FOLDER / "verdicts" / f"{re.sub('[^A-Za-z0-9_-]', '_', reviewer)}.json"
    durable.write_text(out, json.dumps(kept, indent=1, sort_keys=True))
    return out


def _checked(content: Any, sample: Mapping[str, Any], strata: Mapping[str, str], file: Path) -> dict[str, str]:
    wanted = {"version", "sample", "reviewer", "verdicts"}
    if not isinstance(content, dict) or set(content) != wanted or content["version"] != _VERSION:
        raise ConfigError(f"'{file}' is no file of verdicts: it needs {', '.join(sorted(wanted))}, version {_VERSION}")
    if not isinstance(content["reviewer"], str) or not _NAME.fullmatch(content["reviewer"].strip()):
        raise ConfigError(f"reviewer in '{file}' must be 1 to 40 letters, digits, blanks, dots, dashes")
    if content["sample"] != sample["id"]:
        raise ConfigError(f"'{file}' judges another sample than the run's ('{sample['id']}'); judge that one")
    verdicts = content["verdicts"]
    if not isinstance(verdicts, dict) or not verdicts:
        raise ConfigError(f"'{file}' has no verdicts")
    for key, verdict in verdicts.items():
        if key not in strata:
            raise ConfigError(f"'{file}' judges match '{key[:40]}', which was not drawn")
        if not isinstance(verdict, str) or verdict not in VERDICTS:
            raise ConfigError(f"verdict {verdict!r} on match '{key}' in '{file}' is none of {', '.join(VERDICTS)}")
    return {str(key): str(verdict) for key, verdict in sorted(verdicts.items())}


def read(run: Path) -> tuple[Review, ...]:
    """Return all reviewers' verdicts; a damaged file is left out with a warning, since a page must not stop a run."""
    found = []
    for file in sorted((run / FOLDER / "verdicts").glob("*.json")):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            found.append(
                Review(
                    reviewer=str(content["reviewer"]),
                    sample=str(content["sample"]),
                    verdicts={str(k): str(v) for k, v in content["verdicts"].items()},
                    strata={str(k): str(v) for k, v in content["strata"].items()},
                )
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("'%s' is damaged (%r); give the reviewer's file again", file, error)
    return tuple(found)


def figure(reviews: Sequence[Review]) -> str:
    """Return how many reviewed matches have sound reasoning, by reviewer and stratum, with 95 % intervals."""
    rows = []
    for review in reviews:
        strata = [*dict.fromkeys(review.strata[key] for key in review.verdicts), "all"]
        for stratum in strata:
            counts = Counter(v for k, v in review.verdicts.items() if stratum in ("all", review.strata[k]))
            n = counts.total()
            low, high = stats.wilson(counts["sound"], n)
            sound = counts["sound"] / n
            share = f"{charts.bar(sound)} {100 * sound:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
            rest = tuple(str(counts[name]) for name in VERDICTS if name != "sound")
            rows.append((html.escape(review.reviewer), html.escape(stratum), str(n), share, *rest))
    if not rows:
        return ""
    others = tuple(label.lower() for name, label in VERDICTS.items() if name != "sound")
    headings = ("reviewer", "drawn as", "n", "sound reasoning", *others)
    note = (
        "Verdicts of people on matches drawn by stratum. Strata are not equally likely in play: the line of all "
        "describes the sample, not the run."
    )
    return f'<p class="soft">{note}{_agreement(reviews)}</p>{table(headings, rows, numbers=(2, 4, 5, 6))}'


def _agreement(reviews: Sequence[Review]) -> str:
    """Return in words how often the first two reviewers of one sample agree; "" without two."""
    if len(reviews) < 2 or reviews[0].sample != reviews[1].sample:
        return ""
    both = [key for key in reviews[0].verdicts if key in reviews[1].verdicts]
    same = sum(reviews[0].verdicts[key] == reviews[1].verdicts[key] for key in both)
    return f" The first two reviewers agree on {same} of {len(both)} matches that both judged." if both else ""
