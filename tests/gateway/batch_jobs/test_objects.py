"""Of several who create one object, one succeeds, in each kind of store; or it is refused."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fake_object_store
import pytest
from fake_object_store import BUCKET, HEAD, FakeObjectStore
from front_fakes import memory_url
from http_server import Answer, Request

from gateway.batch_jobs.multipart import PartBegins, UploadForm
from gateway.batch_jobs.objects import ObjectFolder, StoreUrlError
from gateway.errors import BadRequestError, BatchStoreUnavailableError

URL = f"s3://{BUCKET}/batches"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeObjectStore]:
    with fake_object_store.serve(FakeObjectStore(), monkeypatch) as fake:
        yield fake


def knows_conditions(fake: FakeObjectStore, more: str) -> None:
    """Has it refuse to write over what is there, if it is asked so."""

    def script(request: Request) -> Answer | None:
        names = {name.lower(): value for name, value in request.headers.items()}
        key = request.path.removeprefix(f"/{BUCKET}/")
        if request.method != "PUT" or names.get("if-none-match") != "*" or key not in fake.objects:
            return None
        said = f"<Error><Code>PreconditionFailed</Code><Message>it is there</Message>{more}</Error>"
        return Answer(412, f"{HEAD}{said}")

    fake.script = script


def check(objects: ObjectFolder) -> None:
    assert objects.create("a/one", b"1")
    assert not objects.create("a/one", b"2")
    assert objects.read("a/one") == b"1"
    objects.put("a/one", b"3")
    assert objects.read("a/one") == b"3"
    assert (objects.names("a"), objects.names("b")) == (["one"], [])
    objects.remove("a")
    assert (objects.read("a/one"), objects.names("a")) == (None, [])
    objects.remove("a")


def test_a_folder_and_memory_create_once(tmp_path: Path) -> None:
    for url in (f"file://{tmp_path}/store", memory_url()):
        check(ObjectFolder(url))


@pytest.mark.parametrize("more", ["<Condition>If-None-Match</Condition>", ""])  # AWS, and others
def test_a_bucket_that_knows_conditional_writes_creates_once(
    store: FakeObjectStore, more: str
) -> None:
    knows_conditions(store, more)
    objects = ObjectFolder(URL)
    check(objects)
    # The answer to the first try is lost, and the driver asks again.
    store.objects["batches/lost"] = b"mine"
    assert objects.create("lost", b"mine")


def test_a_bucket_that_writes_over_everything_is_refused(store: FakeObjectStore) -> None:
    with pytest.raises(BatchStoreUnavailableError, match="no conditional writes"):
        ObjectFolder(URL).create("a/one", b"1")
    assert store.objects == {}


def test_of_many_threads_one_creates(tmp_path: Path) -> None:
    objects = ObjectFolder(f"file://{tmp_path}")
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda i: objects.create("one", b"%d" % i), range(50)))
    assert sum(found) == 1
    assert objects.read("one") == b"%d" % found.index(True)


def test_a_store_that_is_away_is_said_to_be_away(store: FakeObjectStore) -> None:
    store.script = lambda _: Answer(500, "no")
    objects = ObjectFolder(URL)
    for ask in (
        lambda: objects.read("a"),
        lambda: objects.put("a", b""),
        lambda: objects.names(""),
    ):
        with pytest.raises(BatchStoreUnavailableError, match="can't be reached"):
            ask()
    with pytest.raises(StoreUrlError, match="--batches-url=nothing://x"):
        ObjectFolder("nothing://x")


FORM = (
    b'preamble\r\n--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n'
    b"Content-Type: text/plain\r\n\r\nl1\r\n--\r\n--y\r\nl2\r\n--x--\r\nrest"
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_form_is_read_alike_however_it_is_cut(size: int) -> None:
    form = UploadForm(b'Multipart/Form-Data; charset=utf-8; boundary="x"')
    values: dict[PartBegins, bytes] = {}
    part = PartBegins("", "")
    for start in range(0, len(FORM), size):
        for found in form.feed(FORM[start : start + size]):
            if isinstance(found, PartBegins):
                part = found
                values[part] = b""
            else:
                values[part] += found
    assert form.is_over
    assert values == {
        PartBegins("purpose", ""): b"batch",
        PartBegins("file", "a.jsonl"): b"l1\r\n--\r\n--y\r\nl2",
    }


def test_what_is_no_form_is_refused() -> None:
    for kind in (b"", b"application/json", b"multipart/form-data"):
        with pytest.raises(BadRequestError, match="has to be a form"):
            UploadForm(kind)
    head = b"multipart/form-data; boundary=x"
    for broken in (b"--x\r\n\r\n\r\n", b"--x\r\n" + b"a" * 10_000, b"--x\r\nb: c\r\n\r\n"):
        with pytest.raises(BadRequestError):
            list(UploadForm(head).feed(broken))
