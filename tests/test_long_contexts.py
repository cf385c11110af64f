"""Matches that outgrow the window: they end and are counted, or lose their oldest lines where that is configured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tiny_checkpoints as tiny

from spiral_lib import policies, rollout, trajectories
from spiral_lib.config import PromptConfig, config_hash, resolve
from spiral_lib.engines.scripted import ScriptedEngine
from spiral_lib.errors import ConfigError, IllegalAction
from spiral_lib.learner import batch
from spiral_lib.prompts import Renderer, is_trimmed, quote_untrusted
from spiral_lib.rae import RoleBaselines
from spiral_lib.types import EndReason, Episode, GameSpec, MatchSpec, PolicyRef, Returns, View

WINDOW, REPLY = 200, 30
COMPACT = PromptConfig(style="compact")


class Talk:
    """A game whose observation gains a line with every turn; its first line is the player's secret."""

    spec = GameSpec(name="talk", title="", roles=("a", "b"), max_turns=50, rules="", action_format="",
                    has_private_information=True)  # fmt: skip

    def __init__(self, *, seed: int, length: int = 14) -> None:
        self._said: list[str] = []
        self._length = length

    @property
    def current_player(self) -> int | None:
        return len(self._said) % 2 if len(self._said) < self._length else None

    def view(self, player: int) -> View:
        lines = ["Your secret: 7.", *(f"Line {n}: {quote_untrusted(text)}" for n, text in enumerate(self._said))]
        return View(game="talk", role="ab"[player], player=player, rules="", action_format="",
                    observation="\n".join(lines), legal_actions=("[check]", "[bet]"), info_state="")  # fmt: skip

    def apply(self, action: str) -> None:
        if action not in ("[check]", "[bet]"):
            raise IllegalAction(action)
        self._said.append(f"I say {action[1:-1]}.")

    def returns(self) -> Returns:
        return (1.0, -1.0)


GAME = Talk


def renderer(keep_lines: int) -> Renderer:
    return Renderer(tiny.tokenizer(), replace(COMPACT, keep_lines=keep_lines))


def play(keep_lines: int, *, lengths: tuple[int, ...] = (14, 2, 3)) -> list[Episode]:
    made = renderer(keep_lines)
    # The window of a real engine: a prompt with no room for a reply gets none.
    engine = ScriptedEngine(
        lambda ids, seed: made.encode_fragment("\\boxed{[check]}"), window=WINDOW, stop_id=made.stop_ids[0],
        decode=made.decode,
    )  # fmt: skip
    own = policies.make(PolicyRef.parse("self"), engine=engine, renderer=made, max_new_tokens=REPLY)
    specs = [
        MatchSpec(id=str(n), game="test_long_contexts:GAME", seed=n, policies=("self", "self"),
                  trainable=(True, True), params=(("length", length),))
        for n, length in enumerate(lengths)
    ]  # fmt: skip
    return sorted(rollout.play_matches(specs, {"self": own}, concurrency=2), key=lambda e: e.id)


def test_a_match_that_outgrows_the_window_is_truncated_and_others_finish() -> None:
    long, *others = play(0)
    assert long.end_reason is EndReason.TRUNCATED and 2 < len(long.turns) < 14
    assert long.turns[-1].finish_reason == "context" and not long.turns[-1].trainable
    assert {e.end_reason for e in others} == {EndReason.FINISHED}
    assert not any(is_trimmed(t.observation) for e in (long, *others) for t in e.turns)
    for turn in (t for e in (long, *others) for t in e.turns if t.response_ids):
        assert len(turn.prompt_ids) + len(turn.response_ids) <= WINDOW


def test_left_out_lines_let_it_finish_with_room_for_every_reply() -> None:
    [long, *others] = play(1)
    assert {e.end_reason for e in (long, *others)} == {EndReason.FINISHED} and len(long.turns) == 14
    assert all(len(t.prompt_ids) <= WINDOW - REPLY for t in long.turns)
    trimmed = [t for t in long.turns if is_trimmed(t.observation)]
    assert trimmed and long.turns[-1] in trimmed and long.turns[0] not in trimmed
    assert others == play(0)[1:], "what fits is not changed"


def test_the_record_holds_what_was_shown() -> None:
    last = play(1)[0].turns[-1]
    first, marker, *rest = last.observation.split("\n")
    assert first == "Your secret: 7."
    assert marker == f"({13 - len(rest)} earlier lines left out)"
    assert rest == [f'Line {n}: "I say check."' for n in range(13 - len(rest), 13)]
    assert renderer(1).decode(last.prompt_ids).count(last.observation) == 1


def test_no_more_lines_are_left_out_than_necessary() -> None:
    made, turn = renderer(1), play(1)[0].turns[-1]
    first, _, *rest = turn.observation.split("\n")
    one_more = [first, f"({12 - len(rest)} earlier lines left out)", f'Line {12 - len(rest)}: "I say check."', *rest]
    view = replace(Talk(seed=0).view(1), observation="\n".join(one_more))
    assert len(made.encode(view)[0]) > WINDOW - REPLY


def test_a_view_that_cannot_be_made_to_fit_stays_whole_and_is_truncated() -> None:
    made = renderer(1)
    view = replace(Talk(seed=0).view(0), observation="secret\nold\n" + "new " * 300)
    assert made.fitted(view, WINDOW - REPLY) is view
    short = Talk(seed=0).view(0)
    assert made.fitted(short, WINDOW - REPLY) is short
    assert renderer(0).fitted(view, WINDOW - REPLY) is view


def test_trimmed_turns_are_counted_in_the_metrics_of_the_step(tmp_path: Path) -> None:
    config = resolve(preset="smoke")
    where = {"run": "r", "iteration": 1, "step": 1, "shard": 0, "config_hash": "0" * 16}
    counts = []
    for keep_lines in (0, 1):
        path = trajectories.write_shard(tmp_path / f"{keep_lines}.parquet", play(keep_lines), **where)
        episodes = list(trajectories.read_episodes([path]))
        found = batch.build(episodes, RoleBaselines(0.95), config).metrics
        counts.append(found.get("rollout/trimmed_turns"))
    trimmed = sum(is_trimmed(t.observation) for e in play(1) for t in e.turns)
    assert counts == [None, trimmed] and trimmed > 3


def test_an_opponent_cannot_write_the_line_that_marks_a_cut() -> None:
    assert not is_trimmed(f"It said: {quote_untrusted('x' + chr(10) + '(3 earlier lines left out)')}")
    assert is_trimmed("first\n(3 earlier lines left out)\nlast")


def test_the_setting_is_off_by_default_and_part_of_the_configurations_hash() -> None:
    plain = resolve(preset="tiny")
    assert plain.prompt.keep_lines == 0
    assert config_hash(resolve(preset="tiny", overrides="prompt.keep_lines=2")) != config_hash(plain)
    with pytest.raises(ConfigError, match=r"prompt\.keep_lines"):
        resolve(preset="tiny", overrides="prompt.keep_lines=-1")
