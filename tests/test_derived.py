"""Exports of trajectories: what is in each set, exact regrets, and that ``datasets`` loads the files."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import tiny_checkpoints

from spiral_lib import derived, trajectories
from spiral_lib.errors import DataQualityError
from spiral_lib.games import kuhn_poker
from spiral_lib.types import EndReason, Episode, Turn

UNSOLVED = "simple_negotiation"


def turn(index: int, player: int, action: str, info_state: str = "s", **rest: Any) -> Turn:
    values: dict[str, Any] = {
        "role": f"player {player}",
        "seed": 0,
        "policy": "self",
        "policy_digest": "",
        "engine": "hf",
        "temperature": 1.0,
        "trainable": True,
        "observation": "",
        "text": action,
        "legal": True,
        "invalid_reason": None,
        "finish_reason": "stop",
        "prompt_ids": (1, player),
        "response_ids": tuple(ord(c) for c in action),
        "logprobs": (-1.0,) * len(action),
    } | rest
    return Turn(index=index, player=player, action=action, info_state=info_state, **values)


def match(id: str, returns: tuple[float, float], *turns: Turn, game: str = UNSOLVED, **rest: Any) -> Episode:
    values: dict[str, Any] = {"seed": 0, "policies": ("self", "self"), "end_reason": EndReason.FINISHED} | rest
    return Episode(id=id, game=game, returns=returns, turns=turns, **values)


def decode(ids: Any) -> str:
    return "".join(chr(i) for i in ids)


def test_the_sft_set_holds_the_legal_model_turns_of_winners() -> None:
    scripted = turn(2, 0, "[x]", response_ids=(), prompt_ids=())
    won = match("1", (1, -1), turn(0, 0, "[a]"), turn(1, 1, "[b]"), scripted, turn(3, 0, "[c]", legal=False))
    drawn = match("2", (0, 0), turn(0, 0, "[d]"))
    void = match("3", (1, -1), turn(0, 0, "[e]"), end_reason=EndReason.OPPONENT_ERROR)
    rows = list(derived.sft([won, drawn, void], decode))
    assert [(r["episode"], r["turn"], r["response"], r["return"]) for r in rows] == [("1", 0, "[a]", 1)]
    assert rows[0]["prompt_ids"] == (1, 0)


def test_preferences_pair_the_best_move_with_every_worse_one_of_the_same_state() -> None:
    played = [
        match("1", (1, -1), turn(0, 0, "[a]")),
        match("2", (-1, 1), turn(0, 0, "[a]")),
        match("3", (-1, 1), turn(0, 0, "[b]")),
        match("4", (-1, 1), turn(0, 0, "junk", legal=False)),
        match("5", (1, -1), turn(0, 0, "[c]", prompt_ids=(9,))),
    ]
    rows = list(derived.preferences(played, decode))
    found = [(r["chosen"], r["rejected"], r["basis"], r["margin"]) for r in rows]
    assert found == [("[a]", "[b]", "return", 1.0), ("[a]", "junk", "legality", 1.0)]


def test_moves_of_equal_value_and_states_seen_once_make_no_pair() -> None:
    equal = [match("1", (1, -1), turn(0, 0, "[a]")), match("2", (1, -1), turn(0, 0, "[b]"))]
    assert list(derived.preferences(equal, decode)) == []


def test_where_the_game_is_solved_luck_does_not_decide_a_preference() -> None:
    # X has two in a row at 0 and 1; taking 2 wins, but the match that took 8 was won later.
    board = "xx.oo...."
    played = [
        match("1", (1, -1), turn(4, 0, "[8]", board), game="tic_tac_toe"),
        match("2", (-1, 1), turn(4, 0, "[2]", board), game="tic_tac_toe"),
    ]
    (row,) = derived.preferences(played, decode)
    assert (row["chosen_action"], row["rejected_action"], row["basis"]) == ("[2]", "[8]", "regret")
    # Everything but a win or a block loses to 5: from a win to a loss is the whole range.
    assert row["margin"] == 2.0


@pytest.mark.parametrize(
    ("board", "action", "expected"),
    [("." * 9, "[0]", 0.0), ("xx.oo....", "[2]", 0.0), ("xx.oo....", "[5]", 1.0), ("xx.oo....", "[8]", 2.0)],
)
def test_regret_in_tic_tac_toe_is_the_loss_of_minimax_value(board: str, action: str, expected: float) -> None:
    episode = match("1", (0, 0), turn(0, 0, action, board), game="tic_tac_toe")
    assert derived.regret(episode, episode.turns[0]) == expected


@pytest.mark.parametrize(
    ("state", "action", "expected"),
    [
        # The jack against a bet: calling loses two chips instead of one, out of two.
        ("0b", "[call]", 0.5),
        ("0b", "[fold]", 0.0),
        # The king against a bet: folding loses one chip where calling wins two.
        ("2b", "[fold]", 1.5),
        ("2b", "[call]", 0.0),
        # In equilibrium the jack is indifferent between bluffing and checking.
        ("0", "[bet]", 0.0),
        ("0", "[check]", 0.0),
        ("1b", "[call]", 0.0),
        ("1b", "[fold]", 0.0),
    ],
)
def test_regret_in_kuhn_poker_is_that_of_the_equilibrium(state: str, action: str, expected: float) -> None:
    episode = match("1", (0, 0), turn(0, 0, action, state), game="kuhn_poker")
    assert derived.regret(episode, episode.turns[0]) == pytest.approx(expected, abs=1e-12)


def test_every_action_of_every_kuhn_state_has_a_regret_and_one_has_none() -> None:
    table = {
        state: [derived.regret(match("1", (0, 0), m, game="kuhn_poker"), m) for m in moves]
        for state, view in kuhn_poker.views().items()
        for moves in [[turn(0, 0, action, state) for action in view.legal_actions or ()]]
    }
    assert len(table) == 12
    assert all(len(row) == 2 and min(row) == 0.0 for row in table.values())


def test_every_solved_game_labels_its_moves() -> None:
    state = "piles=3,4,5 mover=0 last=wins"
    moves = [turn(0, 0, move, state) for move in ("[1 2]", "[1 1]")]
    assert [derived.regret(match("1", (1, -1), m, game="nim"), m) for m in moves] == [0.0, 2.0]


def test_process_labels_are_null_where_no_exact_value_is_known() -> None:
    played = [
        match("1", (1, -1), turn(0, 0, "[a]"), turn(1, 1, "junk", legal=False)),
        match("2", (1, -1), turn(0, 0, "[bet]", "0"), game="kuhn_poker", params=(("reward", "winner"),)),
    ]
    rows = list(derived.process(played, decode))
    found = [(r["legal"], r["return"], r["regret"]) for r in rows]
    assert found == [(True, 1, None), (False, -1, None), (True, 1, None)]


def test_the_files_have_their_schemas_and_datasets_loads_them(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    board = "xx.oo...."
    played = [
        match("1", (1, -1), turn(4, 0, "[8]", board), game="tic_tac_toe"),
        match("2", (-1, 1), turn(4, 0, "[2]", board), game="tic_tac_toe"),
    ]
    rows = {"sft": derived.sft, "preferences": derived.preferences, "process": derived.process}
    schemas = {"sft": derived.SFT, "preferences": derived.PREFERENCES, "process": derived.PROCESS}
    for name, make in rows.items():
        path = derived._write(tmp_path / f"{name}.parquet", schemas[name], make(played, decode))
        assert pq.read_schema(path).names == schemas[name].names
        loaded = datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))
        assert loaded.column_names == schemas[name].names
        assert len(loaded) == {"sft": 1, "preferences": 1, "process": 2}[name]


def test_an_experts_turns_are_not_exported() -> None:
    mine, expert = turn(0, 0, "[bet]"), turn(1, 1, "[call]", policy="optimal", engine="scripted")
    rows = list(derived.process([match("1", (-1, 1), mine, expert)], lambda ids: ""))
    assert [row["turn"] for row in rows] == [0]


def test_a_run_that_went_on_from_another_is_exported_with_the_first_tokenizer_it_has(tmp_path: Path) -> None:
    run = tmp_path / "run"
    tiny_checkpoints.tokenizer().save_pretrained(run / "checkpoints" / "0001")
    shard = run / "trajectories" / "iteration=0001" / "shard-00.parquet"
    common = {"run": "r", "iteration": 1, "step": 1, "shard": 0, "config_hash": ""}
    move = turn(0, 0, "[bet]", response_ids=(5,), logprobs=(-1.0,))
    trajectories.write_shard(shard, [match("1", (1, -1), move)], **common)
    assert pq.read_table(derived.export(run, tmp_path / "out")["sft"]).num_rows == 1


def test_a_folder_without_trajectories_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataQualityError, match="no trajectories"):
        derived.export(tmp_path, tmp_path / "out")


def test_a_run_folder_is_exported_as_three_files_with_readable_prompts(tmp_path: Path) -> None:
    tokenizer = tiny_checkpoints.tokenizer()
    tokenizer.save_pretrained(tmp_path / "run" / "checkpoints" / "0000")
    prompt, reply = (tuple(tokenizer(text)["input_ids"]) for text in ("Your card is the king.", "king"))
    move = turn(0, 0, "[bet]", prompt_ids=prompt, response_ids=reply, logprobs=(-1.0,) * len(reply))
    shard = tmp_path / "run" / "trajectories" / "iteration=0001" / "shard-00.parquet"
    common = {"run": "r", "iteration": 1, "step": 1, "shard": 0, "config_hash": ""}
    trajectories.write_shard(shard, [match("1", (1, -1), move)], **common)
    files = derived.export(tmp_path / "run", tmp_path / "out")
    assert {n: p.name for n, p in files.items()} == {n: f"{n}.parquet" for n in ("sft", "preferences", "process")}
    (row,) = pq.read_table(files["sft"]).to_pylist()
    assert (row["prompt"], row["response"], row["prompt_ids"]) == ("Your card is the king.", "king", list(prompt))
    assert pq.read_table(files["process"]).num_rows == 1
    assert pq.read_table(files["preferences"]).num_rows == 0
