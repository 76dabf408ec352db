"""A small API server: what Headrace uses of Kubernetes, held to the same tests as a real one.

Objects of any kind by name, resourceVersions, a status apart from the rest, watches with bookmarks,
revisions that expire, merge patches, logs. It validates nothing and owns no controllers.
"""

import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from dripping import Drip

from gateway.state.pod_reader import PodReader
from service.cluster.client import ClusterClient

Object = dict[str, Any]
NAMESPACE = "models"
PATIENT_SECONDS = 60.0  # of a client: the server is of this process, and a busy machine stops it


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """An answer that is no object."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Event:
    number: int
    collection: str
    kind: str
    item: Object


@dataclass
class World:
    """What is stored, and what happened. All under ``changed``."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    items: dict[tuple[str, str], Object] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    number: int = 100
    oldest: int = 0
    user: str = "anna@example.com"  # who asks, as the server knows
    namespaces: tuple[str, ...] = (NAMESPACE,)
    away: bool = False
    broken: int = 0  # watches begun before this many breaks have ended
    said: list[tuple[int, bytes]] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)  # of the same
    signed_in: list[str] = field(default_factory=list)  # as, for each of the same
    watched_from: list[int] = field(default_factory=list)
    refusals: dict[str, Refused] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)  # requests that are not answered yet
    # What a proxy before it says in its place, to ``GET /apis/...?query``: a status and a body.
    script: Callable[[str], tuple[int, bytes | Drip] | None] = lambda request: None

    def store(self, collection: str, item: Object, kind: str) -> Object:
        self.number += 1
        item["metadata"]["resourceVersion"] = str(self.number)
        name = item["metadata"]["name"]
        if kind == "DELETED":
            del self.items[collection, name]
        else:
            self.items[collection, name] = item
        self.events.append(Event(self.number, collection, kind, copied(item)))
        self.changed.notify_all()
        return item

    def await_more(self, seen: int, broken: int, until: float) -> None:
        """Until something happens to a watch, or its time is over."""
        self.changed.wait_for(
            lambda: self.number != seen or self.away or self.broken > broken,
            timeout=min(30.0, until - time.monotonic()),
        )

    def found(self, collection: str, name: str) -> Object:
        try:
            return self.items[collection, name]
        except KeyError:
            raise Refused(404, f"{name} not found") from None


class Fake:
    """The server, as tests hold it."""

    def __init__(self, port: int, scheme: str) -> None:
        self.world = World()
        self.port = port
        self.server = f"{scheme}://127.0.0.1:{port}"

    def client(self, timeout_seconds: float = PATIENT_SECONDS) -> ClusterClient:
        """Through the official client, which takes half a second to import."""
        import kubernetes

        configuration = kubernetes.client.Configuration(host=self.server)
        return ClusterClient(configuration, namespace=NAMESPACE, timeout_seconds=timeout_seconds)

    def pod_reader(self) -> PodReader:
        """As a gateway in a pod reads."""
        return PodReader("127.0.0.1", self.port, timeout_seconds=PATIENT_SECONDS)

    def go_away(self) -> None:
        """Answers nothing from now on, and ends every watch."""
        with self.world.changed:
            self.world.away = True
            self.world.changed.notify_all()

    def come_back(self) -> None:
        with self.world.changed:
            self.world.away = False

    def break_watches(self) -> None:
        with self.world.changed:
            self.world.broken += 1
            self.world.changed.notify_all()

    def say(self, line: bytes) -> None:
        """Says a line in every watch, whatever it is."""
        with self.world.changed:
            self.world.number += 1
            self.world.said.append((self.world.number, line))
            self.world.changed.notify_all()

    def expire(self) -> None:
        """Forgets what happened: every watch from before is answered 410."""
        with self.world.changed:
            self.world.number += 1
            self.world.oldest = self.world.number
            self.world.changed.notify_all()

    def restore(self, number: int) -> None:
        """Goes back to the revisions of a backup, with what is stored: no watch can go on."""
        with self.world.changed:
            self.world.number = self.world.oldest = number
            self.world.changed.notify_all()

    def refuse(self, request: str, status: int, message: str = "no") -> None:
        """Answers a request, such as ``PUT /apis/...``, by a refusal from now on."""
        self.world.refusals[request] = Refused(status, message)

    @contextmanager
    def held(self, request: str) -> Iterator[None]:
        """Answers a request, as ``refuse`` has it, no sooner than the block ends."""
        with self.world.changed:
            self.world.held.add(request)
        try:
            yield
        finally:
            with self.world.changed:
                self.world.held.remove(request)
                self.world.changed.notify_all()

    def namespaces(self, *names: str) -> None:
        """Has these namespaces from now on."""
        self.world.namespaces = names

    def all(self, plural: str) -> list[Object]:
        with self.world.changed:
            return [
                copied(item)
                for (path, _), item in sorted(self.world.items.items())
                if path.endswith(f"/{plural}")
            ]

    def write(self, collection: str, item: Object) -> None:
        """Stores an object as something else in the cluster would."""
        with self.world.changed:
            name = item["metadata"]["name"]
            kind = "MODIFIED" if (collection, name) in self.world.items else "ADDED"
            self.world.store(collection, copied(item), kind)

    def remove(self, collection: str, name: str) -> None:
        with self.world.changed:
            self.world.store(collection, copied(self.world.found(collection, name)), "DELETED")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms for the headers to be acknowledged
    fake: Fake

    def log_message(self, *args: object) -> None:
        """Says nothing."""

    def _answer(self) -> None:
        world = self.fake.world
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        request = f"{self.command} {url.path}"
        with world.changed:
            world.asked.append(request)
            world.queries.append(url.query)
            world.signed_in.append(self.headers["Authorization"] or "")
            if world.away:
                self.close_connection = True
                return
            world.changed.wait_for(lambda: request not in world.held, timeout=60)
            refusal = world.refusals.get(request)
        if (instead := world.script(f"{self.command} {self.path}")) is not None:
            self._send(*instead)
            return
        try:
            if refusal is not None:
                raise refusal
            if query.get("watch"):
                self._watch(url.path, query)
                return
            with world.changed:
                answer = self._rehearsed(url.path, query, body)
        except Refused as refused:
            answer = status_of(refused.status, str(refused))
            self._send(refused.status, json.dumps(answer).encode())
            return
        self._send(200, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - the base's names

    def _send(self, status: int, data: bytes | Drip) -> None:
        if isinstance(data, Drip):
            data.answer(self)
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _done(self, path: str, query: dict[str, str], body: Object) -> Object | bytes:
        world = self.fake.world
        root, _, rest = path.partition("/namespaces/")
        namespace, plural, *below = rest.split("/")
        collection = f"{root}/namespaces/{namespace}/{plural}"
        name, part = [*below, "", ""][:2]
        if self.command == "GET" and part == "log":
            return self._log(world.items.get((collection, name)), name, query)
        if self.command == "GET" and not name:
            if (least := int(query.get("resourceVersion", "0"))) > world.number:
                said = f"Timeout: Too large resource version: {least}, current: {world.number}"
                raise Refused(504, said)
            found = [item for (at, _), item in sorted(world.items.items()) if at == collection]
            chosen = [item for item in found if selected(item, query)]
            return {"metadata": {"resourceVersion": str(world.number)}, "items": chosen}
        if self.command == "GET":
            return world.found(collection, name)
        if self.command == "POST":
            return self._create(collection, namespace, body)
        stored = world.found(collection, name)
        if self.command == "DELETE":
            return world.store(collection, copied(stored), "DELETED")
        if self.command == "PATCH":
            if self.headers["Content-Type"] != "application/merge-patch+json":
                raise Refused(415, "this patch is not supported")
            body = merged(stored, body)
        revision = body["metadata"].get("resourceVersion", stored["metadata"]["resourceVersion"])
        if revision != stored["metadata"]["resourceVersion"]:
            raise Refused(409, "the object has been modified")
        return world.store(collection, updated(stored, body, part), "MODIFIED")

    def _log(self, pod: Object | None, name: str, query: dict[str, str]) -> bytes:
        """Of the container that is named, or of the only one there is."""
        containers = ((pod or {}).get("spec") or {}).get("containers") or ()
        names = [each["name"] for each in containers]
        if len(names) > 1 and query.get("container") not in names:
            raise Refused(400, f"a container name must be specified for pod {name}")
        return self.fake.world.logs.get(name, "").encode()

    def _rehearsed(self, path: str, query: dict[str, str], body: Object) -> Object | bytes:
        """As asked, and as it was before if the query asks for a dry run.

        Such a create is answered without a ``resourceVersion``, and such a change with that of
        what is stored, as an API server does (1.34).
        """
        world = self.fake.world
        if path.endswith("/selfsubjectreviews"):
            return {"status": {"userInfo": {"username": world.user}}}
        if path == "/api/v1/namespaces":
            return {"items": [{"metadata": {"name": name}} for name in world.namespaces]}
        if query.get("dryRun") != "All":
            return self._done(path, query, body)
        before = dict(world.items), list(world.events), world.number
        try:
            answer = self._done(path, query, body)
            done = answer if isinstance(answer, bytes) else copied(answer)
            if isinstance(done, dict):
                collection, _, name = path.removesuffix("/status").rpartition("/")
                stored = before[0].get((collection, name), {"metadata": {}})
                done["metadata"].pop("resourceVersion")
                if revision := stored["metadata"].get("resourceVersion"):
                    done["metadata"]["resourceVersion"] = revision
            return done
        finally:
            world.items, world.events, world.number = before

    def _create(self, collection: str, namespace: str, body: Object) -> Object:
        world = self.fake.world
        if (collection, body["metadata"]["name"]) in world.items:
            raise Refused(409, f"{body['metadata']['name']} already exists")
        item = {name: value for name, value in body.items() if name != "status"}
        item["metadata"] = {
            **body["metadata"],
            "namespace": namespace,
            "uid": f"uid-{world.number}",
            "generation": 1,
        }
        return world.store(collection, item, "ADDED")

    def _watch(self, collection: str, query: dict[str, str]) -> None:
        world = self.fake.world
        seen = int(query["resourceVersion"])
        with world.changed:
            broken = world.broken
            world.watched_from.append(seen)
            if seen < world.oldest:
                raise Refused(410, "too old resource version")
            if seen > world.number:
                raise Refused(504, f"Timeout: Too large resource version: {seen}")
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        ended, until = False, time.monotonic() + float(query.get("timeoutSeconds", "3600"))
        while not ended:
            with world.changed:
                world.await_more(seen, broken, until)
                fresh = [event for event in world.events if event.number > seen]
                said = [line for number, line in world.said if number > seen]
                expired = world.oldest > seen
                over = time.monotonic() >= until
                ended = expired or over or world.away or world.broken > broken
                if world.away or world.number < seen:
                    break  # without a last word: it went away, or has gone back to a backup
                seen = world.number
            for event in fresh:
                if event.collection == collection and selected(event.item, query):
                    self._chunk(event.kind, event.item)
            for line in said:
                self._line(line)
            if expired:
                self._chunk("ERROR", status_of(410, "too old resource version"))
                continue
            self._chunk("BOOKMARK", {"metadata": {"resourceVersion": str(seen)}})
        self.close_connection = True

    def _chunk(self, kind: str, item: Object) -> None:
        self._line(json.dumps({"type": kind, "object": item}).encode())

    def _line(self, line: bytes) -> None:
        """One of a watch, in a chunk of its own."""
        self.wfile.write(f"{len(line) + 1:x}\r\n".encode() + line + b"\n\r\n")
        self.wfile.flush()


def copied(item: Object) -> Object:
    """All that is stored comes and goes as JSON, which is copied so several times as fast."""
    made: Object = json.loads(json.dumps(item))
    return made


def status_of(code: int, message: str) -> Object:
    """What the API server answers, or says in a watch, in place of an object."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "Expired" if code == 410 else "Unknown",
        "message": message,
        "code": code,
    }


def selected(item: Object, query: dict[str, str]) -> bool:
    """By the selectors that Headrace uses: ``label=value,...``, or ``label in (value,...)``."""
    selector = query.get("labelSelector", "")
    labels = item["metadata"].get("labels") or {}
    label, is_set, values = selector.partition(" in ")
    if is_set:
        return labels.get(label) in values.strip("()").split(",")
    wanted = dict(part.split("=") for part in selector.split(",") if part)
    return wanted.items() <= labels.items()


def merged(before: Object, patch: Object) -> Object:
    made = copied(before)
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        elif isinstance(value, dict) and isinstance(made.get(name), dict):
            made[name] = merged(made[name], value)
        else:
            made[name] = value
    return made


def updated(stored: Object, body: Object, part: str) -> Object:
    """As a resource with a status subresource: the status alone, or all but it."""
    if part == "status":
        return {**copied(stored), "status": body.get("status")}
    made = {name: value for name, value in body.items() if name != "status"}
    if "status" in stored:
        made["status"] = stored["status"]
    kept = {
        key: stored["metadata"][key] for key in ("uid", "namespace") if key in stored["metadata"]
    }
    changed = made.get("spec") != stored.get("spec")
    generation = int(stored["metadata"].get("generation", 1)) + changed
    made["metadata"] = {**made["metadata"], **kept, "generation": generation}
    return made


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error."""


@contextmanager
def fake_kubernetes(certificate: tuple[Path, Path] | None = None) -> Iterator[Fake]:
    """A server on a free port; with a certificate and its key it speaks TLS."""
    handler = type("BoundHandler", (Handler,), {})
    server = Server(("127.0.0.1", 0), handler)
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificate)
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    scheme = "https" if certificate else "http"
    fake = handler.fake = Fake(server.server_address[1], scheme)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        fake.go_away()
        server.shutdown()
        server.server_close()
        thread.join()


def write_kubeconfig(folder: Path, server: str) -> Path:
    """Writes one whose only context reaches ``server``; returns its path."""
    path = folder / "kubeconfig"
    said = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "nobody"}}],
        "clusters": [{"name": "fake", "cluster": {"server": server}}],
        "users": [{"name": "nobody", "user": {}}],
    }
    path.write_text(json.dumps(said))
    return path
