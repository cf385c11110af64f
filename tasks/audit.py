"""Audits: every hash from a score back to seeds and code, again."""

import html

from flytekit import Deck, task
from flytekit.types.directory import FlyteDirectory

from spiral_lib import lineage, published, registry_runs, stored
from spiral_lib.errors import LineageError
from spiral_lib.registry import Registry
from tasks.config import user_errors
from tasks.resources import CPU_IMAGE, SMALL
from tasks.types import local

AUDIT = SMALL


@task(container_image=CPU_IMAGE, requests=AUDIT, enable_deck=True, deck_fields=())
def audit_run(run: FlyteDirectory) -> str:
    """Verify a run folder or the store root of a remote run; a broken link fails the task and is named."""
    with user_errors(), stored.opened(str(local(run))) as folder:
        found = [str(problem) for problem in lineage.audit(folder) + published.problems(folder)]
        return _conclude(f"run {run.remote_source or run.path}", len(lineage.read_sound(folder)), "step records", found)


@task(container_image=CPU_IMAGE, requests=AUDIT, enable_deck=True, deck_fields=())
def audit_registry(registry: str, name: str) -> str:
    """Verify the bytes and the lineage of every version that an alias points at; a broken one fails the task."""
    with user_errors():
        shared = Registry(registry)
        aliases = shared.aliases(name)
        found = []
        for version in sorted(set(aliases.values())):
            problems = registry_runs.check_version(shared, shared.resolve(name, version))
            found += [f"{name}@{version[:12]}: {problem}" for problem in problems]
        if not aliases:
            found.append(f"'{name}' has no alias in registry '{registry}'; publish and promote a version first")
        return _conclude(f"registry {registry}, {name}", len(aliases), "aliases", found)


def _conclude(what: str, number: int, of_what: str, problems: list[str]) -> str:
    items = "".join(f"<li>{html.escape(problem)}</li>" for problem in problems)
    summary = f"{what}: {number} {of_what}, {len(problems)} problems"
    Deck("Audit", f"<h3>{html.escape(summary)}</h3><ol>{items}</ol>")
    if problems:
        raise LineageError(f"{summary}. The first is: {problems[0]}")
    return summary
