"""Matches: who plays whom, one match as one coroutine, and the driver that plays many at once.

No lockstep and no threads: every match runs until it needs a token generator, the driver steps the generators and hands
out what finished. What is played depends on the specs alone, not on the concurrency or on how they are sharded.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from spiral_lib import games
from spiral_lib.config import Named, RunConfig
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.seeds import seed_for, uniform
from spiral_lib.types import (
    Completion,
    EndReason,
    Engine,
    Episode,
    Game,
    MatchSpec,
    Move,
    Policy,
    RefKind,
    Request,
    Returns,
    Turn,
    View,
    zero_sum,
)

_CUT_OFF = ("length", "context")
_UNREADABLE = ("no_box", "unclosed_box", "unfinished_thinking")
_Match = Coroutine[tuple[Engine, Request], Completion, Episode]


async def play_match(game: Game, policies: Sequence[Policy], spec: MatchSpec) -> Episode:
    """Play one match to its end. What a policy does wrong ends the match instead of raising.

    An illegal or unreadable move forfeits (-1/+1), a policy that gives no answer voids the match (0/0), and so does
    reaching the game's turn limit.
    """
    turns: list[Turn] = []
    while (player := game.current_player) is not None:
        if len(turns) >= game.spec.max_turns:
            return _episode(spec, turns, (0.0, 0.0), EndReason.MAX_TURNS)
        view, policy = game.view(player), policies[player]
        seed = seed_for(spec.seed, "turn", len(turns))
        move = await policy.act(view, seed=seed)
        reason = _apply(game, move)
        turns.append(_turn(view, policy, move, spec, index=len(turns), seed=seed, invalid_reason=reason))
        if move.failed:
            return _episode(spec, turns, (0.0, 0.0), EndReason.OPPONENT_ERROR)
        if reason is not None:
            cut_off = move.finish_reason in _CUT_OFF and reason in _UNREADABLE
            end = EndReason.TRUNCATED if cut_off else EndReason.ILLEGAL_ACTION
            return _episode(spec, turns, zero_sum(-1.0 if player == 0 else 1.0), end, forfeited_by=player)
    return _episode(spec, turns, game.returns(), EndReason.FINISHED)


def play_matches(specs: Iterable[MatchSpec], policies: Mapping[str, Policy], *, concurrency: int) -> Iterator[Episode]:
    """Yield the episode of every match as it ends; at most ``concurrency`` matches are in play.

    ``policies`` maps the text of each PolicyRef in the specs to its policy.
    """
    driver = _Driver()
    waiting = iter(specs)
    try:
        for spec in itertools.islice(waiting, concurrency):
            driver.start(_match(spec, policies))
        while driver.alive:
            for episode in driver.advance():
                for spec in itertools.islice(waiting, 1):
                    driver.start(_match(spec, policies))
                yield episode
    finally:
        driver.close()


class _Driver:
    """Runs coroutines and steps every engine that at least one of them waits for."""

    def __init__(self) -> None:
        self._ready: deque[tuple[_Match, Completion | None]] = deque()
        self._pending: dict[Engine, dict[int, _Match]] = {}
        self._next_id = 0

    @property
    def alive(self) -> bool:
        return bool(self._ready) or any(self._pending.values())

    def start(self, match: _Match) -> None:
        self._ready.append((match, None))

    def advance(self) -> Iterator[Episode]:
        """Run every coroutine that can go on, yielding the episodes of those that ended; then step the engines once."""
        while self._ready:
            match, completion = self._ready.popleft()
            try:
                # A coroutine that has not begun takes None, whatever its send type says.
                engine, request = match.send(cast(Completion, completion))
            except StopIteration as ended:
                yield ended.value
                continue
            # Ids are the driver's: two matches may well ask with the same seed.
            self._next_id += 1
            self._pending.setdefault(engine, {})[self._next_id] = match
            engine.submit(replace(request, id=self._next_id))
        for engine, matches in self._pending.items():
            if matches:
                self._ready.extend((matches.pop(number), completion) for number, completion in engine.step())

    def close(self) -> None:
        for match, _ in self._ready:
            match.close()
        for matches in self._pending.values():
            for match in matches.values():
                match.close()


def plan_matches(config: RunConfig, *, step: int, pool: Sequence[str]) -> list[MatchSpec]:
    """Return the matches of a learner step, sorted by id. ``pool`` holds the ids of the opponent pool.

    Game, opponent kind and pool entry are drawn by keyed numbers for each match index; the learner's seat alternates
    within each kind of opponent, beginning with another one in every step. Against an empty pool it is self-play.
    """
    o = config.opponents
    kinds = {RefKind.SELF: o.self_play, RefKind.POOL: o.pool, RefKind.RANDOM: o.random, RefKind.OPTIMAL: o.optimal}
    kinds[RefKind.API] = o.api
    played = dict.fromkeys(kinds, step)
    specs = []
    for index in range(config.rollout.matches):
        seed = seed_for(config.seed, "match", step, index)
        game: Named = _draw(config.games, [g.weight for g in config.games], uniform(seed, "game"))
        kind: RefKind = _draw(list(kinds), list(kinds.values()), uniform(seed, "opponent"))
        if kind is RefKind.POOL and not pool:
            kind = RefKind.SELF
        seat = played[kind] % 2
        played[kind] += 1
        rivals = (o.api_model,) if kind is RefKind.API else pool
        policies, trainable = _seats(kind, seat, rivals, uniform(seed, "pool"))
        specs.append(
            MatchSpec(
                id=f"{step:06d}-{index:06d}",
                game=game.name,
                seed=seed,
                policies=policies,
                trainable=trainable,
                params=tuple(sorted(game.params.items())),
            )
        )
    return specs


def shard_of(specs: Sequence[MatchSpec], shard: int, num_shards: int) -> list[MatchSpec]:
    """Return a contiguous block of the specs: shards put one after the other are the whole, in order."""
    if not 0 <= shard < num_shards:
        raise ConfigError(f"shard {shard} is not one of {num_shards} shards; shards count from 0")
    return list(specs[len(specs) * shard // num_shards : len(specs) * (shard + 1) // num_shards])


def _match(spec: MatchSpec, policies: Mapping[str, Policy]) -> _Match:
    missing = [ref for ref in spec.policies if ref not in policies]
    if missing:
        raise ConfigError(f"match {spec.id} needs policy '{missing[0]}'; given are {', '.join(sorted(policies))}")
    game = games.make(spec.game, seed=spec.seed, **dict(spec.params))
    return play_match(game, [policies[ref] for ref in spec.policies], spec)


def _apply(game: Game, move: Move) -> str | None:
    """Play the move and return None, or why it could not be played."""
    if move.failed or not move.action:
        return move.reason or "no_action"
    try:
        game.apply(move.action)
    except IllegalAction as error:
        return error.reason
    return None


def _turn(
    view: View, policy: Policy, move: Move, spec: MatchSpec, *, index: int, seed: int, invalid_reason: str | None
) -> Turn:
    completion = move.completion
    response_ids = completion.response_ids if completion else ()
    return Turn(
        index=index,
        player=view.player,
        role=view.role,
        seed=seed,
        policy=policy.ref,
        policy_digest=policy.digest,
        engine=policy.engine,
        temperature=policy.temperature,
        # A prompt that filled the window has no response to learn from.
        trainable=spec.trainable[view.player] and bool(response_ids),
        info_state=view.info_state,
        observation=view.observation if move.shown is None else move.shown,
        text=move.text,
        action=move.action,
        legal=invalid_reason is None,
        invalid_reason=invalid_reason,
        finish_reason=move.finish_reason,
        prompt_ids=completion.prompt_ids if completion else (),
        response_ids=response_ids,
        logprobs=completion.logprobs if completion else (),
    )


def _episode(
    spec: MatchSpec, turns: Sequence[Turn], returns: Returns, end: EndReason, forfeited_by: int | None = None
) -> Episode:
    return Episode(
        id=spec.id,
        game=spec.game,
        seed=spec.seed,
        policies=spec.policies,
        turns=tuple(turns),
        returns=returns,
        end_reason=end,
        forfeited_by=forfeited_by,
        params=spec.params,
    )


def _draw(items: Sequence[Any], weights: Sequence[float], number: float) -> Any:
    """Return the item at a number in [0, 1) of the weights laid end to end."""
    target = number * sum(weights)
    # Nothing of weight 0, also where rounding lets the target reach the very end.
    chosen = [i for i, w in enumerate(weights) if w > 0]
    for i in chosen:
        target -= weights[i]
        if target < 0:
            return items[i]
    return items[chosen[-1]]


def _seats(
    kind: RefKind, seat: int, rivals: Sequence[str], number: float
) -> tuple[tuple[str, str], tuple[bool, bool]]:
    learner = RefKind.SELF.value
    if kind is RefKind.SELF:
        return (learner, learner), (True, True)
    named = kind in (RefKind.POOL, RefKind.API)
    opponent = f"{kind}:{rivals[int(number * len(rivals))]}" if named else kind.value
    return ((learner, opponent), (True, False)) if seat == 0 else ((opponent, learner), (False, True))

