"""TextArena's two-player environments as games, for evaluation and play: ``textarena:TicTacToe-v0``.

An opt-in adapter, not for training: these environments read moves out of free text, some show an opponent's words as
they are, and their rewards are only checked to be zero-sum when a match ends. They run in a process of their own, so
that their global random numbers and imports touch nothing here. What they show is data: it is cleaned of invisible
characters and control tokens, and no legal action is read from it.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import replace
from typing import Any, Final

from spiral_lib.errors import ConfigError, EngineError, IllegalAction
from spiral_lib.games import _textarena_process, whole
from spiral_lib.types import GameSpec, Returns, View, zero_sum
from spiral_lib.untrusted import SPECIAL_TOKENS

_MAX_ACTION: Final = 1000
_MAX_SHOWN: Final = 8000
_HEAD: Final = 3000
_MAX_SAMPLES: Final = 40
_BRACKETED: Final = re.compile(r"\[[ -Z\\^-~]{1,40}\]")
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_BRACKET_TOKENS: Final = tuple(token for token in SPECIAL_TOKENS if "<" not in token)
_WHY: Final = {
    "unknown": "is no environment of TextArena {version}. {message}",
    "players": "is not a game of two players: {message}",
    "unavailable": "cannot be loaded here: {message}. Choose another environment",
    "crashed": "failed: {message}. Leave this environment out",
}

SPEC: Final = GameSpec(
    name="textarena",
    title="TextArena",
    roles=("player 0", "player 1"),
    max_turns=200,
    rules="A game of two players. Its rules, and what has happened so far, are part of the state.",
    action_format="[your move] in the form that the rules ask for",
    has_private_information=True,
)


def spec_of(env: str, *, max_turns: int = SPEC.max_turns) -> GameSpec:
    """Return what is constant about an environment."""
    return replace(SPEC, name=f"textarena:{env}", title=f"TextArena {env}", max_turns=max_turns)


class GAME:
    """One match of the environment ``env``, such as ``TicTacToe-v0``, over at most ``max_turns`` turns.

    Raises EngineError where TextArena is not installed, of another release or fails, ConfigError where the environment
    does not exist or is not for two players.
    """

    def __init__(self, *, seed: int, env: str = "", max_turns: int = SPEC.max_turns) -> None:
        if not env:
            raise ConfigError("textarena needs an environment, for example textarena:TicTacToe-v0")
        _textarena_process.check_version()
        whole(f"max_turns of textarena:{env}", max_turns, low=1, high=10_000)
        self.spec = spec_of(env, max_turns=max_turns)
        self._env = env
        self._seed = seed
        self._actions: tuple[str, ...] = ()
        self._position = self._ask(())

    @property
    def current_player(self) -> int | None:
        """Seat to move, or None when the match is over."""
        player: int | None = self._position["player"]
        return player

    def view(self, player: int) -> View:
        """Return what the environment last showed to a player; actions are free text."""
        shown = clean(self._position["shown"][player])
        moving = player == self.current_player
        key = hashlib.blake2b(shown.encode(), digest_size=8).hexdigest()
        return View(
            game=self.spec.name,
            role=self.spec.roles[player],
            player=player,
            rules=self.spec.rules,
            action_format=self.spec.action_format,
            observation=shown,
            legal_actions=None if moving else (),
            info_state=f"{self._env} {player} {key}",
            sample_actions=_samples(shown) if moving else (),
        )

    def apply(self, action: str) -> None:
        """Play a move. Raises IllegalAction where the environment calls it invalid, and changes nothing then."""
        if self.current_player is None:
            raise IllegalAction("the match is over", reason="match_over")
        if not (action.isascii() and action.isprintable()):
            raise IllegalAction("only printable ASCII characters are allowed", reason="non_ascii")
        if not action.strip("[] ") or len(action) > _MAX_ACTION:
            raise IllegalAction(f"a move has 1 to {_MAX_ACTION} characters", reason="bad_format")
        actions = (*self._actions, action)
        position = self._ask(actions)
        if "illegal" in position:
            raise IllegalAction(clean(position["illegal"])[:200] or "the move is invalid")
        self._actions, self._position = actions, position

    def returns(self) -> Returns:
        """Return the rewards, cut to [-1, 1]. Raises EngineError where they do not cancel then."""
        if self.current_player is not None:
            raise ValueError("the match is not over")
        rewards = [max(-1.0, min(1.0, reward)) for reward in self._position["rewards"]]
        if rewards[0] + rewards[1] != 0.0:
            raise EngineError(
                f"{self.spec.name} ended with rewards {self._position['rewards']}, which do not cancel; "
                "only zero-sum environments can be played"
            )
        return zero_sum(rewards[0])

    def _ask(self, actions: tuple[str, ...]) -> dict[str, Any]:
        reply = _textarena_process.position(self._env, self._seed, actions)
        if "error" not in reply:
            return reply
        kind = str(reply["error"])
        why = _WHY[kind].format(message=reply["message"], version=_textarena_process.VERSION)
        error = ConfigError if kind in ("unknown", "players") else EngineError
        raise error(f"'{self._env}' {why}")


def clean(text: str) -> str:
    """Return an environment's text without invisible characters or control tokens, at most 8000 characters.

    Line ends and square brackets stay, since boards and moves need them; a blank breaks every control token. A long
    text loses its middle, where the oldest moves are.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    lines = text.replace("\t", " ").splitlines()
    text = "\n".join("".join(c for c in line if unicodedata.category(c) not in _HIDDEN).rstrip() for line in lines)
    text = text.replace("<", "< ").strip("\n")
    for token in _BRACKET_TOKENS:
        text = text.replace(token, f"{token[0]} {token[1:]}")
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[:_HEAD]}\n... (cut) ...\n{text[_HEAD - _MAX_SHOWN :]}"


def _samples(shown: str) -> tuple[str, ...]:
    """Return moves for random play to try: the latest bracketed words that were shown, and digits."""
    words = list(dict.fromkeys(reversed(_BRACKETED.findall(shown))))[: _MAX_SAMPLES - 10]
    return tuple(dict.fromkeys((*words, *(f"[{digit}]" for digit in range(10)))))
