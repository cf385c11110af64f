"""Golden transcripts: whole matches as text, one file a game.

Record them with ``python tests/games/record_golden.py [GAME...]``. Moves are drawn from the legal (or sample) actions
by a generator keyed with the match seed, so that a transcript shows the game alone.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from spiral_lib import games

FOLDER = Path(__file__).parent.parent / "golden" / "transcripts"
SEEDS = (0, 1, 2**53 + 1)


def transcript(name: str, seed: int) -> list[dict[str, Any]]:
    """Return one record a turn, and a last one with the returns and both final observations."""
    game, rng = games.make(name, seed=seed), random.Random(seed)
    rows: list[dict[str, Any]] = []
    while (player := game.current_player) is not None:
        view = game.view(player)
        choices = view.legal_actions if view.legal_actions is not None else view.sample_actions
        action = rng.choice(choices)
        rows.append(
            {
                "seed": seed,
                "turn": len(rows),
                "player": player,
                "role": view.role,
                "observation": view.observation,
                "info_state": view.info_state,
                "actions": list(choices),
                "action": action,
            }
        )
        game.apply(action)
    final = [game.view(0).observation, game.view(1).observation]
    return [*rows, {"seed": seed, "turn": len(rows), "returns": list(game.returns()), "observations": final}]


def lines(name: str) -> list[str]:
    """Return the file's lines for a game: its rules, then the matches."""
    spec = games.spec(name)
    head = {"rules": spec.rules, "action_format": spec.action_format, "roles": list(spec.roles)}
    rows = [row for seed in SEEDS for row in transcript(name, seed)]
    return [json.dumps(row, ensure_ascii=True) for row in [head, *rows]]


def main(names: list[str]) -> None:
    """Write the files of the named games, or of all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or games.names():
        (FOLDER / f"{name}.jsonl").write_text("\n".join(lines(name)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
