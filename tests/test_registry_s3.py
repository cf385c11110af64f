"""The registry through the S3 protocol, on a store that ignores conditions and fails now and then."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_checkpoints import checkpoint

from spiral_lib import registry_store
from spiral_lib.errors import RegistryError
from spiral_lib.registry import Registry

TOOL = Path(__file__).parents[2] / "shared" / "tools" / "miniflyte"
pytestmark = pytest.mark.skipif(not TOOL.is_dir(), reason="needs the S3 stand-in ../shared/tools/miniflyte")
s3fs = pytest.importorskip("s3fs", reason="the S3 protocol comes with the extra flyte")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket whose every tenth write fails with 503 at first."""
    monkeypatch.syspath_prepend(str(TOOL))
    from miniflyte.store import S3Server, Store

    server = S3Server(Store(tmp_path / "store"))
    counter = itertools.count(1)
    server.httpd.fail_puts = lambda key: next(counter) % 10 == 0
    for name, value in {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "mini",
        "AWS_SECRET_ACCESS_KEY": "miniflyte",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(registry_store, "SETTLE_S", 0.5)
    s3fs.S3FileSystem.clear_instance_cache()  # an instance remembers the address of an earlier test's store
    yield "s3://mini/registry"
    server.close()


def test_versions_and_aliases_live_in_a_bucket(url: str, tmp_path: Path) -> None:
    registry = Registry(url)
    a, b = (registry.publish("kuhn", checkpoint(tmp_path / text, text)).id for text in ("a", "b"))
    registry.promote("kuhn", a, "champion")
    registry.promote("kuhn", b, "champion", expected=a)
    assert [v.id for v in Registry(url).versions("kuhn")] == [a, b]
    assert Registry(url).fetch("kuhn", "champion", tmp_path / "out").id == b
    assert (tmp_path / "out" / "model.safetensors").read_text() == "b"
    assert registry.verify(registry.resolve("kuhn", a)) == []


def test_of_several_that_move_an_alias_in_a_bucket_at_once_one_wins(url: str, tmp_path: Path) -> None:
    registry = Registry(url)
    base, *ids = (registry.publish("kuhn", checkpoint(tmp_path / text, text)).id for text in ("base", "x", "y", "z"))
    registry.promote("kuhn", base, "champion")
    start, won = threading.Barrier(len(ids)), []

    def promote(version: str) -> None:
        start.wait()
        try:
            Registry(url).promote("kuhn", version, "champion", expected=base)
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
