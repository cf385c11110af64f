"""A run, a match and a curve in a few lines, each shown by a notebook as a picture.

    from spiral_lib import notebook
    run = notebook.train("smoke", "runs/first")
    run.curve("eval/kuhn_poker/exploitability")
    notebook.play("kuhn_poker", run.champion, "optimal")
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spiral_lib import config as configs
from spiral_lib import report, report_curves
from spiral_lib.charts import line_chart
from spiral_lib.errors import ConfigError
from spiral_lib.report_files import read
from spiral_lib.report_style import framed
from spiral_lib.types import Episode, MatchSpec, PolicyRef


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """Something that a notebook shows: HTML with its own style."""

    html: str

    def _repr_html_(self) -> str:
        return framed(self.html)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run folder."""

    folder: Path

    @property
    def champion(self) -> str:
        """Reference of the run's champion, for ``play``."""
        return f"checkpoint:{self.folder}"

    @property
    def metrics(self) -> list[dict[str, float]]:
        """The metrics of every iteration, the cold start first; a data frame takes them as they are."""
        return [{"iteration": float(i), **m} for i, m in read(self.folder).iterations]

    def curve(self, *names: str) -> Picture:
        """Return one chart of metrics over iterations. Raises ConfigError where the run has none of them."""
        rows = read(self.folder).iterations
        chart = line_chart(", ".join(names), [report_curves.series(rows, name) for name in names])
        if not chart:
            known = sorted({name for _, metrics in rows for name in metrics})
            raise ConfigError(f"the run has no metric {', '.join(names)}; it has: {', '.join(known)}")
        return Picture(html=chart)

    def _repr_html_(self) -> str:
        return framed(report.headline(read(self.folder)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A finished match; ``episode`` is its record."""

    episode: Episode

    def _repr_html_(self) -> str:
        e = self.episode
        moves = "".join(
            f"<p><b>{html.escape(t.role)}</b> ({html.escape(t.policy)}): <code>{html.escape(t.action)}</code>"
            f"{'' if t.legal else ' illegal'}</p><pre>{html.escape(t.text)}</pre>"
            for t in e.turns
        )
        result = f"<p>{e.end_reason}, returns {e.returns[0]:+.2f} / {e.returns[1]:+.2f}</p>"
        return framed(f"<h3>{html.escape(e.game)}</h3>{moves}{result}")


def train(preset: str, folder: str | Path, overrides: str = "") -> Run:
    """Train to the end, re-using what the folder holds already, and return the run."""
    from spiral_lib import pipeline

    run = Path(folder).resolve()
    pipeline.train(configs.resolve(preset=preset, overrides=overrides), run)
    return Run(folder=run)


def play(
    game: str, first: str, second: str, *, seed: int = 0, params: Mapping[str, int | float | str | bool] | None = None
) -> Match:
    """Play one match between two policies (``random``, ``optimal``, ``checkpoint:<run or checkpoint folder>``)."""
    from spiral_lib import lineup, rollout

    refs = [PolicyRef.parse(text) for text in (first, second)]
    spec = MatchSpec(
        id="match",
        game=game,
        seed=seed,
        policies=(str(refs[0]), str(refs[1])),
        trainable=(False, False),
        params=tuple(sorted((params or {}).items())),
    )
    with lineup.opened(refs) as table:
        (episode,) = rollout.play_matches([spec], table, concurrency=1)
    return Match(episode=episode)
