"""Whatever stands before the package store may answer in its place: nothing of that is its word."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fake_mlflow
import fake_object_store
import fsspec
import pytest
from dripping import LONG_HEAD, dripping
from fake_object_store import HangUpError
from http_server import Answer, Request
from registry_fakes import KEYS, packed

from contracts.manifest import MANIFEST
from contracts.model import ModelRef
from gateway.packages import PackageError, StorePackages
from registry.conversions.index import ConversionIndex
from registry.packages.cache import LocalPackages, PackageBrokenError, PackageUnavailableError
from registry.packages.store import (
    PackageDamagedError,
    PackageMissingError,
    PackageStore,
    StoreUnavailableError,
)
from registry.packages.store_mark import StoreMark

pytestmark = pytest.mark.slow  # imports a client of S3

PAGE = "<html><head><title>404</title></head><body>default backend - 404<br></body></html>"
FAULTS = {
    "an ingress without a backend": Answer(404, PAGE),
    "another server's 404": Answer(404, '{"detail": "Not Found"}'),
    "an empty 404": Answer(404),
    "a gone page": Answer(410, PAGE),
    "a bad gateway": Answer(502, "<html>502 Bad Gateway</html>"),
    "a refusal of a proxy": Answer(403, "<html>403 Forbidden</html>"),
    "an empty answer": Answer(200),
    "no content": Answer(204),
    "a page": Answer(200, "<html><p>welcome</p></html>"),
    "a page of a file server": Answer(200, "<html><p>hi</p></html>", headers={"ETag": '"5f"'}),
    "another server's answer": Answer(200, '{"status": "ok"}'),
    "half of an answer": Answer(200, '<?xml version="1.0"?><ListBucketResult><Name>mod'),
    "a bucket that is not there": Answer(404, "<Error><Code>NoSuchBucket</Code></Error>"),
    "an answer that ends early": Answer(200, "x" * 100, missing=50),
}

_HEAD = b'HTTP/1.1 200 OK\r\nETag: "5f"\r\nContent-Length: 100000\r\n\r\n'


class World:
    """A package store behind a proxy, and all who read it."""

    def __init__(self, url: str, folder: Path, put: Callable[[Answer | None, str], None]) -> None:
        self.folder = folder
        self.put = put  # an answer in the place of those whose path or query holds a text
        self.url = url
        self.store = PackageStore(url)
        self.index = ConversionIndex(url, self.store, KEYS)
        self.manifest = packed(folder / "made")
        self.ref: ModelRef = self.store.publish(folder / "made", self.manifest)
        self.package = self.index.put("options", self.ref)
        self.mark = StoreMark(url, KEYS)
        assert not self.mark.claim()
        self._fetched = 0

    def fetch(self) -> object:
        """As a loader without a copy of its own."""
        self._fetched += 1
        return LocalPackages(self.store, self.folder / f"cache-{self._fetched}").fetch(self.ref)

    def settle(self) -> None:
        """The proxy is gone, and everything is as it was."""
        self.put(None, "")
        assert self.store.packages() == [self.ref.package]
        assert self.store.leftovers() == []
        assert self.store.verify(self.ref.package) == self.manifest
        assert self.index.get("options") == self.package
        assert not self.mark.claim()
        self.fetch()


@contextmanager
def opened(kind: str, folder: Path) -> Iterator[World]:
    if kind == "mlflow":
        mlflow = fake_mlflow.FakeMlflow(folder / "artifacts")

        def in_place(answer: Answer | None, only: str) -> None:
            told = None if answer is None else (answer.status, answer.body)
            mlflow.missing = 0 if answer is None else answer.missing
            mlflow.script = lambda path, _query: told if only in path else None

        with fake_mlflow.serve(mlflow):
            yield World(f"mlflow-artifacts+{mlflow.uri}/headrace/packages", folder, in_place)
        return
    store = fake_object_store.FakeObjectStore()

    def before(answer: Answer | None, only: str) -> None:
        store.script = lambda asked: answer if only in _whole(asked) else None

    with pytest.MonkeyPatch.context() as patch, fake_object_store.serve(store, patch):
        yield World(f"s3://{fake_object_store.BUCKET}/packages", folder, before)


@pytest.fixture(scope="module", params=["mlflow", "s3"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """Each test leaves it as it was."""
    with opened(request.param, tmp_path_factory.mktemp("world")) as made:
        yield made


def _whole(request: Request) -> str:
    return f"{request.path}?{request.query}"


@pytest.mark.parametrize("fault", FAULTS)
def test_no_answer_of_others_says_that_a_package_is_gone_or_damaged(
    world: World, fault: str
) -> None:
    world.put(FAULTS[fault], "")
    asked: list[Callable[[], object]] = [
        world.store.packages,
        world.store.leftovers,
        lambda: world.store.manifest(world.ref.package),
        lambda: world.store.verify(world.ref.package),
        lambda: world.store.fetch(world.ref.package, world.folder / "fetched"),
        lambda: world.index.get("options"),
        lambda: world.index.signature(world.ref),
        lambda: world.store.publish(world.folder / "made", world.manifest),
        world.mark.claim,
    ]
    for ask in asked:
        with pytest.raises(StoreUnavailableError):
            ask()
    with pytest.raises(PackageUnavailableError) as found:
        world.fetch()
    assert not isinstance(found.value, PackageBrokenError)
    world.settle()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("only", [MANIFEST, "model.onnx"])
def test_no_answer_of_others_in_the_place_of_one_file_says_that_it_is_damaged(
    world: World, fault: str, only: str
) -> None:
    world.put(FAULTS[fault], only)
    with pytest.raises(StoreUnavailableError):
        world.store.verify(world.ref.package)
    with pytest.raises(PackageUnavailableError) as found:
        world.fetch()
    assert not isinstance(found.value, PackageBrokenError)
    world.settle()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", ["json", "mac"])
def test_no_answer_of_others_has_a_version_converted_again(
    world: World, fault: str, kind: str
) -> None:
    world.put(FAULTS[fault], f"options.{kind}")
    with pytest.raises(StoreUnavailableError):
        world.index.get("options")
    world.settle()


@pytest.mark.parametrize("fault", FAULTS)
def test_no_answer_of_others_takes_a_store_from_its_release(world: World, fault: str) -> None:
    world.put(FAULTS[fault], "release.mark")
    with pytest.raises(StoreUnavailableError):
        StoreMark(world.url, (b"another" * 8,)).claim()
    world.settle()


@pytest.mark.parametrize("kind", ["mlflow", "s3"])
def test_what_the_store_itself_says_is_believed(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as world:
        _damage(world)


def _damage(world: World) -> None:
    with pytest.raises(PackageMissingError):
        world.store.manifest("0" * 64)
    assert world.index.get("nothing") is None
    files, root = fsspec.core.url_to_fs(world.url)
    files.pipe_file(f"{root}/{world.ref.package}/model.onnx", b"weightz")
    with pytest.raises(PackageDamagedError, match=r"model\.onnx"):
        world.store.verify(world.ref.package)
    with pytest.raises(PackageBrokenError):
        world.fetch()
    files.rm(f"{root}/{world.ref.package}/model.onnx")
    with pytest.raises(PackageDamagedError, match=r"model\.onnx"):
        world.store.verify(world.ref.package)


def test_every_file_that_s3_is_sent_has_a_checksum_that_s3_itself_proves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = fake_object_store.FakeObjectStore()
    checked: dict[str, bool] = {}

    def note(request: Request) -> None:
        names = {name.lower(): value for name, value in request.headers.items()}
        if request.method == "PUT" and request.path.count("/") > 1:
            told = names.get("x-amz-trailer", "") + "".join(names)
            checked[request.path.rpartition("/")[2]] = "x-amz-checksum-" in told

    with fake_object_store.serve(fake, monkeypatch):
        store = PackageStore(f"s3://{fake_object_store.BUCKET}/packages")
        fake.script = note
        manifest = packed(tmp_path / "made")
        store.publish(tmp_path / "made", manifest)
    assert checked == dict.fromkeys((*manifest.files, MANIFEST), True)


def test_a_connection_that_ends_without_an_answer_is_a_store_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = fake_object_store.FakeObjectStore()

    def hang_up(_: Request) -> Answer:
        raise HangUpError

    with fake_object_store.serve(fake, monkeypatch):
        store = PackageStore(f"s3://{fake_object_store.BUCKET}/packages")
        ref = store.publish(tmp_path / "made", packed(tmp_path / "made"))
        fake.script = hang_up
        for ask in (store.packages, lambda: store.verify(ref.package)):
            with pytest.raises(StoreUnavailableError):
                ask()
        fake.script = lambda _: None
        store.verify(ref.package)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Drivers of stores that give an answer 0.4 s, by fsspec's own settings."""
    found = {
        "s3": {"config_kwargs": {"read_timeout": 0.4}},
        "mlflow-artifacts+http": {"seconds": 0.4},
    }
    for protocol, options in found.items():
        monkeypatch.setitem(fsspec.config.conf, protocol, options)
    yield
    for protocol in found:
        fsspec.get_filesystem_class(protocol).clear_instance_cache()


@pytest.mark.parametrize("head", [LONG_HEAD, _HEAD], ids=["head", "body"])
@pytest.mark.parametrize("kind", ["s3", "mlflow"])
@pytest.mark.usefixtures("brief")
def test_a_store_that_drips_is_away_once_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, head: bytes
) -> None:
    ref = packed(tmp_path / "made").ref()
    fake = fake_object_store.FakeObjectStore()
    with dripping(head) as port, fake_object_store.serve(fake, monkeypatch):
        server = f"http://127.0.0.1:{port}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", server)
        url = "s3://models/packages" if kind == "s3" else f"mlflow-artifacts+{server}/packages"
        store = PackageStore(url)
        local = LocalPackages(store, tmp_path / "local")
        for ask in (
            store.packages,
            lambda: store.verify(ref.package),
            lambda: store.publish(tmp_path / "made", packed(tmp_path / "made")),
            lambda: store.delete(ref.package),
        ):
            with pytest.raises(StoreUnavailableError, match=r"came within 0\.4 s"):
                ask()
        with pytest.raises(PackageUnavailableError, match=r"came within 0\.4 s"):
            local.fetch(ref)
        with pytest.raises(PackageError, match=r"came within 0\.4 s"):
            StorePackages(url, tmp_path / "cache").open(ref)
        files, root = fsspec.core.url_to_fs(url)
        with pytest.raises(OSError, match=r"came within 0\.4 s"):
            files.get_file(f"{root}/{ref.package}/model.onnx", str(tmp_path / "model.onnx"))


def test_what_another_writes_between_a_question_and_its_list_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = fake_object_store.FakeObjectStore()
    with fake_object_store.serve(fake, monkeypatch):
        store = PackageStore(f"s3://{fake_object_store.BUCKET}/packages")
        ref = store.publish(tmp_path / "made", packed(tmp_path / "made"))
        late = [Answer(404)]  # the first who asks is a little too early

        def asked_early(request: Request) -> Answer | None:
            asks = request.method == "HEAD" and request.path.endswith(MANIFEST)
            return late.pop() if asks and late else None

        fake.script = asked_early
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        again = PackageStore(f"s3://{fake_object_store.BUCKET}/packages")
        assert again.publish(tmp_path / "made", packed(tmp_path / "made")) == ref
        assert not late
