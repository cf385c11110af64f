"""Lineage for other tools and for people."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spiral_lib import cli, expired, lineage, lineage_page, openlineage_export
from spiral_lib.config import RunConfig
from spiral_lib.errors import LineageError

pytest.importorskip("openlineage", reason="OpenLineage export is an extra: pip install 'spiral-pipeline[lineage]'")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of a cold start and two shards of one iteration."""
    folder = tmp_path / "run|1"
    start, shards = folder / "checkpoints" / "0000", [folder / f"shard-{i}" for i in (0, 1)]
    folder.mkdir()

    def step(name: str, order: int, inputs: dict[str, Path], output: Path) -> None:
        def body() -> None:
            output.parent.mkdir(exist_ok=True)
            output.write_text(name)

        lineage.run_step(
            name,
            run=folder,
            order=order,
            config=RunConfig(),
            inputs=inputs,
            values={},
            outputs={"made": output},
            body=body,
        )

    step("cold_start", 0, {}, start)
    for i, shard in enumerate(shards):
        step(f"play-{i:02d}", 1, {"checkpoint": start}, shard)
    return folder


def exported(run: Path, tmp_path: Path) -> list[dict[str, Any]]:
    assert openlineage_export.write_file(run, tmp_path / "events.jsonl", store="s3://bucket/run") == 6
    return [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]


def test_every_step_starts_and_completes_with_versioned_datasets(run: Path, tmp_path: Path) -> None:
    made = exported(run, tmp_path)
    assert [e["eventType"] for e in made] == ["START", "COMPLETE"] * 3
    assert [e["job"]["name"] for e in made[1::2]] == ["cold_start", "play", "play"], "shards are one job"
    assert len({e["run"]["runId"] for e in made}) == 3
    shard = made[3]
    record = next(r for r in lineage.read_all(run) if r.step == "play-00")
    assert shard["inputs"][0]["name"] == "checkpoints/0000"
    assert shard["inputs"][0]["namespace"] == "s3://bucket/run"
    assert shard["inputs"][0]["facets"]["version"]["datasetVersion"] == record.inputs["checkpoint"].sha256
    assert shard["outputs"][0]["facets"]["version"]["datasetVersion"] == record.outputs["made"].sha256


def test_a_dataset_one_step_writes_is_the_dataset_the_next_reads(run: Path, tmp_path: Path) -> None:
    made = exported(run, tmp_path)
    written = {(d["namespace"], d["name"]): d["facets"]["version"]["datasetVersion"] for d in made[1]["outputs"]}
    read = {(d["namespace"], d["name"]): d["facets"]["version"]["datasetVersion"] for d in made[3]["inputs"]}
    assert read == written


def test_conditions_and_the_whole_run_are_named_in_every_event(run: Path, tmp_path: Path) -> None:
    made = exported(run, tmp_path)
    assert len({e["run"]["facets"]["parent"]["run"]["runId"] for e in made}) == 1
    for event in made:
        values = {p["key"]: p["value"] for p in event["run"]["facets"]["executionParameters"]["parameters"]}
        assert values["seed"] == "0"
        assert len(values["code_version"]) == len(values["config_hash"]) == 16


def test_the_same_records_give_the_same_events(run: Path, tmp_path: Path) -> None:
    assert exported(run, tmp_path) == exported(run, tmp_path)


class Receiver(http.server.BaseHTTPRequestHandler):
    """A lineage service that keeps what it gets."""

    received: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        self.received.append(json.loads(body))
        self.send_response(201)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


@pytest.fixture
def service() -> Iterator[str]:
    Receiver.received = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_events_reach_a_lineage_service(run: Path, service: str) -> None:
    assert openlineage_export.send(run, service) == 6
    assert [e["eventType"] for e in Receiver.received] == ["START", "COMPLETE"] * 3


def test_the_page_lists_every_step_and_marks_what_expired(run: Path) -> None:
    record = next(r for r in lineage.read_all(run) if r.step == "play-01")
    artifact = record.outputs["made"]
    tombstone = expired.Tombstone(path=artifact.path, sha256=artifact.sha256, bytes=1, day="2026-01-01", rule="r")
    expired.add(run, [tombstone])
    page = lineage_page.write(run)
    rows = [line for line in page.splitlines() if line.startswith(("| cold", "| play"))]
    assert len(rows) == 3
    assert [f"`{artifact.sha256[:12]}` (expired)" in row for row in rows] == [False, False, True]
    assert page.startswith("# Lineage of run\\|1\n")


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LineageError, match="no step records"):
        lineage_page.write(tmp_path)
    with pytest.raises(LineageError, match="no step records"):
        openlineage_export.write_file(tmp_path, tmp_path / "events.jsonl")
    assert not (tmp_path / "events.jsonl").exists()


def test_the_command_prints_the_page_or_writes_events(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["lineage", str(run)]) == 0
    assert "| cold\\_start |" in capsys.readouterr().out
    assert cli.run(["lineage", str(run), "--openlineage", str(tmp_path / "e.jsonl")]) == 0
    assert len((tmp_path / "e.jsonl").read_text().splitlines()) == 6
