"""``spiral play``: a person against a policy, or policies against each other, through the same play as training."""

from __future__ import annotations

import collections
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spiral_lib.cli._options import complete, configured, folder, game_names, json_option
from spiral_lib.cli._screen import print_json, print_table, progress

if TYPE_CHECKING:
    from spiral_lib.types import Episode, MatchSpec


@click.command(
    epilog="""\b
Examples:
  spiral play kuhn_poker --vs optimal
  spiral play tic_tac_toe --vs checkpoint:runs/tiny-0f3a1c2b --seat 1 --show-reasoning
  spiral play nim --vs random --set-game piles='1 3 5' --save match.parquet
  spiral play kuhn_poker --vs api:my-model --preset tiny --set endpoint.base_url=http://localhost:8000/v1
  spiral play kuhn_poker --seats random,optimal --matches 200 --json"""
)
@click.argument("game", shell_complete=complete(game_names))
@click.option("--vs", "opponent", default="random", show_default=True, help="Who sits opposite you: a policy.")
@click.option("--seat", type=click.IntRange(0, 1), help="Your seat.  [default: drawn]")
@click.option("--seats", metavar="POLICY,POLICY", help="Who sits in seats 0 and 1, instead of you and --vs.")
@click.option("--matches", default=1, show_default=True, type=click.IntRange(1), help="How many matches.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the first match.  [default: drawn]")
@click.option("--set-game", "params", multiple=True, metavar="NAME=VALUE", help="A parameter of the game.")
@click.option("--show-reasoning", is_flag=True, help="Show what the other side wrote, after each match.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Parquet file for all turns.")
@click.option("--pool", type=folder(), help="Run folder in which pool:<id> is looked up.")
@configured(None)
@json_option
def COMMAND(
    game: str,
    opponent: str,
    seat: int | None,
    seats: str | None,
    matches: int,
    seed: int | None,
    params: tuple[str, ...],
    show_reasoning: bool,
    save: Path | None,
    pool: Path | None,
    preset: str | None,
    config_file: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Play GAME against a policy; with --seats, let policies play each other."""
    from spiral_lib import lineup, rollout
    from spiral_lib.cli._options import chosen_config
    from spiral_lib.cli.games import parse_params
    from spiral_lib.types import PolicyRef

    first = seed if seed is not None else _drawn_seed()
    specs = _specs(game, seats, opponent, seat, matches, first, parse_params(params))
    refs = [PolicyRef.parse(text) for text in dict.fromkeys(specs[0].policies)]
    with_person = any("human" in spec.policies for spec in specs)
    episodes: list[Episode] = []
    with lineup.opened(refs, config=chosen_config(preset, config_file, overrides), pool=pool) as table:
        if with_person:
            for episode in rollout.play_matches(specs, table, concurrency=1):
                episodes.append(episode)
                _tell(episode)
                _reason(episode, show_reasoning)
        else:
            with progress("playing", len(specs), unit="matches") as bar:
                for episode in rollout.play_matches(specs, table, concurrency=64):
                    episodes.append(episode)
                    bar(len(episodes))
    episodes.sort(key=lambda e: e.id)
    if save is not None:
        _save(save, episodes)
    if as_json:
        print_json([_record(e) for e in episodes])
    elif not with_person:
        _summarise(episodes)
        if show_reasoning:
            for episode in episodes[:1]:
                _reason(episode, show=True)
    click.echo(f"seed {first}; --seed {first} plays the same again" + (f"; saved in {save}" if save else ""), err=True)


def _drawn_seed() -> int:
    import secrets

    return secrets.randbelow(10**6)


def _specs(
    game: str, seats: str | None, opponent: str, seat: int | None, matches: int, seed: int, params: dict[str, Any]
) -> list[MatchSpec]:
    """Return the matches; a person without a chosen seat changes seats from match to match."""
    from spiral_lib import games
    from spiral_lib.errors import ConfigError
    from spiral_lib.seeds import seed_for, uniform
    from spiral_lib.types import MatchSpec, PolicyRef

    games.make(game, seed=seed, **params)
    if seats is not None:
        pair = tuple(str(PolicyRef.parse(text)) for text in seats.split(","))
        if len(pair) != 2:
            raise ConfigError(f"--seats is '{seats}'; it must name two policies, for example random,optimal")
    specs = []
    for index in range(matches):
        if seats is None:
            own = seat if seat is not None else (int(2 * uniform(seed, "seat")) + index) % 2
            other = str(PolicyRef.parse(opponent))
            pair = ("human", other) if own == 0 else (other, "human")
        specs.append(
            MatchSpec(
                id=f"play-{index:06d}",
                game=game,
                seed=seed_for(seed, "play", index),
                policies=(pair[0], pair[1]),
                trainable=(False, False),
                params=tuple(sorted(params.items())),
            )
        )
    return specs


def _tell(episode: Episode) -> None:
    """Say how a match of a person went, move by move."""
    seat = episode.policies.index("human")
    rows = [
        (str(t.index), "you" if t.player == seat else t.policy, t.action, "" if t.legal else str(t.invalid_reason))
        for t in episode.turns
    ]
    print_table(("turn", "who", "move", "invalid"), rows, title=f"{episode.game}, match {episode.id}")
    value = episode.returns[seat]
    result = "you won" if value > 0 else "you lost" if value < 0 else "a draw"
    reason = "" if episode.end_reason == "finished" else f" ({episode.end_reason.replace('_', ' ')})"
    click.echo(f"{result}{reason}: {value:+.2f} for you")


def _reason(episode: Episode, show: bool) -> None:
    """Show what the others wrote, asking first where nobody asked for it."""
    written = [t for t in episode.turns if t.policy != "human" and (t.response_ids or show)]
    if not written:
        return
    if not show and not (sys.stdin.isatty() and click.confirm("Show the opponent's reasoning?", default=False)):
        return
    for turn in written:
        click.echo(f"\nturn {turn.index}, {turn.policy}:\n{turn.text}")


def _save(path: Path, episodes: Sequence[Episode]) -> None:
    from spiral_lib import trajectories

    trajectories.write_shard(path, episodes, run="play", iteration=0, step=0, shard=0, config_hash="")


def _record(episode: Episode) -> dict[str, Any]:
    return {
        "id": episode.id,
        "game": episode.game,
        "seed": episode.seed,
        "policies": episode.policies,
        "returns": episode.returns,
        "end_reason": episode.end_reason.value,
        "forfeited_by": episode.forfeited_by,
        "actions": [turn.action for turn in episode.turns],
    }


def _summarise(episodes: Sequence[Episode]) -> None:
    from spiral_lib import tournament

    first, second = episodes[0].policies
    if len(episodes) == 1:
        e = episodes[0]
        rows = [(str(t.index), t.policy, t.role, t.action, "" if t.legal else str(t.invalid_reason)) for t in e.turns]
        print_table(("turn", "policy", "role", "move", "invalid"), rows, title=f"{e.game}, seed {e.seed}")
        click.echo(f"returns: {e.returns[0]:+.2f} / {e.returns[1]:+.2f} ({e.end_reason.replace('_', ' ')})")
        return
    mean, low, high = tournament.interval([e.returns[0] for e in episodes])
    wins = collections.Counter((e.returns[0] > 0) - (e.returns[0] < 0) for e in episodes)
    click.echo(f"seat 0 {first}, seat 1 {second}: {wins[1]} won, {wins[0]} drawn, {wins[-1]} lost by seat 0")
    click.echo(f"mean return of seat 0: {mean:+.3f}, 95 % interval {low:+.3f} to {high:+.3f}, n {len(episodes)}")
    ends = collections.Counter(e.end_reason.value for e in episodes)
    click.echo(f"ends: {json.dumps(dict(ends))}")
