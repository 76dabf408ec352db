"""What a store holds after a publisher, a deleter or a collection was killed at any of its steps.

On a local disk also after a cut of power, which loses whatever was not synced.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol, Self
from uuid import uuid4

import fsspec
import pytest
import s3fs
from dying_files import DyingFiles, KilledError
from fake_object_store import BUCKET, FakeObjectStore, serve
from registry_fakes import KEYS, packed

from contracts.manifest import MANIFEST
from registry.conversions.index import ConversionIndex
from registry.packages import gc
from registry.packages.store import PackageDamagedError, PackageStore, StoreUnavailableError
from registry.packages.store_mark import FILE, StoreMark

PART_BYTES = 5 << 20  # the least that S3 takes
PROGRAM = Path(__file__).parents[2] / "support" / "killed_publisher.py"


Killed = Callable[[Path, Path, str, int, bool], bool]


@pytest.fixture(scope="module")
def killed() -> Iterator[Killed]:
    """Runs one operation up to a step; returns whether it came to its end."""
    with subprocess.Popen(
        [sys.executable, "-P", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(PROGRAM.parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        asks, answers = program.stdin, program.stdout

        def run(root: Path, source: Path, what: str, step: int, cut: bool) -> bool:
            asks.write(json.dumps([str(root), str(source), what, step, cut]) + "\n")
            asks.flush()
            status = int(answers.readline())
            assert status in (0, 9)
            return status == 0

        yield run
        asks.close()


def assert_whole(store: PackageStore) -> None:
    """Whatever counts as a package is one."""
    for package in store.packages():
        store.verify(package)


def assert_heals(
    store: PackageStore, source: Path, fetched: Path, content: bytes = b"weights"
) -> None:
    manifest = packed(source, content)
    ref = store.publish(source, manifest)
    assert store.packages().count(ref.package) == 1
    assert store.fetch(ref.package, fetched) == manifest


@pytest.mark.slow
@pytest.mark.parametrize("cut", [False, True], ids=["", "cut"])
@pytest.mark.parametrize("what", ["publish", "delete", "collect", "repair"])
def test_killed_at_any_step_a_local_store_holds_only_whole_packages_and_takes_them_again(
    killed: Killed, tmp_path: Path, what: str, cut: bool
) -> None:
    source = tmp_path / "source"
    manifest = packed(source)
    kept = {"delete": [], "collect": [packed(tmp_path / "other", b"newer", "2").package_id()]}
    for step in count(1):
        root = tmp_path / f"store{step}"
        store = PackageStore(str(root))
        if what != "publish":
            store.publish(source, manifest)
        if what == "repair":
            (root / manifest.package_id() / "model.onnx").write_bytes(b"rotten")
        operation = "publish" if what == "repair" else what
        done = killed(root, source, operation, step, cut)
        if what != "repair" or done:
            assert_whole(store)
        if done:
            assert store.packages() == kept.get(what, [manifest.package_id()])
        assert_heals(store, source, tmp_path / f"fetched{step}")
        shutil.rmtree(root)
        if done:
            break
    assert step > 3


@pytest.mark.slow
@pytest.mark.parametrize("cut", [False, True], ids=["", "cut"])
def test_killed_at_any_step_a_mark_in_a_local_store_is_there_whole_or_not_at_all(
    killed: Killed, tmp_path: Path, cut: bool
) -> None:
    source = tmp_path / "source"
    for step in count(1):
        root = tmp_path / f"store{step}"
        done = killed(root, source, "mark", step, cut)
        assert bool(StoreMark(str(root), [b"t" * 32]).foreign()) is (root / FILE).exists()
        assert (root / FILE).exists() or not done
        assert StoreMark(str(root), KEYS).claim() == ""
        if done:
            break
    assert step > 3


@pytest.mark.slow
@pytest.mark.parametrize("cut", [False, True], ids=["", "cut"])
def test_killed_at_any_step_the_index_of_a_local_store_has_an_entry_or_none(
    killed: Killed, tmp_path: Path, cut: bool
) -> None:
    source = tmp_path / "source"
    manifest = packed(source)
    for step in count(1):
        root = tmp_path / f"store{step}"
        store = PackageStore(str(root))
        index = ConversionIndex(str(root), store, KEYS)
        store.publish(source, manifest)
        done = killed(root, source, "remember", step, cut)
        found = index.get("options")
        assert found is not None or not done
        assert index.put("options", manifest.ref()) == index.get("options")
        if done:
            break
    assert step > 3


def came_to_its_end(act: Callable[[], object], step: int) -> bool:
    DyingFiles.reset(step)
    try:
        act()
    except KilledError:
        return False
    finally:
        DyingFiles.reset()
    return True


@pytest.mark.parametrize("what", ["publish", "delete", "collect", "repair"])
def test_killed_at_any_step_an_object_store_holds_only_whole_packages_and_takes_them_again(
    tmp_path: Path, what: str
) -> None:
    source, other = tmp_path / "source", tmp_path / "other"
    manifest, newer = packed(source), packed(other, b"newer", "2")
    for step in count(1):
        store = PackageStore(f"dying://{what}{step}")
        DyingFiles.reset()
        if what != "publish":
            store.publish(source, manifest)
        if what == "collect":
            store.publish(other, newer)
        if what == "repair":
            DyingFiles().pipe_file(f"{what}{step}/{manifest.package_id()}/model.onnx", b"rotten")
        act: Callable[[], object] = partial(store.publish, source, manifest)
        if what == "delete":
            act = partial(store.delete, manifest.package_id())
        elif what == "collect":
            act = partial(gc.collect, store, (), keep=1)
        done = came_to_its_end(act, step)
        if what != "repair" or done:
            assert_whole(store)
        assert_heals(store, source, tmp_path / f"fetched{step}")
        if done:
            break
    assert step > 1


class GoneError(Exception):
    """The process that asks is no more."""


class SentRequest(Protocol):
    """What is used of a request of the client's library."""

    method: str


class LastRequests:
    """Lets this process's client of S3 send one change less than ``changes``, and nothing then."""

    def __init__(self, changes: int) -> None:
        files = fsspec.filesystem("s3")
        files.connect()
        self._events = files.s3.meta.events
        self.left = changes

    def __enter__(self) -> Self:
        self._events.register("before-send.s3", self._send)
        return self

    def __exit__(self, *_: object) -> None:
        self._events.unregister("before-send.s3", self._send)

    def _send(self, request: SentRequest, **_: object) -> None:
        changes = request.method in {"PUT", "POST", "DELETE"}
        self.left -= changes and self.left > 0
        if self.left == 0:
            raise GoneError


@pytest.fixture
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a prefix of a bucket, where nothing is."""
    url = f"s3://{BUCKET}/{uuid4().hex}"
    if request.param == "real":
        request.getfixturevalue("object_store")
        yield url
        return
    with serve(FakeObjectStore(), monkeypatch):
        yield url


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bucket", "bytes_"),
    [
        pytest.param("fake", 7, id="fake"),
        pytest.param("fake", 2 * PART_BYTES + 1, id="fake-in-parts"),
        pytest.param("real", 2 * PART_BYTES + 1, id="real-in-parts", marks=pytest.mark.real),
    ],
    indirect=["bucket"],
)
@pytest.mark.parametrize("what", ["publish", "delete", "collect", "repair"])
def test_killed_at_any_change_an_s3_store_holds_only_whole_packages_and_takes_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: str, what: str, bytes_: int
) -> None:
    monkeypatch.setattr(s3fs.core, "calculate_chunksize", lambda *_, **__: PART_BYTES)
    source, other = tmp_path / "source", tmp_path / "other"
    content = b"w" * bytes_
    manifest, newer = packed(source, content), packed(other, b"newer", "2")
    for step in count(1):
        store = PackageStore(f"{bucket}/{what}{step}")
        if what != "publish":
            store.publish(source, manifest)
        if what == "collect":
            store.publish(other, newer)
        if what == "repair":
            rotten = f"{bucket}/{what}{step}/{manifest.package_id()}/model.onnx"
            fsspec.filesystem("s3").pipe_file(rotten, b"rotten")
        act: Callable[[], object] = partial(store.publish, source, manifest)
        if what == "delete":
            act = partial(store.delete, manifest.package_id())
        elif what == "collect":
            act = partial(gc.collect, store, (), keep=1)
        with LastRequests(step) as last, suppress(StoreUnavailableError):
            act()
        done = last.left > 0
        if what != "repair" or done:
            assert_whole(store)
        assert_heals(store, source, tmp_path / f"fetched{step}", content)
        if done:
            break
    assert step > 1


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", MANIFEST])
@pytest.mark.parametrize("harm", ["lost", "cut short", "changed"])
@pytest.mark.parametrize("where", ["file", "dying"])
def test_publishing_mends_what_was_lost_or_damaged(
    tmp_path: Path, where: str, harm: str, name: str
) -> None:
    url = f"dying://mend-{tmp_path.name}" if where == "dying" else str(tmp_path / "store")
    store, source = PackageStore(url), tmp_path / "source"
    manifest = packed(source)
    ref = store.publish(source, manifest)
    files, root = DyingFiles(), f"mend-{tmp_path.name}"
    path = f"{ref.package}/{name}"
    data = manifest.canonical() if name == MANIFEST else (source / name).read_bytes()
    spoiled = data[:-1] if harm == "cut short" else bytes([data[0] ^ 1]) + data[1:]
    if where == "dying" and harm == "lost":
        files.rm(f"{root}/{path}")
    elif where == "dying":
        files.pipe_file(f"{root}/{path}", spoiled)
    elif harm == "lost":
        (tmp_path / "store" / path).unlink()
    else:
        (tmp_path / "store" / path).write_bytes(spoiled)
    if not (harm == "lost" and name == MANIFEST):
        with pytest.raises(PackageDamagedError):
            store.verify(ref.package)
        with pytest.raises(PackageDamagedError):
            store.fetch(ref.package, tmp_path / "fetched")
    assert_heals(store, source, tmp_path / "fetched")
    assert store.verify(ref.package) == manifest


def test_what_is_as_it_should_be_is_not_written_again(tmp_path: Path) -> None:
    store, source = PackageStore(str(tmp_path / "store")), tmp_path / "source"
    ref = store.publish(source, packed(source))
    before = {p: p.stat().st_ino for p in (tmp_path / "store" / ref.package).iterdir()}
    (tmp_path / "store" / ref.package / MANIFEST).write_bytes(b"")
    store.publish(source, packed(source))
    after = {p: p.stat().st_ino for p in (tmp_path / "store" / ref.package).iterdir()}
    assert {p.name for p in before if before[p] != after[p]} == {MANIFEST}


def test_what_killed_ones_left_behind_is_told_and_can_be_deleted(tmp_path: Path) -> None:
    store, source = PackageStore(str(tmp_path / "store")), tmp_path / "source"
    ref = store.publish(source, packed(source))
    (tmp_path / "store" / ref.package / MANIFEST).unlink()
    (tmp_path / "store" / ".aside-1").mkdir()
    (tmp_path / "store" / ".aside-2").write_bytes(b"half")
    assert store.leftovers() == [".aside-1", ".aside-2", ref.package]
    for name in store.leftovers():
        store.delete(name)
    assert store.names() == []
