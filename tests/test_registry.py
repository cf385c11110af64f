"""The registry: immutable versions, aliases that move atomically, and what runs publish and start from."""

from __future__ import annotations

import dataclasses
import itertools
import json
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
import yaml
from fake_checkpoints import checkpoint
from fsspec.implementations.memory import MemoryFileSystem

from spiral_lib import lineage, model_card, registry_runs, registry_store
from spiral_lib.config import RunConfig, config_hash, dump_yaml
from spiral_lib.errors import RegistryError
from spiral_lib.ledger import Champion, Ledger
from spiral_lib.registry import Attachments, Reference, Registry
from spiral_lib.registry_types import Version
from spiral_lib.types import Evaluation


class PlainFileSystem(MemoryFileSystem):
    """An object store without conditional writes: it overwrites whatever the condition says."""

    protocol = "plain"
    store: dict[str, object] = {}  # noqa: RUF012  (fsspec keeps a file system's content on its class)
    pseudo_dirs = [""]  # noqa: RUF012

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: object) -> None:
        super().pipe_file(path, value, mode="overwrite")


class BreakingFileSystem(MemoryFileSystem):
    """An object store whose third upload fails."""

    protocol = "breaking"
    store: dict[str, object] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    uploads = 0

    def put_file(self, *args: object, **kwargs: object) -> None:
        type(self).uploads += 1
        if type(self).uploads == 3:
            raise OSError("connection reset")
        super().put_file(*args, **kwargs)


for kind in (PlainFileSystem, BreakingFileSystem):
    fsspec.register_implementation(kind.protocol, kind, clobber=True)


@pytest.fixture(params=["local", "memory", "plain"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A registry on a disk, on a store with conditional writes, and on one without."""
    monkeypatch.setattr(registry_store, "SETTLE_S", 0.05)
    if request.param == "local":
        yield str(tmp_path / "registry")
        return
    yield f"{request.param}://registry-{os.getpid()}-{tmp_path.name}"


def test_a_published_checkpoint_comes_back_byte_for_byte(url: str, tmp_path: Path) -> None:
    made = checkpoint(tmp_path / "made", "one")
    version = Registry(url).publish("kuhn", made, Attachments(texts={"evaluation.json": "{}"}, metrics={"m": 0.5}))
    fetched = tmp_path / "fetched"
    assert Registry(url).fetch("kuhn", version.id[:8], fetched).metrics == {"m": 0.5}
    assert {p.name: p.read_bytes() for p in fetched.iterdir()} == {p.name: p.read_bytes() for p in made.iterdir()}
    assert Registry(url).attachment(version, "evaluation.json") == "{}"
    assert Registry(url).verify(version) == []


def test_publishing_the_same_weights_again_changes_nothing(url: str, tmp_path: Path) -> None:
    registry, made = Registry(url), checkpoint(tmp_path / "made", "one")
    first = registry.publish("kuhn", made, Attachments(metrics={"m": 0.5}))
    assert registry.publish("kuhn", made, Attachments(metrics={"m": 0.9})) == first
    assert registry.versions("kuhn") == [first]


def test_versions_are_listed_in_the_order_of_publishing(url: str, tmp_path: Path) -> None:
    registry = Registry(url)
    ids = [registry.publish("kuhn", checkpoint(tmp_path / text, text)).id for text in ("a", "b", "c")]
    assert [v.id for v in registry.versions("kuhn")] == ids
    assert registry.names() == ["kuhn"]


def test_an_alias_moves_and_keeps_its_history(url: str, tmp_path: Path) -> None:
    registry = Registry(url)
    a, b = (registry.publish("kuhn", checkpoint(tmp_path / text, text)).id for text in ("a", "b"))
    registry.promote("kuhn", a, "champion")
    registry.promote("kuhn", b[:10], "champion", expected=a, note="better")
    assert registry.resolve("kuhn", "champion").id == b == registry.resolve("kuhn").id
    assert [(m.number, m.previous, m.version, m.note) for m in registry.history("kuhn", "champion")] == [
        (1, None, a, ""),
        (2, a, b, "better"),
    ]


def test_an_alias_does_not_move_from_where_nobody_expected_it(url: str, tmp_path: Path) -> None:
    registry = Registry(url)
    a, b = (registry.publish("kuhn", checkpoint(tmp_path / text, text)).id for text in ("a", "b"))
    registry.promote("kuhn", a, "champion")
    with pytest.raises(RegistryError, match=f"stands at {a[:12]}, not at {b[:12]}"):
        registry.promote("kuhn", b, "champion", expected=b)
    assert registry.promote("kuhn", a, "champion").number == 1, "moving to where it stands is no move"


def test_of_many_that_move_an_alias_at_once_one_wins(url: str, tmp_path: Path) -> None:
    registry = Registry(url)
    base = registry.publish("kuhn", checkpoint(tmp_path / "base", "base")).id
    registry.promote("kuhn", base, "champion")
    ids = [registry.publish("kuhn", checkpoint(tmp_path / f"w{i}", f"w{i}")).id for i in range(6)]
    start, won = threading.Barrier(len(ids)), []

    def promote(version: str) -> None:
        mine = Registry(url)
        start.wait()
        try:
            mine.promote("kuhn", version, "champion", expected=base)
            won.append(version)
        except RegistryError:
            pass

    threads = [threading.Thread(target=promote, args=(version,)) for version in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert registry.aliases("kuhn") == {"champion": won[0]}
    assert len(registry.history("kuhn", "champion")) == 2


def run_processes(target: Callable[..., None], arguments: list[tuple[object, ...]]) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=target, args=args) for args in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [p.exitcode for p in processes] == [0] * len(processes)


def _publish_and_promote(url: str, folder: Path, alone: Path, out: Path) -> None:
    registry = Registry(url)
    registry.publish("kuhn", folder)
    mine = registry.publish("kuhn", alone).id
    for _ in range(200):
        stands = registry.resolve("kuhn", "latest").id
        try:
            registry.promote("kuhn", mine, "latest", expected=stands, note=stands)
            break
        except RegistryError:
            continue
    else:
        os._exit(1)
    out.write_text(mine)


def test_processes_that_publish_and_promote_at_once_lose_nothing(tmp_path: Path) -> None:
    url, shared = str(tmp_path / "registry"), checkpoint(tmp_path / "shared", "s" * 100_000)
    base = Registry(url).publish("kuhn", checkpoint(tmp_path / "base", "base")).id
    Registry(url).promote("kuhn", base, "latest")
    number = 5
    run_processes(
        _publish_and_promote,
        [
            (url, shared, checkpoint(tmp_path / f"own{i}", f"own{i}"), tmp_path / f"done{i}")
            for i in range(number)
        ],
    )
    registry = Registry(url)
    moves = registry.history("kuhn", "latest")
    assert len(registry.versions("kuhn")) == number + 2
    assert sorted(m.version for m in moves[1:]) == sorted((tmp_path / f"done{i}").read_text() for i in range(number))
    assert all(after.previous == before.version for before, after in itertools.pairwise(moves))
    assert all(registry.verify(v) == [] for v in registry.versions("kuhn"))


def test_a_half_upload_is_never_seen_and_the_next_try_completes_it(tmp_path: Path) -> None:
    registry, made = Registry("breaking://registry"), checkpoint(tmp_path / "made", "one")
    with pytest.raises(OSError, match="connection reset"):
        registry.publish("kuhn", made)
    assert registry.versions("kuhn") == []
    with pytest.raises(RegistryError, match="is not in registry"):
        registry.fetch("kuhn", "champion", tmp_path / "fetched")
    version = registry.publish("kuhn", made)
    assert registry.versions("kuhn") == [version]
    assert registry.verify(version) == []


def test_a_changed_file_is_named_and_not_fetched(tmp_path: Path) -> None:
    registry = Registry(str(tmp_path / "registry"))
    version = registry.publish("kuhn", checkpoint(tmp_path / "made", "one"))
    weights = tmp_path / "registry" / "kuhn" / "versions" / version.id / "checkpoint" / "model.safetensors"
    weights.write_text("two")
    assert any("model.safetensors" in problem for problem in registry.verify(version))
    with pytest.raises(Exception, match=r"model\.safetensors"):
        registry.fetch("kuhn", version.id, tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "checkpoint/../../x", "elsewhere/file"])
def test_a_version_that_names_files_outside_its_folder_is_refused(path: str, tmp_path: Path) -> None:
    registry = Registry(str(tmp_path / "registry"))
    version = registry.publish("kuhn", checkpoint(tmp_path / "made", "one"))
    content = json.loads(version.to_json())
    content["files"][path] = {"sha256": "0", "bytes": 1}
    with pytest.raises(RegistryError, match="damaged"):
        Version.from_json(json.dumps(content))


def test_names_that_are_paths_and_aliases_that_look_like_ids_are_refused(tmp_path: Path) -> None:
    registry, made = Registry(str(tmp_path / "registry")), checkpoint(tmp_path / "made", "one")
    with pytest.raises(RegistryError, match="not allowed"):
        registry.publish("../kuhn", made)
    version = registry.publish("kuhn", made)
    with pytest.raises(RegistryError, match="looks like a version id"):
        registry.promote("kuhn", version.id, "deadbeef00")


@pytest.mark.parametrize(
    ("text", "root", "name", "selector"),
    [
        ("registry:kuhn", "registry", "kuhn", "champion"),
        ("registry:s3://bucket/models/kuhn@candidate", "s3://bucket/models", "kuhn", "candidate"),
        ("/data/registry/kuhn@0123456789", "/data/registry", "kuhn", "0123456789"),
    ],
)
def test_references_name_root_checkpoint_and_selector(text: str, root: str, name: str, selector: str) -> None:
    assert Reference.parse(text) == Reference(root=root, name=name, selector=selector)
    assert Reference.parse(str(Reference.parse(text))) == Reference.parse(text)


def test_a_reference_without_a_name_is_refused() -> None:
    for text in ("registry:", "s3://bucket/", "kuhn@"):
        with pytest.raises(RegistryError, match="names no checkpoint"):
            Reference.parse(text)


def test_a_run_starts_from_the_version_an_alias_stood_at(tmp_path: Path) -> None:
    root = tmp_path / "registry"
    registry = Registry(str(root))
    a, b = (registry.publish("kuhn", checkpoint(tmp_path / text, text)).id for text in ("a", "b"))
    registry.promote("kuhn", a, "champion")
    config = RunConfig()
    named = dataclasses.replace(config, model=dataclasses.replace(config.model, source=f"registry:{root}/kuhn"))
    pinned = registry_runs.pin(named)
    registry.promote("kuhn", b, "champion")
    assert pinned.model.source == f"registry:{root}/kuhn@{a}"
    assert registry_runs.pin(pinned) == pinned
    assert config_hash(registry_runs.pin(named)) != config_hash(pinned)
    registry_runs.fetch_source(pinned.model.source, tmp_path / "source")
    assert (tmp_path / "source" / "model.safetensors").read_text() == "a"


def small_run(run: Path) -> Path:
    """A run folder of one cold start and one evaluation, with true records."""
    config = RunConfig(seed=5)
    place, scores = run / "checkpoints" / "0000", run / "evaluations" / "0000.json"
    run.mkdir()
    (run / "config.yaml").write_text(dump_yaml(config))

    def step(name: str, inputs: dict[str, Path], outputs: dict[str, Path], body: Callable[[], None]) -> None:
        lineage.run_step(
            name, run=run, order=0, config=config, inputs=inputs, values={}, outputs=outputs, body=body
        )

    def cold_start() -> None:
        checkpoint(place, "cold", iteration=0)

    def evaluate() -> None:
        scores.parent.mkdir()
        scores.write_text(Evaluation(metrics={"eval/win_rate": 0.75}).to_json())

    step("cold_start", {}, {"checkpoint": place}, cold_start)
    step("evaluate", {"checkpoint": place}, {"evaluation": scores}, evaluate)
    ledger = Ledger(champion=Champion(iteration=0, checkpoint="x"))
    (run / "ledger.json").write_text(ledger.to_json())
    names = {"champion": "checkpoints/0000", "champion_scores": "evaluations/0000.json", "ledger": "ledger.json"}
    (run / "state.json").write_text(json.dumps(names))
    return run


def test_a_run_publishes_its_champion_with_evaluation_and_lineage(tmp_path: Path) -> None:
    registry = Registry(str(tmp_path / "registry"))
    version = registry_runs.publish(registry, "kuhn", small_run(tmp_path / "run"))
    assert version.metrics["eval/win_rate"] == 0.75
    assert version.facts["seed"] == "5"
    steps = [r["step"] for r in json.loads(registry.attachment(version, "lineage.json") or "")]
    assert steps == ["cold_start", "evaluate"]
    assert registry_runs.check_version(registry, version) == []


def test_a_checkpoint_that_no_step_of_the_run_wrote_is_not_published(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    for path in (run / "checkpoints" / "0000").iterdir():
        path.unlink()
    (run / "checkpoints" / "0000").rmdir()
    checkpoint(run / "checkpoints" / "0000", "swapped")
    with pytest.raises(RegistryError, match="is not what a step of the run wrote"):
        registry_runs.publish(Registry(str(tmp_path / "registry")), "kuhn", run)


def test_a_lineage_that_leads_to_other_weights_is_found(tmp_path: Path) -> None:
    run, registry = small_run(tmp_path / "run"), Registry(str(tmp_path / "registry"))
    _, attached = registry_runs.of_run(run)
    version = registry.publish("kuhn", checkpoint(tmp_path / "other", "other"), attached)
    problems = registry_runs.check_version(registry, version)
    assert problems == [f"no step in the lineage of {version.id[:12]} made this checkpoint"]


def test_a_diff_names_what_two_versions_differ_in_and_nothing_else(tmp_path: Path) -> None:
    registry = Registry(str(tmp_path / "registry"))
    versions = [
        registry.publish(
            "kuhn",
            checkpoint(tmp_path / str(seed), str(seed)),
            Attachments(texts={"config.yaml": dump_yaml(RunConfig(seed=seed))}, metrics={"m": 0.5, "same": 1.0}),
        )
        for seed in (1, 2)
    ]
    rows = {name: (a, b) for name, a, b in registry_runs.diff(registry, *versions)}
    assert rows == {"id": (versions[0].id, versions[1].id), "config seed": ("1", "2")}


def test_the_model_card_shows_foreign_text_literally(tmp_path: Path) -> None:
    evil = "x\"\n---\ninjected: true\n# Title <script>alert(1)</script> | [a](b)"
    made = checkpoint(tmp_path / "made", "one", base_model=evil)
    version = Registry(str(tmp_path / "registry")).publish("kuhn", made, Attachments(facts={"games": evil}))
    card = (tmp_path / "registry" / "kuhn" / "versions" / version.id / "README.md").read_text()
    assert card == model_card.write(version, str(tmp_path / "registry"))
    head, _, body = card.removeprefix("---\n").partition("\n---\n")
    metadata = yaml.safe_load(head)
    assert metadata["base_model"] == evil
    assert "injected" not in metadata
    assert "<script>" not in body.replace("\\<script\\>", "")
    assert "\n# Title" not in body
    assert all(line.replace("\\|", "").count("|") == 3 for line in body.splitlines() if line.startswith("| games"))


def test_a_claim_belongs_to_the_first_and_tells_the_others_what_it_holds(url: str) -> None:
    registry = Registry(url)
    assert registry.claim("kuhn", "2026-01-01", {"source": "a"}) == {"source": "a"}
    assert registry.claim("kuhn", "2026-01-01", {"source": "b"}) == {"source": "a"}
    assert registry.claim("kuhn", "2026-01-02", {"source": "b"}) == {"source": "b"}
