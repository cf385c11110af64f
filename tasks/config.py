"""First task of every workflow: the configuration, resolved and checked before anything else happens."""

import enum
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import rich_click as click
from flytekit import FlyteContextManager, task
from flytekit.types.directory import FlyteDirectory
from flytekit.types.file import FlyteFile

from spiral_lib import config as configs
from spiral_lib import durable, pipeline, preflight, presets, registry_runs, starting
from spiral_lib.config import RunConfig
from spiral_lib.errors import ConfigError, SpiralError
from tasks.command_line import explain_interrupts, goes_to, refuse_missing_paths
from tasks.resources import CPU_IMAGE, SMALL
from tasks.types import is_local

refuse_missing_paths()
explain_interrupts()

Preset = enum.Enum("Preset", {name.upper(): name for name in presets.names()})


@dataclass
class Resolved:
    """The configuration as canonical JSON, how many iterations to run, and where durable outputs go.

    ``iterations`` stands apart from ``config`` so that extending a run does not change any cached task's input.
    """

    config: str
    iterations: int
    out: str


@contextmanager
def user_errors(out: str = "") -> Iterator[None]:
    """Show progress and, when running locally, a mistake as one message; ``out`` is where outputs go."""
    goes_to(out)
    if not logging.getLogger("spiral_lib").handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
        logging.getLogger("spiral_lib").addHandler(handler)
        logging.getLogger("spiral_lib").setLevel(logging.INFO)
    try:
        with durable.told_when_full(out):
            yield
    except SpiralError as error:
        if is_local():
            raise click.ClickException(str(error)) from error
        raise


@task(container_image=CPU_IMAGE, requests=SMALL)
def resolve_config(
    preset: Preset, config: FlyteFile | None, overrides: str, resume_from: FlyteDirectory | None, out: str
) -> Resolved:
    """Return preset < YAML < overrides, strictly checked; on this machine the run folder is opened with it."""
    with user_errors():
        path = Path(config.download()) if config is not None else None
        resolved = registry_runs.pin(configs.resolve(preset=preset.value, yaml_path=path, overrides=overrides))
        if is_local() and "://" not in out:
            folder = Path(out) if out else pipeline.default_folder(resolved)
            out = str(folder.absolute())
            goes_to(out)
            earlier = Path(resume_from.path) if resume_from is not None and "://" not in resume_from.path else None
            starting.open_run(resolved, folder, resume_from=earlier)
            logging.getLogger("spiral_lib.run").info("run folder: %s", folder)
        preflight.check(resolved, fresh=resume_from is None)
        if not out:
            out = f"{execution_store()}/{pipeline.default_folder(resolved).as_posix()}"
        if resume_from is not None and f"{resume_from.remote_source or ''}/".startswith(f"{out.rstrip('/')}/"):
            raise ConfigError(f"'{out}' cannot resume from itself; choose another place with --out")
        if "://" in out:
            open_store(resolved, out)
        return settled(resolved, out)


def execution_store() -> str:
    """Return the URL of the bucket that Flyte puts this execution's outputs into.

    There a run has a place of its own, the same for the same configuration: its records name paths in it that mean
    something outside the container, and the next execution finds them again.
    """
    prefix = FlyteContextManager.current_context().file_access.raw_output_prefix
    return "/".join(prefix.split("/")[:3]) if "://" in prefix else prefix.rstrip("/")


def open_store(config: RunConfig, out: str) -> None:
    """Write the configuration to the run's place in a store. Raises ConfigError where another run lives there."""
    place = f"{out.rstrip('/')}/config.yaml"
    store = FlyteContextManager.current_context().file_access.get_filesystem_for_path(place)
    if store.exists(place):
        starting.require_same(config, store.cat_file(place).decode("utf-8", "replace"), out)
    store.pipe_file(place, configs.dump_yaml(config).encode())


def settled(config: RunConfig, out: str) -> Resolved:
    """Return a checked configuration in the form that travels between tasks."""
    fixed = configs.update(config, {"iterations": 0})
    return Resolved(config=configs.to_json(fixed), iterations=config.iterations, out=out)
