"""Tournaments: swapped seats, honest intervals, ratings in the right order, cycles only where there are some."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spiral_lib import lineup, tournament, tournament_page, trajectories
from spiral_lib.config import Named
from spiral_lib.errors import CheckpointError, ConfigError
from spiral_lib.opponents import OpponentPool, PoolEntry
from spiral_lib.rollout import play_matches
from spiral_lib.tournament import Payoff, Standings
from spiral_lib.types import EndReason, Episode, MatchSpec, PolicyRef

SCRIPTED = [PolicyRef.parse("random"), PolicyRef.parse("optimal")]
KUHN, NIM = Named(name="kuhn_poker"), Named(name="nim")


def episode(spec: MatchSpec, first: float, end: EndReason = EndReason.FINISHED) -> Episode:
    """Return the record of a match whose first seat got this return."""
    return Episode(
        id=spec.id,
        game=spec.game,
        seed=spec.seed,
        policies=spec.policies,
        turns=(),
        returns=(first, -first),
        end_reason=end,
    )


def refs(*names: str) -> list[PolicyRef]:
    return [PolicyRef.parse(f"checkpoint:{name}") for name in names]


def decided(players: list[PolicyRef], stronger: dict[str, set[str]], pairs: int) -> Standings:
    """Return the standings where who beats whom is fixed, and every other pair is even whatever the seats."""
    episodes = []
    for spec in tournament.plan(players, [KUHN], pairs=pairs, seed=0):
        first, second = (p.removeprefix("checkpoint:") for p in spec.policies)
        wins, loses = second in stronger.get(first, set()), first in stronger.get(second, set())
        episodes.append(episode(spec, 1.0 if wins else -1.0 if loses else 1.0))
    return tournament.score(episodes, players, [KUHN], seed=0)


def test_every_pair_plays_each_game_from_both_seats_with_one_seed() -> None:
    specs = tournament.plan([*SCRIPTED, *refs("a")], [KUHN, NIM], pairs=3, seed=5)
    assert len(specs) == 2 * 3 * 2 * 3 and len({s.id for s in specs}) == len(specs)
    for one, two in zip(specs[::2], specs[1::2], strict=True):
        assert one.policies == two.policies[::-1] and one.seed == two.seed and one.game == two.game
    assert len({s.seed for s in specs}) == len(specs) // 2
    assert set(Counter(s.policies for s in specs).values()) == {6}


def test_a_game_without_optimal_play_is_left_out_for_optimal_alone_and_said() -> None:
    players = [*SCRIPTED, *refs("a")]
    specs = tournament.plan(players, [Named(name="simple_negotiation"), NIM], pairs=1, seed=0)
    assert {p for s in specs if s.game == "simple_negotiation" for p in s.policies} == {"random", "checkpoint:a"}
    assert tournament.skipped(players, [Named(name="simple_negotiation"), NIM]) == (
        "optimal does not play simple_negotiation: no optimal play is known",
    )


@pytest.mark.parametrize(
    ("players", "message"),
    [
        (["random"], "two or more"),
        (["random", "random"], "different"),
        (["random", "human"], "cannot enter"),
        (["random", "self"], "cannot enter"),
    ],
)
def test_a_lineup_that_cannot_play_is_refused(players: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tournament.plan([PolicyRef.parse(p) for p in players], [KUHN], pairs=1, seed=0)


def test_nothing_to_play_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to play"):
        tournament.plan(SCRIPTED, [Named(name="simple_negotiation")], pairs=1, seed=0)


def test_optimal_play_is_rated_above_random_play_and_the_payoff_matrix_is_antisymmetric() -> None:
    specs = tournament.plan(SCRIPTED, [NIM, KUHN], pairs=60, seed=1)
    with lineup.opened(SCRIPTED) as table:
        episodes = list(play_matches(specs, table, concurrency=16))
    found = tournament.score(episodes, SCRIPTED, [NIM, KUHN], seed=1)
    assert [r.policy for r in found.ratings if r.game == tournament.ALL_GAMES] == ["optimal", "random"]
    best, worst = (r for r in found.ratings if r.game == "nim")
    assert best.policy == "optimal" and best.low > worst.high
    assert best.matches == best.wins + best.draws + best.losses == 120
    cells = {(p.game, p.row, p.column): p for p in found.payoffs}
    for (game, row, column), cell in cells.items():
        other = cells[game, column, row]
        assert cell.mean == -other.mean and cell.low == -other.high and cell.low < cell.mean < cell.high
    # Kuhn's second seat is worth 1/18; over both seats optimal play cannot lose.
    assert cells["kuhn_poker", "optimal", "random"].high > 0


def test_the_order_of_the_episodes_does_not_matter() -> None:
    specs = tournament.plan(refs("a", "b", "c"), [KUHN], pairs=10, seed=2)
    rng = random.Random(0)
    episodes = [episode(s, rng.choice((-1.0, -0.5, 0.0, 0.5, 1.0))) for s in specs]
    once = tournament.score(episodes, refs("a", "b", "c"), [KUHN], seed=2)
    rng.shuffle(episodes)
    assert tournament.score(episodes, refs("a", "b", "c"), [KUHN], seed=2) == once


def test_winning_everything_still_has_an_interval_that_narrows_with_the_matches() -> None:
    few, many = (tournament.interval([1.0] * n) for n in (4, 400))
    assert few[0] == many[0] == 1.0
    assert -1 < few[1] < many[1] < 1.0 and [few[2], many[2]] == pytest.approx([1.0, 1.0])
    assert math.isnan(tournament.interval([])[0])


def test_the_interval_covers_the_true_mean_at_least_as_often_as_it_says() -> None:
    rng, covered, tries = random.Random(4), 0, 600
    for _ in range(tries):
        values = [rng.choice((-1.0, 0.0, 0.5, 1.0)) for _ in range(25)]
        _, low, high = tournament.interval(values)
        covered += low <= 0.125 <= high
    assert covered / tries >= 0.95


def test_rock_paper_scissors_is_found_once() -> None:
    players = refs("rock", "paper", "scissors", "even")
    found = decided(players, {"rock": {"scissors"}, "scissors": {"paper"}, "paper": {"rock"}}, pairs=20)
    assert [c.policies for c in found.cycles] == [("checkpoint:paper", "checkpoint:rock", "checkpoint:scissors")]
    ratings = [r.mu for r in found.ratings]
    assert max(ratings) - min(ratings) < 6  # one number cannot tell them apart


def test_a_longer_cycle_is_found_as_well() -> None:
    found = decided(refs("a", "b", "c", "d"), {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"a"}}, pairs=20)
    assert [len(c.policies) for c in found.cycles] == [4]


def test_a_ladder_has_no_cycle() -> None:
    found = decided(refs("a", "b", "c"), {"a": {"b", "c"}, "b": {"c"}}, pairs=20)
    assert found.cycles == ()
    assert [r.policy for r in found.ratings] == ["checkpoint:a", "checkpoint:b", "checkpoint:c"]


def test_equal_players_seldom_look_like_a_cycle() -> None:
    rng, false = random.Random(0), 0
    for _ in range(200):
        payoffs = []
        for row, column in itertools.combinations("abcde", 2):
            mean, low, high = tournament.interval([rng.choice((-1.0, 1.0)) for _ in range(40)])
            shared = {"game": "g", "pairs": 40, "void": 0}
            payoffs.append(Payoff(row=row, column=column, mean=mean, low=low, high=high, **shared))
            payoffs.append(Payoff(row=column, column=row, mean=-mean, low=-high, high=-low, **shared))
        false += bool(tournament.cycles("g", payoffs))
    assert false <= 2


def test_a_few_matches_prove_no_cycle() -> None:
    found = decided(refs("a", "b", "c"), {"a": {"b"}, "b": {"c"}, "c": {"a"}}, pairs=2)
    assert found.cycles == ()


def test_a_void_match_takes_its_pair_out_and_is_counted() -> None:
    players = refs("a", "b")
    specs = tournament.plan(players, [KUHN], pairs=4, seed=0)
    episodes = [episode(s, 1.0 if s.policies[0] == "checkpoint:a" else -1.0) for s in specs]
    episodes[0] = episode(specs[0], 0.0, EndReason.OPPONENT_ERROR)
    found = tournament.score(episodes, players, [KUHN], seed=0)
    assert [(p.pairs, p.void, p.mean) for p in found.payoffs] == [(3, 1, 1.0), (3, 1, -1.0)]
    assert {r.matches for r in found.ratings} == {7}


def test_snapshots_of_a_pool_get_the_ratings_of_the_tournament_they_entered() -> None:
    entries = tuple(PoolEntry(id=mark * 64, iteration=i, digest="d") for i, mark in enumerate("abc"))
    players = [PolicyRef.parse(text) for text in (f"pool:{'a' * 12}", f"pool:{'b' * 16}", "random")]
    specs = tournament.plan(players, [KUHN], pairs=4, seed=0)
    standings = tournament.score(
        [episode(s, 1.0 if s.policies[0].startswith("pool:a") else -1.0) for s in specs], players, [KUHN], seed=0
    )
    after = tournament.rated(OpponentPool(entries=entries), standings).entries
    mu = {r.policy: r.mu for r in standings.ratings}
    assert [e.rating for e in after] == [mu[f"pool:{'a' * 12}"], mu[f"pool:{'b' * 16}"], None]
    assert [e.id for e in after] == [e.id for e in entries]


def test_the_outputs_are_parquet_json_and_a_page_with_every_text_escaped(tmp_path: Path) -> None:
    players = refs("<script>x</script>", "b")
    specs = tournament.plan(players, [KUHN], pairs=4, seed=0)
    episodes = [episode(s, 0.5) for s in specs]
    standings = tournament.score(episodes, players, [KUHN], seed=0)
    page = tournament_page.write(standings, episodes, tmp_path / "out").read_text()
    assert "<script" not in page and "&lt;script&gt;" in page and "http" not in page
    folder = tmp_path / "out"
    assert pq.read_table(folder / "payoffs.parquet").num_rows == 2
    ratings = pq.read_table(folder / "ratings.parquet").to_pylist()
    assert [r["policy"] for r in ratings] == [r.policy for r in standings.ratings]
    assert json.loads((folder / "standings.json").read_text())["matches"] == 8
    assert {e.id for e in trajectories.read_episodes([folder / "turns.parquet"])} == {s.id for s in specs}


def test_a_payoff_that_nobody_played_is_not_a_win() -> None:
    nobody = [
        Payoff(game="g", row=row, column=column, pairs=0, void=3, mean=float("nan"), low=-1.0, high=1.0)
        for row, column in (("a", "b"), ("b", "a"))
    ]
    assert tournament.cycles("g", nobody) == []


def test_a_lineup_names_what_it_cannot_open(tmp_path: Path) -> None:
    for text, error, message in (
        (f"checkpoint:{tmp_path}", CheckpointError, "no checkpoint and no run folder"),
        ("pool:abc", ConfigError, "--pool"),
        ("self", ConfigError, "only within a run"),
    ):
        with pytest.raises(error, match=message), lineup.opened([PolicyRef.parse(text)]):
            pass


def test_a_run_folder_means_its_champion_and_its_own_prompts(micro_run: Path) -> None:
    champion = lineup.locate(str(micro_run))
    assert champion.parent.parent == micro_run and lineup.run_of(champion) == micro_run
    assert lineup.config_of(champion).prompt.style == "compact"
    snapshot = next((micro_run / "pool").iterdir())
    ref = PolicyRef.parse(f"pool:{snapshot.name.split('-')[1]}")
    players = [PolicyRef.parse(f"checkpoint:{micro_run}"), ref]
    with lineup.opened(players, config=lineup.config_of(champion), pool=micro_run) as table:
        specs = tournament.plan(players, [KUHN], pairs=1, seed=0)
        episodes = list(play_matches(specs, table, concurrency=2))
    assert all(turn.response_ids for e in episodes for turn in e.turns)
