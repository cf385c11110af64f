"""Policies by reference, opened together: what plays in a tournament, an evaluation or against a person.

A checkpoint plays under the configuration it was trained with (prompt, temperature, token limits), read from the run
folder it lies in, unless another one is given.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from spiral_lib import config as configs
from spiral_lib import policies
from spiral_lib.config import RunConfig
from spiral_lib.errors import CheckpointError, ConfigError
from spiral_lib.types import Policy, PolicyRef, RefKind


def locate(text: str) -> Path:
    """Return the checkpoint folder that a locator names: the folder itself, or the champion of a run folder.

    Raises CheckpointError where there is neither.
    """
    from spiral_lib.state import read_state

    path = Path(text)
    if (path / "state.json").is_file():
        return read_state(path).champion
    if not (path / "config.json").is_file():
        raise CheckpointError(
            f"'{path}' is no checkpoint and no run folder; give runs/<run> or runs/<run>/checkpoints/<n>"
        )
    return path


def verified(folder: Path) -> Path:
    """Return a checkpoint folder after hashing it where it has a manifest. Raises CheckpointError where it differs."""
    from spiral_lib import checkpoints

    if (folder / checkpoints.MANIFEST).is_file():
        checkpoints.verify(folder)
    return folder


def run_of(checkpoint: Path) -> Path | None:
    """Return the run folder that a checkpoint lies in, or None."""
    for folder in checkpoint.resolve().parents[:2]:
        if (folder / "config.yaml").is_file():
            return folder
    return None


def config_of(checkpoint: Path) -> RunConfig:
    """Return the configuration of the run that a checkpoint lies in. Raises ConfigError where it lies in none."""
    run = run_of(checkpoint)
    if run is None:
        raise ConfigError(f"'{checkpoint}' lies in no run folder, so how it is prompted is unknown; give --preset NAME")
    return configs.from_text((run / "config.yaml").read_text())


@contextlib.contextmanager
def opened(
    refs: Sequence[PolicyRef],
    *,
    config: RunConfig | None = None,
    pool: Path | None = None,
    folders: Mapping[str, Path] | None = None,
) -> Iterator[Mapping[str, Policy]]:
    """Yield the policies by the text of their references; their engines are closed at the end.

    ``pool`` is the run folder in which ``pool:<id>`` is looked up; ``folders`` holds the checkpoints of references
    whose locator is no path. Raises ConfigError for ``self``, which has a meaning only within a run.
    """
    with contextlib.ExitStack() as stack:
        yield {str(ref): _open(ref, config, pool, (folders or {}).get(str(ref)), stack) for ref in refs}


def _open(
    ref: PolicyRef, config: RunConfig | None, pool: Path | None, folder: Path | None, stack: contextlib.ExitStack
) -> Policy:
    if ref.kind in policies.SCRIPTED:
        return policies.make(ref)
    if ref.kind is RefKind.SELF:
        raise ConfigError("policy 'self' has a meaning only within a run; write checkpoint:<folder>")
    from spiral_lib import checkpoints, engines
    from spiral_lib.prompts import Renderer

    if ref.kind is RefKind.API:
        if config is None:
            raise ConfigError(f"policy '{ref}' needs an endpoint; give --preset NAME --set endpoint.base_url=URL")
        asked = engines.endpoint(ref.locator, config)
        stack.callback(asked.close)
        rollout = config.rollout
        return policies.make(
            ref,
            engine=asked,
            prompt=config.prompt,
            temperature=rollout.temperature,
            max_new_tokens=rollout.max_new_tokens,
        )
    if folder is None:
        folder = _pool_entry(ref, pool) if ref.kind is RefKind.POOL else locate(ref.locator)
    verified(folder)
    chosen = config or config_of(folder)
    engine = engines.make(chosen.rollout.engine, folder, chosen)
    stack.callback(engine.close)
    return policies.make(
        ref,
        engine=engine,
        renderer=Renderer(checkpoints.load_tokenizer(folder), chosen.prompt),
        temperature=chosen.rollout.temperature,
        max_new_tokens=chosen.rollout.max_new_tokens,
    )


def _pool_entry(ref: PolicyRef, run: Path | None) -> Path:
    """Return the snapshot of a run whose id begins with the reference's."""
    from spiral_lib import checkpoints

    if run is None:
        raise ConfigError(f"policy '{ref}' needs the run folder whose pool it is in; give --pool RUN")
    known = {checkpoints.read_manifest(path).id: path for path in sorted((run / "pool").glob("*"))}
    found = [path for identity, path in known.items() if identity.startswith(ref.locator)]
    if len(found) != 1:
        ids = ", ".join(identity[:16] for identity in known) or "none"
        raise ConfigError(f"policy '{ref}' names {len(found)} snapshots of '{run}'; known ids: {ids}")
    return found[0]
