"""Every answer, and the lack of one, becomes a value or an error that says what happened."""

from collections.abc import Iterator

import pytest
from fake_kubernetes import NAMESPACE, Fake, fake_kubernetes

from service.cluster.collection import Collection
from service.cluster.errors import (
    ApiRefusedError,
    ApiUnavailableError,
    ConflictError,
    ExpiredError,
    MissingError,
)

PODS = Collection("v1", "pods", NAMESPACE, "app=a")


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_kubernetes() as server:
        yield server


def test_a_collection_knows_its_paths() -> None:
    assert PODS.path == "/api/v1/namespaces/models/pods"
    assert PODS.one("p", "log") == "/api/v1/namespaces/models/pods/p/log"
    assert PODS.query == {"labelSelector": "app=a"}
    leases = Collection("coordination.k8s.io/v1", "leases", "n")
    assert leases.path == "/apis/coordination.k8s.io/v1/namespaces/n/leases"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
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
def test_a_refusal_is_an_error_with_the_servers_own_words(
    fake: Fake, status: int, kind: type[Exception]
) -> None:
    fake.refuse(f"GET {PODS.path}", status, "because of this")
    with pytest.raises(kind, match="because of this"):
        fake.client().call("GET", PODS.path)


def test_a_server_that_is_away_is_an_error_of_its_own(fake: Fake) -> None:
    fake.go_away()
    with pytest.raises(ApiUnavailableError, match="does not answer"):
        fake.client().call("GET", PODS.path)


def test_an_answer_that_is_no_object_is_no_answer(fake: Fake) -> None:
    fake.world.logs["p"] = "plain text"
    assert fake.client().text(PODS.one("p", "log")) == "plain text"
    with pytest.raises(ApiUnavailableError, match="no JSON"):
        fake.client().call("GET", PODS.one("p", "log"))


def test_a_stream_that_stays_silent_breaks(fake: Fake) -> None:
    query = {"watch": "true", "resourceVersion": str(fake.world.number)}
    stream = fake.client().stream(PODS.path, query=query, silence_seconds=0.05)
    with pytest.raises(ApiUnavailableError, match="stream broke"):
        list(stream.lines())
