"""The verifier-reliability gate: a few hundred random and adversarial matches, to look at before a game is trained on.

Hard rules say whether the game may be trained on at all; the figures say whether it is worth it. Play goes through the
same ``play_match`` as training; what it does not show (equal states, views without side effects, hostile actions) is
checked on the game itself.
"""

from __future__ import annotations

import collections
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spiral_lib import games, policies, stats
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.game_probe import JUNK, Keys, Params, Rule, Tally, mutated, playable, probe, sum_breach
from spiral_lib.prompts import extract_action
from spiral_lib.rollout import play_matches
from spiral_lib.seeds import generator, seed_for
from spiral_lib.types import EndReason, Episode, KnownCase, MatchSpec, Move, Policy, PolicyRef, View, zero_sum

MAX_APPLY_S = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What a kind of play came to. ``first_seat`` is the first seat's mean return with a 95 % interval.

    ``entropy`` is in bits over the results (seat 0 wins, draw, seat 1 wins); 0 means that nothing is decided by play.
    ``invalid`` and ``void`` are shares of the matches.
    """

    play: str
    matches: int
    entropy: float
    first_seat: float
    first_seat_low: float
    first_seat_high: float
    draws: float
    mean_turns: float
    max_turns: int
    invalid: float
    void: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """Known cases of the game's judge, and how many it decides as stated."""

    cases: int
    agreed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GameCheck:
    """The result of a check."""

    game: str
    rules: tuple[Rule, ...]
    figures: tuple[Figures, ...]
    judged: Judged
    slowest_apply_s: float
    warnings: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Return whether no hard rule is broken."""
        return all(rule.broken == 0 for rule in self.rules)


def check(
    name: str,
    *,
    matches: int = 200,
    seed: int = 0,
    params: Params | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> GameCheck:
    """Return what random, hostile and (where it is known) optimal play show about a game.

    Optimal play, which may have to search, gets a quarter of the matches. Raises ConfigError for an unknown game or
    parameter.
    """
    given = dict(params or {})
    games.make(name, seed=0, **given)  # a wrong name or parameter is the user's mistake, not the game's
    tally, keys = Tally(), Keys()
    plays = _plays(name, given, matches, seed)
    total = matches + sum(len(specs) for specs in plays.values())
    for index in range(matches):
        probe(name, given, seed_for(seed, "probe", index), tally, keys)
        if on_progress is not None:
            on_progress(index + 1, total)
    figures, done = [], matches
    for play, specs in plays.items():
        episodes: list[Episode] = []
        try:
            for episode in play_matches(specs, _policies(), concurrency=1):
                episodes.append(episode)
                if on_progress is not None:
                    on_progress(done + len(episodes), total)
        except Exception as error:  # whatever a faulty game raises is the finding
            tally.look("play_match runs to the end", f"{play} play: {error!r}")
        done += len(specs)
        if episodes:
            figures.append(_figures(play, episodes))
            _check_episodes(episodes, tally)
    judged = _judge(name, tally)
    return GameCheck(
        game=name,
        rules=tally.rules(),
        figures=tuple(figures),
        judged=judged,
        slowest_apply_s=tally.slowest_apply_s,
        warnings=tuple(_warnings(figures, tally, judged)),
    )


class _Hostile:
    """Plays at random but now and then answers with broken, mutated or two-faced text."""

    ref = "api:hostile"
    digest = "hostile"
    engine = "scripted"
    temperature = 1.0

    async def act(self, view: View, *, seed: int) -> Move:
        rng = generator(seed, "hostile")
        action = rng.choice(playable(view))
        box = f"\\boxed{{{action}}}"
        if rng.random() < 0.75:
            text = f"I think. {box}"
        else:
            bad = f"\\boxed{{{rng.choice(JUNK)}}}"
            text = rng.choice((bad, action, box + bad, f"<think>{box}", f"\\boxed{{{mutated(action, rng)}}}"))
        found = extract_action(text, view.legal_actions)
        return Move(action=found.action or "", text=text, reason=found.reason)


def _policies() -> dict[str, Policy]:
    scripted: dict[str, Policy] = {name: policies.make(PolicyRef.parse(name)) for name in ("random", "optimal")}
    return {**scripted, _Hostile.ref: _Hostile()}


def _plays(name: str, params: Params, matches: int, seed: int) -> dict[str, list[MatchSpec]]:
    """Return the matches of every kind of play."""
    from spiral_lib.policies import optimal

    plays = {"random": _specs(name, params, "random", "random", matches, seed)}
    plays["hostile"] = _specs(name, params, "hostile", _Hostile.ref, matches, seed)
    if games.make(name, seed=0, **params).spec.name in optimal.STRATEGIES:
        plays["optimal"] = _specs(name, params, "optimal", "optimal", math.ceil(matches / 4), seed)
    return plays


def _specs(name: str, params: Params, play: str, ref: str, matches: int, seed: int) -> list[MatchSpec]:
    return [
        MatchSpec(
            id=f"check-{play}-{index:06d}",
            game=name,
            seed=seed_for(seed, "check", index),
            policies=(ref, ref),
            trainable=(False, False),
            params=tuple(sorted(params.items())),
        )
        for index in range(matches)
    ]


def _check_episodes(episodes: Sequence[Episode], tally: Tally) -> None:
    for e in episodes:
        tally.look("returns are in [-1, 1] and sum to exactly 0", sum_breach(e.returns, e.id))


def _figures(play: str, episodes: Sequence[Episode]) -> Figures:
    n = len(episodes)
    firsts = [e.returns[0] for e in episodes]
    results = collections.Counter((value > 0) - (value < 0) for value in firsts)
    centre, low, high = stats.mean_interval(firsts)
    lengths = [len(e.turns) for e in episodes]
    void = sum(e.end_reason in (EndReason.MAX_TURNS, EndReason.OPPONENT_ERROR) for e in episodes)
    return Figures(
        play=play,
        matches=n,
        entropy=max(0.0, -sum(c / n * math.log2(c / n) for c in results.values())),
        first_seat=centre,
        first_seat_low=low,
        first_seat_high=high,
        draws=results[0] / n,
        mean_turns=sum(lengths) / n,
        max_turns=max(lengths),
        invalid=sum(e.forfeited_by is not None for e in episodes) / n,
        void=void / n,
    )


def _judge(name: str, tally: Tally) -> Judged:
    """Play the game's own known cases (``KNOWN_CASES`` of its module) and compare the returns."""
    module = importlib.import_module(type(games.make(name, seed=0)).__module__)
    cases = getattr(module, "KNOWN_CASES", ())
    agreed = 0
    for case in cases:
        breach = case_breach(name, case)
        agreed += breach is None
        tally.look("known cases end as stated", breach)
    return Judged(cases=len(cases), agreed=agreed)


def case_breach(name: str, case: KnownCase) -> str | None:
    """Return in words how a known case does not end as stated, or None."""
    shown = " ".join(case.actions)[:100]
    game = games.make(name, seed=case.seed, **dict(case.params))
    done, refused, found = 0, None, None
    try:
        for action in case.actions:
            mover = game.current_player
            game.apply(action)
            done += 1
        found = game.returns()
    except IllegalAction as error:
        if case.refused is None or done + 1 < len(case.actions):
            return f"{shown}: {error}"
        refused, found = error.reason, zero_sum(1.0 if mover else -1.0)
    except (ConfigError, ValueError) as error:
        return f"{shown}: {error}"
    if refused != case.refused:
        return f"{shown}: refused for {refused}, not for {case.refused}"
    return None if found == case.returns else f"{shown}: {found}, not {case.returns}"


def _warnings(figures: Sequence[Figures], tally: Tally, judged: Judged) -> list[str]:
    """Return what does not forbid training but should be looked at."""
    out = []
    for f in figures:
        if f.play == "hostile":
            continue
        if f.play == "random" and f.entropy < 0.1:
            out.append(f"random play nearly always ends the same way ({f.entropy:.2f} bits): little to learn from")
        if f.first_seat_low > 0.5 or f.first_seat_high < -0.5:
            out.append(f"the seat decides {f.play} play ({f.first_seat:+.2f} for the first): keep rae.baseline=role")
        if f.void > 0:
            out.append(f"{100 * f.void:.1f} % of {f.play} matches end without a result")
        if f.play == "random" and f.invalid > 0:
            out.append(f"{100 * f.invalid:.1f} % of random matches end with a refused action: sample_actions offers it")
    if tally.slowest_apply_s > MAX_APPLY_S:
        out.append(f"an action took {1000 * tally.slowest_apply_s:.0f} ms to apply")
    if not judged.cases:
        out.append("no known cases: state some in KNOWN_CASES of the game's module, above all where a judge decides")
    return out
