"""``spiral registry``: checkpoints that teams share."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spiral_lib.cli._options import Decorated, json_option
from spiral_lib.cli._screen import print_json, print_table, progress

if TYPE_CHECKING:
    from spiral_lib.registry import Reference, Registry, Version


def rooted(command: Decorated) -> Decorated:
    """Add ``--registry``."""
    return click.option(
        "--registry",
        "root",
        default="registry",
        show_default=True,
        metavar="URL",
        help="Folder or URL of the registry, such as s3://bucket/registry.",
    )(command)


@click.group(
    epilog="""\b
Examples:
  spiral registry publish runs/tiny-1a2b3c4d kuhn --alias candidate
  spiral registry list
  spiral registry show kuhn@candidate
  spiral registry diff kuhn@champion kuhn@candidate
  spiral registry promote kuhn@candidate champion
  spiral registry fetch kuhn@champion my-checkpoint
  spiral train --set "model.source=registry:kuhn@champion cold_start.steps=0"

\b
A checkpoint is named NAME, NAME@ALIAS or NAME@ID (8 digits or more of the id); NAME alone is NAME@champion."""
)
def COMMAND() -> None:
    """Publish, compare, promote and fetch checkpoints in a registry that a team shares."""


@COMMAND.command()
@click.argument("source", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("name")
@click.option("--iteration", type=int, help="Iteration of the run to publish.  [default: its champion]")
@click.option("--alias", help="Point this alias at the version as well.")
@rooted
@json_option
def publish(source: Path, name: str, iteration: int | None, alias: str | None, root: str, as_json: bool) -> None:
    """Publish a run's champion, or a checkpoint folder, with its evaluation and lineage."""
    from spiral_lib import registry_runs
    from spiral_lib.registry import Registry

    registry = Registry(root)
    with progress(f"publishing {name}", None, unit=""):
        version = registry_runs.publish(registry, name, source, iteration=iteration)
    if alias:
        registry.promote(name, version.id, alias)
    if as_json:
        print_json(dataclasses.asdict(version))
        return
    size = sum(file.bytes for file in version.files.values()) / 1e6
    known = f"{name}@{version.id[:12]}"
    click.echo(f"published {known}: iteration {version.iteration}, {size:.1f} MB{f', alias {alias}' if alias else ''}")
    click.echo(f"registry: {root if '://' in root else Path(root).absolute()}")
    click.echo(f"its card: spiral registry show {known} --registry {shlex.quote(root)}")


@COMMAND.command("list")
@click.argument("name", required=False)
@rooted
@json_option
def list_versions(name: str | None, root: str, as_json: bool) -> None:
    """List the names in the registry, or the versions of one."""
    from spiral_lib.registry import Registry

    registry = Registry(root)
    rows = []
    for each in [name] if name else registry.names():
        aliases = registry.aliases(each)
        for version in registry.versions(each):
            pointing = ", ".join(sorted(alias for alias, target in aliases.items() if target == version.id))
            rows.append((each, version.id[:12], pointing, version.published[:16], str(version.iteration)))
    if as_json:
        print_json([dict(zip(("name", "version", "aliases", "published", "iteration"), r, strict=True)) for r in rows])
    else:
        print_table(("name", "version", "aliases", "published", "iteration"), rows)


@COMMAND.command()
@click.argument("reference")
@click.option("--verify", is_flag=True, help="Hash every file again and check the lineage.")
@rooted
@json_option
def show(reference: str, verify: bool, root: str, as_json: bool) -> int:
    """Show what a version is, how it did and where it comes from."""
    from spiral_lib import registry_runs

    registry, _, version = _find(reference, root)
    problems = registry_runs.check_version(registry, version) if verify else []
    _show(version, registry.url, as_json)
    for problem in problems:
        click.echo(f"broken: {problem}", err=True)
    return 1 if problems else 0


@COMMAND.command()
@click.argument("reference")
@click.argument("alias")
@click.option("--expect", metavar="ID", help="Move the alias only if it stands at this version now.")
@click.option("--note", default="", help="Why; kept in the alias's history.")
@rooted
@json_option
def promote(reference: str, alias: str, expect: str | None, note: str, root: str, as_json: bool) -> None:
    """Point an alias at a version."""
    registry, named, version = _find(reference, root)
    expected = registry.resolve(named.name, expect).id if expect else None
    move = registry.promote(named.name, version.id, alias, expected=expected, note=note)
    if as_json:
        print_json(dataclasses.asdict(move))
    else:
        before = move.previous[:12] if move.previous else "nowhere"
        click.echo(f"{named.name}@{alias}: {before} -> {move.version[:12]}")


@COMMAND.command()
@click.argument("reference")
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@rooted
@json_option
def fetch(reference: str, out: Path, root: str, as_json: bool) -> None:
    """Download a checkpoint, an ordinary Hugging Face folder, and check every hash."""
    registry, named, version = _find(reference, root)
    if out.exists() and any(out.iterdir()):
        raise click.UsageError(f"'{out}' is not empty; choose another folder")
    with progress(f"fetching {named.name}", None, unit=""):
        registry.fetch(named.name, version.id, out)
    if as_json:
        print_json({"name": named.name, "version": version.id, "folder": str(out)})
    else:
        click.echo(f"{named.name}@{version.id[:12]}: {out}")


@COMMAND.command()
@click.argument("first")
@click.argument("second")
@rooted
@json_option
def diff(first: str, second: str, root: str, as_json: bool) -> None:
    """Show in what two versions differ: origin, settings, metrics."""
    from spiral_lib import registry_runs

    registry, _, one = _find(first, root)
    _, _, other = _find(second, root)
    rows = registry_runs.diff(registry, one, other)
    if as_json:
        print_json([{"name": name, "first": a, "second": b} for name, a, b in rows])
    else:
        print_table(("", first, second), rows)


def _find(text: str, root: str) -> tuple[Registry, Reference, Version]:
    from spiral_lib.registry import Reference, Registry

    reference = Reference.parse(text, root=root)
    registry = Registry(reference.root)
    return registry, reference, registry.resolve(reference.name, reference.selector)


def _show(version: Version, root: str, as_json: bool) -> None:
    from spiral_lib import model_card

    if as_json:
        print_json(dataclasses.asdict(version))
    else:
        click.echo(model_card.write(version, root), nl=False)
