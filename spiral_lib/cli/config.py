"""``spiral config``: the resolved configuration, and the reference of all settings."""

from __future__ import annotations

from pathlib import Path

import click

from spiral_lib import config as configs
from spiral_lib.cli._options import configured, json_option
from spiral_lib.cli._screen import print_json, print_table


@click.command(
    epilog="""\b
Examples:
  spiral config --preset tiny > my.yaml
  spiral config --preset tiny --set "learner.lr=1e-4 games=[kuhn_poker,tic_tac_toe]"
  spiral config --preset smollm2 --describe"""
)
@configured("tiny")
@click.option("--describe", is_flag=True, help="Explain every setting, with its value here and its default.")
@json_option
def COMMAND(
    preset: str, config_file: Path | None, overrides: tuple[str, ...], describe: bool, as_json: bool
) -> None:
    """Print the resolved configuration: the preset, changed by a YAML file, changed by single settings."""
    from spiral_lib import preflight

    resolved = configs.resolve(preset=preset, yaml_path=config_file, overrides=" ".join(overrides))
    preflight.check_names(resolved)
    if describe:
        _describe(resolved, as_json)
    elif as_json:
        print_json(configs.to_dict(resolved))
    else:
        click.echo(configs.dump_yaml(resolved), nl=False)


def _describe(resolved: configs.RunConfig, as_json: bool) -> None:
    here = configs.values(resolved)
    rows = [(name, here[name], default, doc) for name, default, doc in configs.describe()]
    if as_json:
        print_json([dict(zip(("name", "value", "default", "doc"), row, strict=True)) for row in rows])
        return
    shown = [(name, value, "" if default == value else default, doc) for name, value, default, doc in rows]
    title = f"Preset {resolved.preset}; defaults where they differ"
    print_table(("setting", "value", "default", "meaning"), shown, title=title)
