"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spiral_lib import plugins

if TYPE_CHECKING:
    from spiral_lib.config import RunConfig

Decorated = Callable[..., Any]


def complete(names: Callable[[], Sequence[str]]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a tab completion over names that are looked up only when they are needed."""

    def matching(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        del ctx, param
        return [name for name in names() if name.startswith(incomplete)]

    return matching


def preset_names() -> list[str]:
    """Return the names of all presets."""
    from spiral_lib import presets

    return presets.names()


def game_names() -> list[str]:
    """Return the names of all games, without importing one."""
    return [name for name in plugins.names("spiral_lib.games") if name not in ("bank", "duel_dsl", "textarena")]


def configured(default_preset: str | None) -> Callable[[Decorated], Decorated]:
    """Return a decorator for ``--preset``, ``--config`` and ``--set``; without a default preset, the run's own."""
    otherwise = "" if default_preset else "  [default: that of the run the checkpoint lies in]"

    def decorate(command: Decorated) -> Decorated:
        for option in (
            click.option(
                "--set",
                "--overrides",
                "overrides",
                multiple=True,
                metavar="NAME=VALUE",
                help='Settings that replace both, such as --set "learner.lr=1e-6 rollout.shards=8"; may be repeated.',
            ),
            click.option(
                "--config",
                "config_file",
                type=click.Path(dir_okay=False, path_type=Path),
                help="YAML file with settings that replace the preset's.",
            ),
            click.option(
                "--preset",
                default=default_preset,
                show_default=bool(default_preset),
                shell_complete=complete(preset_names),
                metavar="NAME",
                help=f"Configuration to start from.{otherwise}",
            ),
        ):
            command = option(command)
        return command

    return decorate


def chosen_config(preset: str | None, config_file: Path | None, overrides: tuple[str, ...]) -> RunConfig | None:
    """Return the configuration that the options ask for, or None where they ask for none.

    Raises ConfigError for a file or settings without a preset, which would have nothing to change.
    """
    from spiral_lib import config as configs
    from spiral_lib.errors import ConfigError

    if preset is None:
        if config_file is not None or overrides:
            raise ConfigError("--config and --set change a preset; give --preset NAME as well")
        return None
    return configs.resolve(preset=preset, yaml_path=config_file, overrides=" ".join(overrides))


def json_option(command: Decorated) -> Decorated:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document for scripts.")(command)


def folder(exists: bool = True) -> click.Path:
    """Return the type of an option or argument that is a folder."""
    return click.Path(exists=exists, file_okay=False, path_type=Path)
