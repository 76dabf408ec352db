"""Every answer, and the lack of one, becomes a value or an error that says what happened.

What reads is the official client or a gateway's own reader: the first tests hold both to the same.
"""

import json
import socket
import urllib.parse
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from dripping import CHUNKS, HEAD, LONG_HEAD, dripping
from fake_kubernetes import NAMESPACE, Fake

from gateway.state.pod_reader import PodReader
from service.cluster import errors
from service.cluster.client import ClusterClient
from service.cluster.collection import Collection, Reader, WatchStream
from service.cluster.errors import (
    ApiRefusedError,
    ApiUnavailableError,
    ConflictError,
    ExpiredError,
    MissingError,
    ObjectTooLargeError,
    RevisionAheadError,
    UnreadableEventError,
)

LEASES = Collection("coordination.k8s.io/v1", "leases", NAMESPACE, "app=a")
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def test_a_collection_knows_its_paths() -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/models/leases"
    assert LEASES.path == path
    assert LEASES.path_of("l", "status") == f"{path}/l/status"


STATUSES = pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, ApiRefusedError),
        (403, ApiRefusedError),
        (404, MissingError),
        (409, ConflictError),
        (410, ExpiredError),
        (422, ApiRefusedError),
        (429, ApiUnavailableError),
        (500, ApiUnavailableError),
        (503, ApiUnavailableError),
    ],
)


@STATUSES
def test_a_refusal_is_an_error_with_the_servers_own_words(
    fake: Fake, reader: Reader, status: int, kind: type[Exception]
) -> None:
    fake.refuse(f"GET {LEASES.path}", status, "because of this")
    with pytest.raises(kind, match="because of this"):
        reader.list(LEASES)
    with pytest.raises(kind, match="because of this"):
        watch(reader)


def test_a_list_holds_what_was_asked_for_and_its_revision(fake: Fake, reader: Reader) -> None:
    fake.write(LEASES.path, {"metadata": {"name": "l", "labels": {"app": "a"}}, "odd": {"n": 1}})
    fake.write(LEASES.path, {"metadata": {"name": "other"}})
    (found,), revision = reader.list(LEASES)
    assert found["odd"] == {"n": 1}
    assert revision == str(fake.world.number)


def test_a_list_may_be_asked_to_be_no_older_than_a_revision(fake: Fake, reader: Reader) -> None:
    fake.write(LEASES.path, {"metadata": {"name": "l", "labels": {"app": "a"}}})
    for revision in ("0", str(fake.world.number)):
        (found,), _ = reader.list(LEASES, revision)
        assert found["metadata"]["name"] == "l"
        asked = dict(urllib.parse.parse_qsl(fake.world.queries[-1]))
        assert asked["resourceVersion"] == revision
        assert asked["resourceVersionMatch"] == "NotOlderThan"
    with pytest.raises(RevisionAheadError, match="Too large resource version"):
        reader.list(LEASES, str(fake.world.number + 1))


def test_a_server_that_is_away_is_an_error_of_its_own(fake: Fake, reader: Reader) -> None:
    fake.go_away()
    with pytest.raises(ApiUnavailableError, match="does not answer"):
        reader.list(LEASES)


def mute(port: int) -> dict[str, Any]:
    import kubernetes

    configuration = kubernetes.client.Configuration(host=f"http://127.0.0.1:{port}")
    return {
        "official": ClusterClient(configuration, timeout_seconds=0.1),
        "pod": PodReader("127.0.0.1", port, timeout_seconds=0.1),
    }


@pytest.mark.parametrize("name", ["official", "pod"])
def test_a_server_that_says_nothing_is_asked_once_and_given_up(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reader = mute(server.getsockname()[1])[name]
        with pytest.raises(ApiUnavailableError, match="does not answer"):
            reader.list(LEASES)
        with pytest.raises(ApiUnavailableError, match="does not answer"):
            watch(reader, "7")
        server.settimeout(0.05)
        for _ in range(2):
            server.accept()[0].close()
        with pytest.raises(TimeoutError):
            server.accept()


def watch(reader: Reader, revision: str = "1", *, most_seconds: float = 60) -> WatchStream:
    return reader.watch(LEASES, revision, seconds=60, most_seconds=most_seconds)


@pytest.mark.parametrize("head", [LONG_HEAD, HEAD, CHUNKS], ids=["head", "body", "chunk"])
@pytest.mark.parametrize("name", ["official", "pod"])
def test_a_list_that_drips_is_given_up_when_its_time_is_over(name: str, head: bytes) -> None:
    with dripping(head) as port, pytest.raises(ApiUnavailableError, match="no whole answer came"):
        mute(port)[name].list(LEASES)


@pytest.mark.parametrize("name", ["official", "pod"])
def test_a_watch_that_drips_is_given_up_when_its_time_is_over(name: str) -> None:
    with (
        dripping(LONG_HEAD) as port,
        pytest.raises(ApiUnavailableError, match="no whole answer came"),
    ):
        watch(mute(port)[name])
    with dripping(CHUNKS) as port:
        stream = watch(mute(port)[name], most_seconds=0.3)
        with pytest.raises(ApiUnavailableError, match="no whole answer came"):
            list(stream.events())


@pytest.mark.parametrize("head", [LONG_HEAD, HEAD], ids=["head", "body"])
@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.get(LEASES, "l"),
        lambda client: client.create(LEASES, {"metadata": {"name": "l"}}),
        lambda client: client.replace(LEASES, "l", {}),
        lambda client: client.replace_status(LEASES, "l", {}),
        lambda client: client.put(LEASES, {"metadata": {"name": "l"}}),
        lambda client: client.delete(LEASES, "l"),
        lambda client: client.namespaces(),
        lambda client: client.user(),
        lambda client: client.text(client.core.read_namespaced_pod_log, "p", NAMESPACE),
    ],
    ids=["get", "create", "replace", "status", "put", "delete", "ask", "user", "text"],
)
def test_every_call_that_drips_is_given_up_when_its_time_is_over(
    call: Callable[[ClusterClient], object], head: bytes
) -> None:
    with dripping(head) as port, pytest.raises(ApiUnavailableError, match="no whole answer came"):
        call(mute(port)["official"])


def test_a_watch_that_stays_silent_breaks(fake: Fake, reader: Reader) -> None:
    stream = watch(reader, str(fake.world.number), most_seconds=0.05)
    with pytest.raises(ApiUnavailableError):
        list(stream.events())


def test_a_watch_that_is_closed_before_it_is_read_ends(fake: Fake, reader: Reader) -> None:
    stream = watch(reader, str(fake.world.number))
    stream.close()
    with suppress(ApiUnavailableError):
        assert list(stream.events()) == []
    stream.close()


@pytest.mark.parametrize(
    "line", [b"plain text", b"[1]", b'{"type": "ADDED"}', b'{"type": "ERROR", "object": 7}']
)
def test_an_event_that_can_not_be_read_is_said_to_be_so(
    fake: Fake, reader: Reader, line: bytes
) -> None:
    stream = watch(reader, str(fake.world.number))
    fake.say(line)
    with pytest.raises(UnreadableEventError):
        list(stream.events())


def test_an_answer_that_is_no_object_is_no_answer(fake: Fake) -> None:
    fake.world.logs["p"] = "plain text"
    client = fake.client()
    assert client.text(client.core.read_namespaced_pod_log, "p", NAMESPACE) == "plain text"
    with pytest.raises(ApiUnavailableError, match="no JSON"):
        client.ask(client.core.read_namespaced_pod_log, "p", NAMESPACE)


def test_a_refusal_names_what_was_asked(fake: Fake) -> None:
    fake.refuse(f"GET {LEASES.path_of('l')}", 403)
    fake.refuse(f"GET {PODS}", 403)
    client = fake.client()
    with pytest.raises(ApiRefusedError, match=r"GET .*/leases/l: no"):
        client.get(LEASES, "l")
    with pytest.raises(ApiRefusedError, match="list_namespaced_pod: no"):
        client.ask(client.core.list_namespaced_pod, NAMESPACE)


def test_what_is_written_arrives_as_it_was_said(fake: Fake) -> None:
    """The official client's models would refuse the field, and write the time otherwise."""
    client = fake.client()
    lease = {
        "metadata": {"name": "l"},
        "spec": {"renewTime": "1970-01-01T00:00:01.000000Z", "newer": {"than": ["it"]}},
    }
    client.create(LEASES, lease)
    assert client.get(LEASES, "l")["spec"] == lease["spec"]
    client.merge(LEASES, "l", {"spec": {"newer": None}})
    assert client.get(LEASES, "l")["spec"] == {"renewTime": "1970-01-01T00:00:01.000000Z"}


def test_an_object_that_etcd_finds_too_large_is_refused_and_not_only_unanswered(
    fake: Fake,
) -> None:
    fake.refuse(f"GET {LEASES.path}/l", 500, "etcdserver: request is too large")
    with pytest.raises(ObjectTooLargeError):
        fake.client().get(LEASES, "l")


FOREIGN = [
    (404, b"<html>default backend - 404</html>"),
    (404, b'{"detail": "Not Found"}'),
    (404, b""),
    (502, b"<html>502 Bad Gateway</html>"),
    (200, b""),
    (200, b"<html>welcome</html>"),
    (200, b'{"items": [{"metadata": {"na'),
    (200, b'{"status": "ok"}'),
    (200, b"{}"),
    (200, b"[]"),
    (200, b"null"),
    (200, b'{"items": []}'),
    (200, b'{"items": ["a", 7], "metadata": {"resourceVersion": "1"}}'),
    (200, b'{"items": [{"id": 1}], "metadata": {"resourceVersion": "1"}}'),
    (200, b'{"metadata": {"name": "other", "resourceVersion": "1"}}'),
]


@pytest.mark.parametrize("told", FOREIGN)
def test_what_others_answer_is_no_object_and_no_list(
    fake: Fake, reader: Reader, told: tuple[int, bytes]
) -> None:
    fake.write(LEASES.path, {"metadata": {"name": "l", "labels": {"app": "a"}}})
    fake.world.script = lambda _: told
    client = fake.client()
    asked: list[Callable[[], object]] = [
        lambda: reader.list(LEASES),
        lambda: client.get(LEASES, "l"),
        lambda: client.create(LEASES, {"metadata": {"name": "l"}}),
        lambda: client.replace(LEASES, "l", {"metadata": {"name": "l"}}),
        lambda: client.replace_status(LEASES, "l", {"metadata": {"name": "l"}}),
        lambda: client.merge(LEASES, "l", {}),
        lambda: client.put(LEASES, {"metadata": {"name": "l"}}),
        lambda: client.delete(LEASES, "l"),
    ]
    for ask in asked:
        with pytest.raises(ApiUnavailableError):
            ask()


@pytest.mark.parametrize("status", [404, 409, 410])
def test_only_the_api_servers_own_words_say_that_an_object_is_gone_or_changed(status: int) -> None:
    own = json.dumps({"kind": "Status", "message": "not found", "code": status})
    assert isinstance(errors.of_answer(status, "GET x", own), errors.ApiRefusedError)
    for body in (
        "<html>default backend - 404</html>",
        "",
        "[]",
        '{"detail": "Not Found"}',
        '{"message": "no Route matched with those values"}',  # Kong
        '{"message": "Not Found"}',  # API Gateway of AWS
    ):
        told = errors.of_answer(status, "GET x", body)
        assert isinstance(told, errors.ApiUnavailableError)


def test_an_api_that_the_server_does_not_serve_says_nothing_about_objects() -> None:
    told = errors.of_answer(404, "GET x", "404 page not found\n")
    assert type(told) is ApiRefusedError
