"""Audits as workflows: wiring only.

    pyflyte run workflows/audit.py audit_run --run runs/tiny-1a2b3c4d
    pyflyte run --remote workflows/audit.py audit_registry --registry s3://bucket/registry --name kuhn
"""

from flytekit import workflow
from flytekit.types.directory import FlyteDirectory

import tasks.audit


@workflow
def audit_run(run: FlyteDirectory) -> str:
    """Verify every hash of a run, from its scores back to seeds, code and configuration.

    :param run: run folder, or the store root that a remote run was given as --out
    """
    return tasks.audit.audit_run(run=run)


@workflow
def audit_registry(registry: str, name: str) -> str:
    """Verify the published versions that aliases point at: their bytes and their lineage.

    :param registry: folder or URL of the registry
    :param name: name under which the checkpoints are published
    """
    return tasks.audit.audit_registry(registry=registry, name=name)
