"""The process that runs TextArena: one JSON request a line in, one JSON position a line out.

Run as a script, apart from the package. A request names an environment, a seed and all actions so far; positions are
kept for the next request and played again from the start where they are not, so that nothing depends on what else this
process serves. TextArena draws from Python's global generator: each match gets its own state of it. Once the library
is loaded, the process may neither open connections nor start programs.
"""

from __future__ import annotations

import difflib
import json
import random
import resource
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

_MEMORY_BYTES = 4 << 30
_MAX_KEPT = 256
_FORBIDDEN = frozenset({"socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec", "os.fork"})


class _Refused(BaseException):
    """An environment called a move invalid; no ``except Exception`` inside an environment may swallow it."""


class _Unusable(Exception):
    """An environment cannot be played here; ``kind`` says whose fault that is."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Match:
    """One environment in play and its state of the global generator."""

    def __init__(self, env_id: str, seed: int) -> None:
        # Before the environment is made: some draw in their constructors.
        random.seed(seed)
        self._env = _make(env_id)
        try:
            self._env.reset(num_players=2, seed=seed)
        except (AssertionError, ValueError) as error:
            raise _Unusable("players", str(error) or type(error).__name__) from error
        self._random = random.getstate()
        self.shown = ["", ""]
        self.player: int | None = None
        self.rewards: list[float] | None = None
        self._within(self._look)

    def play(self, action: str) -> None:
        """Play a move. Raises _Refused where it is invalid; the match is then spoilt."""
        self._within(lambda: self._step(action))

    def _within(self, work: Callable[[], None]) -> None:
        random.setstate(self._random)
        work()
        self._random = random.getstate()

    def _step(self, action: str) -> None:
        self._env.state.set_invalid_move = _refuse
        done, _ = self._env.step(action=action)
        if done:
            self.player = None
            rewards = self._env.close()
            rewards = rewards[0] if isinstance(rewards, tuple) else rewards
            self.rewards = [float(rewards[0]), float(rewards[1])]
            return
        self._look()

    def _look(self) -> None:
        player, observation = self._env.get_observation()
        self.player = int(player)
        if self.player not in (0, 1):
            raise _Unusable("players", f"player {self.player} is to move")
        self.shown[self.player] = observation if isinstance(observation, str) else _joined(observation)


def _refuse(reason: str = "", *args: Any, **kwargs: Any) -> None:
    del args, kwargs
    raise _Refused(reason)


def _joined(observation: Any) -> str:
    """Return what an environment without a text wrapper shows: (sender, message, kind) triples as lines."""
    return "\n".join(str(message[1]) for message in observation)


def _make(env_id: str) -> Any:
    import textarena
    from textarena.envs.registration import ENV_REGISTRY

    if env_id not in ENV_REGISTRY:
        near = ", ".join(difflib.get_close_matches(env_id, list(ENV_REGISTRY), n=3))
        raise _Unusable("unknown", f"Did you mean {near}?" if near else "Names look like TicTacToe-v0")
    try:
        return textarena.make(env_id)
    except Exception as error:  # missing word lists or keys, a newer Python's syntax: all that an import can trip over
        message = " ".join(str(error).split())[:200]
        raise _Unusable("unavailable", f"{type(error).__name__}: {message}") from error


class _Matches:
    """Positions served lately, by environment, seed and the actions that led there."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int, tuple[str, ...]], _Match] = OrderedDict()

    def position(self, env_id: str, seed: int, actions: Sequence[str]) -> dict[str, Any]:
        """Return the position after the actions; an invalid last one is reported."""
        moves = tuple(actions)
        match, new = (self._kept.pop((env_id, seed, moves[:-1]), None) if moves else None), moves[-1:]
        if match is None:
            match, new = _Match(env_id, seed), moves
        try:
            for action in new:
                match.play(action)
        except _Refused as refusal:
            return {"illegal": str(refusal)[:300]}
        self._kept[env_id, seed, moves] = match
        while len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)
        return {"player": match.player, "shown": match.shown, "rewards": match.rewards}


def answer(matches: _Matches, request: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to a request: a position, an invalid move, or why the environment cannot be played."""
    try:
        return matches.position(request["env"], request["seed"], request["actions"])
    except _Unusable as error:
        return {"error": error.kind, "message": str(error)}
    except Exception as error:  # an environment's own fault, whatever it is, is a reply and not the end
        return {"error": "crashed", "message": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}


def _forbid(event: str, args: tuple[Any, ...]) -> None:
    del args
    if event in _FORBIDDEN:
        raise PermissionError(f"{event} is not allowed here")


def main() -> None:
    """Answer requests until the input ends."""
    import textarena  # noqa: F401 - loaded before the first request, whose deadline it must not eat

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = sys.stdout
    sys.stdout = sys.stderr
    sys.addaudithook(_forbid)
    matches = _Matches()
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(matches, json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
