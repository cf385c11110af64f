"""``spiral games``: list them, show one, and check one before it is trained on."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from spiral_lib.cli._options import complete, game_names, json_option
from spiral_lib.cli._screen import print_json, print_table, progress

if TYPE_CHECKING:
    from spiral_lib.game_check import GameCheck


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  spiral games
  spiral games show kuhn_poker
  spiral games check my_package.my_game:GAME""",
)
@json_option
@click.pass_context
def COMMAND(ctx: click.Context, as_json: bool) -> None:
    """List the games; 'show' explains one, 'check' tests one with hundreds of matches."""
    if ctx.invoked_subcommand is not None:
        return
    from spiral_lib import games
    from spiral_lib.policies import optimal

    specs = [games.spec(name) for name in games.names()]
    if as_json:
        print_json([_described(name, None) for name in games.names()])
        return
    rows = [
        (
            s.name,
            s.title,
            " / ".join(s.roles),
            "hidden" if s.has_private_information else "open",
            "solved" if s.name in optimal.SOLVED else "strong" if s.name in optimal.STRATEGIES else "-",
        )
        for s in specs
    ]
    print_table(("name", "title", "roles", "information", "optimal"), rows)


@COMMAND.command(epilog="\b\nExample:\n  spiral games show nim --set piles='1 3 5'")
@click.argument("name", shell_complete=complete(game_names))
@click.option("--set", "params", multiple=True, metavar="NAME=VALUE", help="A parameter of the game.")
@json_option
def show(name: str, params: tuple[str, ...], as_json: bool) -> None:
    """Print NAME's rules, roles, parameters and first position."""
    from spiral_lib import games

    given = parse_params(params)
    described = _described(name, given)
    view = games.make(name, seed=0, **given).view(0)
    if as_json:
        print_json({**described, "first_observation": view.observation, "legal_actions": view.legal_actions})
        return
    click.echo(f"{described['title']} ({name})\n\n{described['rules']}\n")
    for label in ("roles", "action_format", "max_turns", "has_private_information", "openspiel", "parameters"):
        value = described[label]
        shown = ", ".join(map(str, value)) if isinstance(value, tuple | list) else value
        click.echo(f"{label.replace('_', ' ')}: {'no' if value is False else shown or 'none'}")
    click.echo(f"\nFirst position of {view.role}:\n{view.observation}")
    choices = view.legal_actions if view.legal_actions is not None else view.sample_actions[:6]
    click.echo(f"{'legal' if view.legal_actions is not None else 'for example'}: {' '.join(choices)}")


@COMMAND.command(
    epilog="""\b
Examples:
  spiral games check kuhn_poker
  spiral games check examples.add_a_game:GAME --matches 500 --json

\b
Exit code 1 when a hard rule is broken: do not train on such a game."""
)
@click.argument("name", shell_complete=complete(game_names))
@click.option(
    "--matches", default=200, show_default=True, type=click.IntRange(1), help="Matches of each kind of play."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--set", "params", multiple=True, metavar="NAME=VALUE", help="A parameter of the game.")
@json_option
def check(name: str, matches: int, seed: int, params: tuple[str, ...], as_json: bool) -> int:
    """Play hundreds of random and hostile matches of NAME and report what they show."""
    from spiral_lib import game_check

    given = parse_params(params)
    with progress(f"checking {name}", None, unit="matches") as bar:
        found = game_check.check(name, matches=matches, seed=seed, params=given, on_progress=bar)
    if as_json:
        print_json({"ok": found.ok, **dataclasses.asdict(found)})
    else:
        _print_check(found)
    return 0 if found.ok else 1


def parse_params(params: tuple[str, ...]) -> dict[str, Any]:
    """Return a game's parameters from ``name=value`` texts, values read as YAML."""
    import yaml

    from spiral_lib.errors import ConfigError

    given = {}
    for text in params:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"parameter '{text}' is not of the form name=value, for example hands=1")
        given[name] = yaml.safe_load(value)
    return given


def _described(name: str, params: dict[str, Any] | None) -> dict[str, Any]:
    import inspect

    from spiral_lib import games

    spec = games.make(name, seed=0, **params).spec if params else games.spec(name)
    made = type(games.make(name, seed=0, **(params or {})))
    signature = inspect.signature(made).parameters.values()
    parameters = [f"{p.name}={p.default!r}" for p in signature if p.name != "seed"]
    return {**dataclasses.asdict(spec), "parameters": parameters}


def _print_check(found: GameCheck) -> None:
    rows = [
        ("ok" if r.broken == 0 else "BROKEN", r.name, f"{r.broken} of {r.looked_at}", "; ".join(r.examples))
        for r in found.rules
    ]
    print_table(("", "hard rule", "broken", "first breaches"), rows, title=f"{found.game}: hard rules")
    figures = [
        (
            f.play,
            str(f.matches),
            f"{f.entropy:.2f} bits",
            f"{f.first_seat:+.2f} [{f.first_seat_low:+.2f}, {f.first_seat_high:+.2f}]",
            f"{100 * f.draws:.0f} %",
            f"{f.mean_turns:.1f} (at most {f.max_turns})",
            f"{100 * f.invalid:.1f} %",
            f"{100 * f.void:.1f} %",
        )
        for f in found.figures
    ]
    headings = ("play", "matches", "entropy", "first seat", "draws", "turns", "invalid", "void")
    print_table(headings, figures, title="What play shows (first seat: mean return, 95 % interval)")
    click.echo(f"judge: {found.judged.agreed} of {found.judged.cases} known cases as stated")
    click.echo(f"slowest action: {1000 * found.slowest_apply_s:.1f} ms")
    for warning in found.warnings:
        click.echo(f"look at this: {warning}")
    broken = sum(rule.broken > 0 for rule in found.rules)
    verdict = "may be trained on" if found.ok else f"must not be trained on: {broken} hard rules are broken"
    click.echo(f"{found.game} {verdict}")
