"""An S3 server in memory, on a real socket, as far as the package store's client asks.

``tests/registry/packages/test_store.py`` holds it to the contract that all stores keep. With
``script`` a test answers in its place, as a proxy before it would; a script may raise
``HangUpError``, or wait.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

import fsspec
import pytest
from dripping import Drip
from http_server import Answer, Request

BUCKET = "models"
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_MADE = "2026-01-01T00:00:00.000Z"


class HangUpError(Exception):
    """The connection ends without an answer."""


@dataclass
class FakeObjectStore:
    """One bucket. ``script`` answers in its place where it does not say None."""

    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)  # parts of what is unseen
    asked: list[tuple[str, str]] = field(default_factory=list)  # method, and path with query
    script: Callable[[Request], Answer | None] = lambda request: None
    url: str = ""

    def respond(self, request: Request) -> Answer:
        """What is answered to a request."""
        self.asked.append((request.method, request.path))
        instead = self.script(request)
        return self._answer(request) if instead is None else instead

    def _answer(self, request: Request) -> Answer:
        key = request.path.removeprefix(f"/{BUCKET}").lstrip("/")
        if request.method == "GET" and "list-type" in request.query:
            return self._list(request.query)
        if "uploads" in request.query or "uploadId" in request.query:
            return self._upload(key, request)
        if request.method == "POST":
            for name in re.findall(r"<Key>(.*?)</Key>", request.body.decode()):
                self.objects.pop(name, None)
            return Answer(200, f'{HEAD}<DeleteResult xmlns="{_NAMESPACE}"></DeleteResult>')
        if request.method == "PUT":
            return self._take(key, request)
        if request.method == "DELETE":
            self.objects.pop(key, None)
            return Answer(204)
        found = self.objects.get(key)
        return _refused("NoSuchKey") if found is None else _sent(found, request)

    def _take(self, key: str, request: Request) -> Answer:
        if (source := request.headers.get("x-amz-copy-source")) is None:
            return self._put(key, _without_chunks(request))
        found = self.objects.get(unquote(source).removeprefix("/").removeprefix(f"{BUCKET}/"))
        return _refused("NoSuchKey") if found is None else self._put(key, found, copied=True)

    def _put(self, key: str, data: bytes, *, copied: bool = False) -> Answer:
        if key:  # else it is the bucket that is made
            self.objects[key] = data
        body = f"<CopyObjectResult><ETag>{_etag(data)}</ETag></CopyObjectResult>" if copied else ""
        return Answer(200, f"{HEAD}{body}" if body else "", headers={"ETag": _etag(data)})

    def _upload(self, key: str, request: Request) -> Answer:
        """A file that comes in parts, and is there once it is said to be whole."""
        name = request.query.get("uploadId", "")
        if not name:
            name = f"upload-{len(self.asked)}"
            self.uploads[name] = {}
            said = f"<UploadId>{name}</UploadId>"
            return Answer(
                200,
                f"{HEAD}<InitiateMultipartUploadResult>{said}</InitiateMultipartUploadResult>",
            )
        if name not in self.uploads:
            return _refused("NoSuchUpload")
        if request.method == "PUT":
            data = _without_chunks(request)
            self.uploads[name][int(request.query["partNumber"])] = data
            return Answer(200, headers={"ETag": _etag(data)})
        parts = self.uploads.pop(name)
        if request.method == "DELETE":
            return Answer(204)
        self._put(key, b"".join(parts[number] for number in sorted(parts)))
        said = f"<ETag>{_etag(self.objects[key])}</ETag>"
        return Answer(
            200,
            f"{HEAD}<CompleteMultipartUploadResult>{said}</CompleteMultipartUploadResult>",
        )

    def _list(self, query: dict[str, str]) -> Answer:
        prefix, most = query.get("prefix", ""), int(query.get("max-keys", "1000"))
        folders: set[str] = set()
        files = []
        for key in sorted(name for name in self.objects if name.startswith(prefix)):
            below, mark, _ = key[len(prefix) :].partition("/")
            if mark and query.get("delimiter"):
                folders.add(f"{prefix}{below}/")
            else:
                files.append(key)
        parts = [
            f"<Contents><Key>{escape(key)}</Key><LastModified>{_MADE}</LastModified>"
            f"<ETag>{_etag(self.objects[key])}</ETag><Size>{len(self.objects[key])}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
            for key in files[:most]
        ]
        parts += [
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            for name in sorted(folders)[: most - len(parts)]
        ]
        return Answer(
            200,
            f'{HEAD}<ListBucketResult xmlns="{_NAMESPACE}"><Name>{BUCKET}</Name>'
            f"<Prefix>{escape(prefix)}</Prefix><KeyCount>{len(parts)}</KeyCount>"
            f"<MaxKeys>{most}</MaxKeys><IsTruncated>false</IsTruncated>{''.join(parts)}"
            "</ListBucketResult>",
        )


def _refused(code: str) -> Answer:
    return Answer(404, f"{HEAD}<Error><Code>{code}</Code><Message>not there</Message></Error>")


def _sent(data: bytes, request: Request) -> Answer:
    headers = {"ETag": _etag(data), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
    asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
    if asked is None:
        return Answer(200, data, headers=headers)
    begin, end = int(asked[1]), int(asked[2] or len(data) - 1)
    return Answer(206, data[begin : end + 1], headers=headers)


def _without_chunks(request: Request) -> bytes:
    """What an upload holds; clients sign it in chunks, with a checksum behind."""
    if "aws-chunked" not in request.headers.get("Content-Encoding", ""):
        return request.body
    found, rest = bytearray(), request.body
    while rest:
        head, _, rest = rest.partition(b"\r\n")
        size = int(head.partition(b";")[0] or b"0", 16)
        if not size:
            break
        found += rest[:size]
        rest = rest[size + 2 :]
    return bytes(found)


def _etag(data: bytes) -> str:
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeObjectStore

    def _respond(self) -> None:
        url = urlsplit(self.path)
        body = self._body()
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        request = Request(self.command, unquote(url.path), query, dict(self.headers.items()), body)
        try:
            answer = self.fake.respond(request)
        except HangUpError:
            self.close_connection = True
            return
        if isinstance(answer.body, Drip):
            answer.body.answer(self)
            return
        said = answer.body if isinstance(answer.body, bytes) else str(answer.body).encode()
        with suppress(ConnectionError):
            self.send_response(answer.status)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(said)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(said[: len(said) - answer.missing])
        if answer.missing:
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _respond  # noqa: N815 - the base's names

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = bytearray()
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(found)

    def log_message(self, *_: object) -> None:
        """Says nothing: a test's output is its own."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no error."""


@contextmanager
def serve(fake: FakeObjectStore, patch: pytest.MonkeyPatch) -> Iterator[FakeObjectStore]:
    """Serves ``fake`` on a free port until the block ends; clients of this process find it.

    They try nothing twice within it.
    """
    handler = type("Handler", (_Handler,), {"fake": fake})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    variables = {
        "AWS_ACCESS_KEY_ID": "headrace",
        "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-tests",
        "AWS_ENDPOINT_URL": fake.url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
    }
    for name, value in variables.items():
        patch.setenv(name, value)
    drivers = fsspec.get_filesystem_class("s3")
    patch.setattr(drivers, "retries", 1)
    drivers.clear_instance_cache()
    try:
        yield fake
    finally:
        drivers.clear_instance_cache()
        server.shutdown()
        server.server_close()
        thread.join()
