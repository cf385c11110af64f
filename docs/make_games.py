"""Write docs/games.md from the game modules: python docs/make_games.py. A test keeps the page in step with them."""

from __future__ import annotations

import inspect
import sys
import textwrap
from pathlib import Path
from typing import Any

from spiral_lib import games
from spiral_lib.policies import optimal

PAGE = Path(__file__).with_name("games.md")
INTRO = """# Games

Made by `python docs/make_games.py` from the modules in `spiral_lib/games`; change those, not this page.

`games.make(name, seed=..., **parameters)` gives one match. Equal names, seeds and parameters give equal matches;
returns are in [-1, 1] and sum to exactly 0; an illegal action raises and changes nothing. A forfeited match (an illegal
or unreadable move) counts -1/+1, one that reaches the turn limit 0/0. "Optimal" play is exact where it says *solved*,
otherwise a search or rule that plays well; *none* means that only random play is scripted.

In a run, `games: [{name: kuhn_poker, weight: 2, params: {hands: 2}}]` sets games, shares and parameters. The three
duels that pose problems take `params: {bank: carried}`: every match of an iteration is then played with the problems of
all earlier iterations known, at half the stake, the same for all shards. What happens inside the duels is recorded each
iteration as `game/<game>/<signal>`.

There is no duel over real Python programs: running a model's code needs a container without network and with hard
limits, while `code_duel` asks the same questions in a language with an exact judge and nothing to break out of.
"""
TEXTARENA = """## textarena:&lt;EnvId&gt;

{doc}

Example: `games.make("textarena:KuhnPoker-v0", seed=1)`. Needs `pip install 'spiral-pipeline[textarena]'` (release
{version}, any other is refused). The prefix `textarena:` always means this adapter. Parameters: `max_turns=200`.
Environments for one player or for more than two are refused, and so are those that cannot be loaded without network or
need a newer Python. A move that the environment calls invalid raises at once; the environment's own second try is not
used. The child process has no network, no other programs and none of this process's environment variables.
"""
SPEED = """## Speed

`make bench` compares steps per second of CPU time, views with all their text included, with TextArena's and OpenSpiel's
same game, interleaved in one run. Against TextArena both sides replay recorded matches with the same parameters. On a
busy two-core machine a step of ours was cheaper than TextArena's by a factor of 10.4 in tic_tac_toe, 7.6 in
connect_four, 6.4 in pig_dice, 5.7 in truth_and_deception, 5.5 in nim, 4.3 in simple_negotiation, 4.1 in kuhn_poker, 3.1
in liars_dice and 3.05 in snake: all above the 3 aimed at, the last two closely (their ratios spread by 0.5 and 0.1 from
round to round). OpenSpiel, which is compiled, made 1.0 times our steps in connect_four, kuhn_poker, liars_dice and
tic_tac_toe, 1.1 in nim, 1.4 in pig_dice and 2.3 in leduc_poker.

The board, card and dice games and the two with talk make 95,000 to 440,000 steps a second, secret_duel 30,000. In
random play equation_duel makes 29,000 to 32,000 (medians of several runs), counterexample_duel 25,000 to 29,000 and
code_duel 18,000 to 21,000, which is just about the 20,000 aimed at; with every problem new on a known template 24,000
to 25,000, 23,000 to 25,000 and 22,000 to 24,000, once 16,000 when the machine was busiest. In free words whose form was
never met they make 12,000, 13,500 and 8,000 to 10,000, fewer than aimed at. A match of a duel lasts two or three steps,
so its start weighs: a keyed generator costs 7 microseconds, one is needed for the topic and one for every set of moves
made for scripted play (only where somebody reads them); code_duel's start also works out a specification that is seldom
the same. A move that poses a problem costs 30 to 50 microseconds on a known template and 100 in free words. A model's
reply takes a thousand times as long.
"""


def page() -> str:
    """Return the whole page."""
    from spiral_lib.games import _textarena_process, textarena

    found = games.names()
    lines = ["| game | roles | turns | private information | optimal play | OpenSpiel |", "|---|---|---|---|---|---|"]
    lines += [_row(name) for name in found]
    adapter = TEXTARENA.format(doc=inspect.cleandoc(textarena.__doc__ or ""), version=_textarena_process.VERSION)
    return "\n".join([INTRO, *lines, "", *(_section(name) for name in found), adapter, SPEED])


def _row(name: str) -> str:
    spec = games.spec(name)
    private = "yes" if spec.has_private_information else "no"
    openspiel = f"`{spec.openspiel}`" if spec.openspiel else "-"
    link = f"[{name}](#{name})"
    return f"| {link} | {', '.join(spec.roles)} | {spec.max_turns} | {private} | {_solver(name)} | {openspiel} |"


def _section(name: str) -> str:
    """Return what a module says about its game: purpose and deviations, rules, actions, parameters, returns."""
    spec, game = games.spec(name), games.kind(name)
    module = sys.modules[game.__module__]
    parts = [
        f"## {name}",
        inspect.cleandoc(module.__doc__ or ""),
        f"**Roles**: {', '.join(spec.roles)}. **Turns**: at most {spec.max_turns}.",
        "**Rules and actions as shown to players**:",
        f"```text\n{_wrapped(spec.rules)}\n\n{_wrapped(spec.action_format)}\n```",
        f"**Parameters**: {_parameters(game)}",
        f"**Returns**: {inspect.cleandoc(game.returns.__doc__ or '')}",
        f"**Optimal play**: {_solver(name)}. **OpenSpiel**: {f'`{spec.openspiel}`' if spec.openspiel else 'none'}",
    ]
    return "\n\n".join(parts) + "\n"


def _wrapped(text: str) -> str:
    return "\n".join(line for paragraph in text.splitlines() for line in textwrap.wrap(paragraph, 110))


def _parameters(game: Any) -> str:
    found = [p for p in inspect.signature(game).parameters.values() if p.name != "seed"]
    listed = ", ".join(f"`{p.name}={p.default!r}`" for p in found) or "none"
    return f"{listed}. {inspect.cleandoc(game.__doc__ or '')}"


def _solver(name: str) -> str:
    if name in optimal.SOLVED:
        return "solved"
    return "strong" if name in optimal.STRATEGIES else "none"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
