"""The ``spiral`` command. One module of this package is one subcommand and defines ``COMMAND``, a click command.

Command modules import nothing heavy at the top: all of them are loaded to answer ``spiral --help``.
"""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from spiral_lib import plugins
from spiral_lib.errors import ColdStartError, DataQualityError, LearnerError, SpiralError

OK, FAILED, MISTAKE, INTERRUPTED = 0, 1, 2, 130
_STATES_OF_A_RUN = (ColdStartError, DataQualityError, LearnerError)


class Commands(click.Group):
    """Finds subcommands by module name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the subcommands' names, sorted."""
        return plugins.names(__name__)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand, or None where there is none of that name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = plugins.load(__name__, cmd_name, "COMMAND")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand that the arguments begin with. Raises UsageError naming the nearest one."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
            raise click.UsageError(f"unknown command '{args[0]}'; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="""\b
Exit codes:
  0    done
  1    a check failed: audit, games check, doctor, a quality gate, a halted run
  2    a mistake in the command, a setting or a path
  130  stopped with Ctrl-C; what was finished is kept

\b
Tab completion (bash; zsh and fish likewise):
  eval "$(_SPIRAL_COMPLETE=bash_source spiral)"

\b
First steps:
  spiral doctor
  spiral train --preset smoke
  spiral play kuhn_poker --vs optimal""",
)
@click.version_option(package_name="spiral-pipeline", prog_name="spiral")
def commands() -> None:
    """Teach a language model to reason by self-play on zero-sum games, and look at what came of it."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with one of the documented codes."""
    # As with ``python -m``: a game or reward of one's own in the current folder is found by its dotted path.
    if "" not in sys.path:
        sys.path.append("")
    sys.exit(run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; a mistake is one line on the standard error stream."""
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        result = commands.main(args=given, prog_name="spiral", standalone_mode=False)
        return result if isinstance(result, int) else OK
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "spiral"
        return _say(f"{_one_line(error.format_message()).rstrip('.')}; see {command} --help", MISTAKE)
    except click.ClickException as error:
        return _say(_one_line(error.format_message()), MISTAKE)
    except click.Abort:
        click.echo(f"stopped; nothing half-done is left. Again: {shlex.join(['spiral', *given])}", err=True)
        return INTERRUPTED
    except SpiralError as error:
        failed = isinstance(error, _STATES_OF_A_RUN) or type(error) is SpiralError
        return _say(_one_line(str(error)), FAILED if failed else MISTAKE)


def _say(message: str, code: int) -> int:
    click.echo(f"error: {message}", err=True)
    return code


def _one_line(text: str) -> str:
    return " ".join(text.split())
