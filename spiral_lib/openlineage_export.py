"""A run's step records as OpenLineage events, for tools that draw lineage (extra ``lineage``)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from spiral_lib import durable, lineage
from spiral_lib.errors import ConfigError, LineageError
from spiral_lib.lineage import Artifact, StepRecord

PRODUCER = "urn:spiral-pipeline"
JOBS = "spiral"


def events(run: Path, *, store: str | None = None) -> Iterator[Any]:
    """Yield a START and a COMPLETE event for every step, in the order in which the steps began.

    A step's kind is the job, its execution the run; checkpoints, shards and scores are datasets below ``store`` (by
    default the run folder), whose version is their hash. The same records give the same events, ids included.
    """
    from openlineage.client import event_v2, facet_v2

    facet_v2.set_producer(PRODUCER)
    records = sorted(lineage.read_all(run), key=lambda r: (r.start, r.order, r.step))
    if not records:
        raise LineageError(f"'{run}' has no step records to export; give a run folder, such as runs/<run>")
    namespace = store or f"file://{run.resolve()}"
    whole = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{namespace} {records[0].config_hash} {records[0].start}"))
    for record in records:
        begun = datetime.fromisoformat(record.start)
        identity = str(uuid.uuid5(uuid.UUID(whole), f"{record.order} {record.step} {record.start}"))
        common: dict[str, Any] = {
            "run": event_v2.Run(runId=identity, facets=_run_facets(record, whole)),
            "job": event_v2.Job(namespace=JOBS, name=_job(record), facets=_job_facets()),
            "producer": PRODUCER,
        }
        inputs = [_dataset(event_v2.InputDataset, namespace, artifact) for artifact in record.inputs.values()]
        outputs = [_dataset(event_v2.OutputDataset, namespace, artifact) for artifact in record.outputs.values()]
        yield event_v2.RunEvent(
            eventType=event_v2.RunState.START, eventTime=begun.isoformat(), inputs=inputs, outputs=[], **common
        )
        ended = begun + timedelta(seconds=record.seconds)
        yield event_v2.RunEvent(
            eventType=event_v2.RunState.COMPLETE, eventTime=ended.isoformat(), inputs=inputs, outputs=outputs, **common
        )


def write_file(run: Path, out: Path, *, store: str | None = None) -> int:
    """Write the events as JSON lines through OpenLineage's file transport, and return their number."""
    require()
    from openlineage.client import OpenLineageClient
    from openlineage.client.transport.file import FileConfig, FileTransport

    number = 0
    with durable.new_file(out) as temporary:
        client = OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=str(temporary), append=True)))
        for event in events(run, store=store):
            client.emit(event)
            number += 1
    return number


def send(run: Path, url: str, *, store: str | None = None) -> int:
    """Send the events to a lineage service (Marquez and the like) and return their number."""
    require()
    from openlineage.client import OpenLineageClient

    client = OpenLineageClient(config={"transport": {"type": "http", "url": url}})
    number = 0
    for event in events(run, store=store):
        client.emit(event)
        number += 1
    return number


def require() -> None:
    """Raise ConfigError where openlineage-python is not installed."""
    import importlib.util

    if importlib.util.find_spec("openlineage") is None:
        raise ConfigError("OpenLineage export needs openlineage-python: pip install 'spiral-pipeline[lineage]'")


def _job(record: StepRecord) -> str:
    """Return the step's kind: the shards of a mapped rollout are one job."""
    return re.sub(r"-\d+$", "", record.step)


def _dataset(kind: Any, namespace: str, artifact: Artifact) -> Any:
    from openlineage.client.facet_v2 import dataset_version_dataset

    version = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=artifact.sha256)
    return kind(namespace=namespace, name=artifact.path, facets={"version": version})


def _run_facets(record: StepRecord, whole: str) -> dict[str, Any]:
    from openlineage.client.facet_v2 import execution_parameters_run, parent_run, processing_engine_run

    values: dict[str, Any] = {
        "iteration": record.order,
        "config_hash": record.config_hash,
        "code_version": record.code_version,
        "seed": record.seed,
        "engine": record.engine,
        "device": record.device,
        "dtype": record.dtype,
        "threads": record.threads,
        "image": record.image,
        **{f"package {name}": version for name, version in sorted(record.packages.items())},
    }
    parameters = [
        execution_parameters_run.ExecutionParameter(key=key, name=key, value=str(value))
        for key, value in values.items()
        if value != ""
    ]
    return {
        "executionParameters": execution_parameters_run.ExecutionParametersRunFacet(parameters=parameters),
        "parent": parent_run.ParentRunFacet(
            run=parent_run.Run(runId=whole), job=parent_run.Job(namespace=JOBS, name="train")
        ),
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            name="spiral", version=record.code_version
        ),
    }


def _job_facets() -> dict[str, Any]:
    from openlineage.client.facet_v2 import job_type_job

    facet = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="SPIRAL", jobType="STEP")
    return {"jobType": facet}
