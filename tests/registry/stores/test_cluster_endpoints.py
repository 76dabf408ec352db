"""What only a cluster has: a status apart, Events, fields of others, an API server that goes."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from fake_kubernetes import NAMESPACE, Fake, fake_kubernetes
from hypothesis import given, settings
from random_specs import is_taken, specs
from registry_fakes import endpoint
from waiting import until

from contracts.backoff import Backoff
from contracts.endpoint import (
    Candidate,
    EndpointSpec,
    EndpointStatus,
    ModelEndpoint,
    Phase,
    Transition,
    Wait,
    WaitsFor,
)
from contracts.model import ModelRef
from contracts.waiting import to_do
from registry.errors import EndpointConflictError
from registry.stores import cluster_events
from registry.stores.cluster_endpoints import KubernetesEndpointStore
from service.cluster import endpoints
from service.cluster.errors import ApiRefusedError, ApiUnavailableError
from service.cluster.watch import WatchPace

PATH = endpoints.collection(NAMESPACE).path
PACE = WatchPace(pauses=Backoff(0.01, 0.05))
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
LINE = Transition(at=5.0, version="1", phase=Phase.SERVING)
LATER = Transition(at=6.0, version="2", phase=Phase.REJECTED)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_kubernetes() as server:
        yield server


@pytest.fixture
def store(fake: Fake) -> Iterator[KubernetesEndpointStore]:
    made = KubernetesEndpointStore(fake.client(), NAMESPACE, pace=PACE, now=lambda: 1000.0)
    made.start()
    yield made
    made.close()


def with_status(item: ModelEndpoint, status: EndpointStatus) -> ModelEndpoint:
    return item.model_copy(update={"status": status})


def without_annotations(item: ModelEndpoint) -> ModelEndpoint:
    metadata = item.metadata.model_copy(update={"annotations": {}})
    return item.model_copy(update={"metadata": metadata})


def writes(fake: Fake) -> list[str]:
    return [asked for asked in fake.world.asked if not asked.startswith("GET")]


def test_fields_that_are_not_ours_stay(fake: Fake, store: KubernetesEndpointStore) -> None:
    store.put(endpoint())
    (item,) = fake.all("modelendpoints")
    item["metadata"]["labels"] = {"team": "a"}
    item["metadata"]["finalizers"] = ["theirs"]
    fake.write(PATH, item)
    found = store.get("e")
    assert found is not None
    store.put(with_status(found, EndpointStatus(generation=1)))
    (item,) = fake.all("modelendpoints")
    assert item["metadata"]["labels"] == {"team": "a"}
    assert item["metadata"]["finalizers"] == ["theirs"]
    assert item["metadata"]["uid"]


def test_a_status_is_written_to_the_status_alone_with_what_kubectl_shows(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    first = store.put(endpoint())
    fake.world.asked.clear()
    store.put(with_status(first, EndpointStatus(generation=1)))
    assert writes(fake) == [f"PUT {PATH}/e/status"]
    (item,) = fake.all("modelendpoints")
    assert [condition["type"] for condition in item["status"]["conditions"]] == [
        "Ready",
        "Progressing",
        "Accepted",
    ]


def listed(store: KubernetesEndpointStore, *expected: ModelEndpoint) -> None:
    """Waits until the watch has told of these."""
    until("the endpoints are listed", 60, lambda: store.list() == expected)


def test_every_field_of_a_status_is_read_as_it_was_written(
    store: KubernetesEndpointStore,
) -> None:
    fields = EndpointStatus.model_fields
    whole = EndpointStatus(
        **{name: 7 for name in fields if fields[name].annotation is int},
        **{name: "x" for name in fields if fields[name].annotation is str},
        next_packages=(ModelRef(model="m", version="1", package="a" * 64),),
        asleep=5.25,
    )
    stored = store.put(endpoint(whole))
    read = store.get(stored.name)
    assert read is not None
    assert {name for name in fields if getattr(read.status, name) != getattr(whole, name)} == set()


def test_what_the_watch_has_told_is_not_asked_for_again_before_a_write(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    one, two = (store.put(endpoint(name=name)) for name in ("one", "two"))
    listed(store, one, two)
    fake.world.asked.clear()
    one = store.put(with_status(one, EndpointStatus(generation=1)))
    two = store.put(with_status(two, EndpointStatus(generation=1)))
    store.put(with_status(one, EndpointStatus(generation=2)))
    asked = [each for each in fake.world.asked if each != f"GET {PATH}"]
    assert asked == [f"PUT {PATH}/{name}/status" for name in ("one", "two", "one")]


def with_a_label(fake: Fake) -> None:
    """Somebody else writes the endpoint."""
    (item,) = fake.all("modelendpoints")
    item["metadata"]["labels"] = {"team": "a"}
    fake.write(PATH, item)


def test_a_write_that_the_watch_has_not_told_yet_is_never_undone(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    first = store.put(endpoint())
    listed(store, first)
    fake.refuse(f"GET {PATH}", 503)
    fake.world.asked.clear()
    fake.break_watches()
    until("the watch is refused", 60, lambda: f"GET {PATH}" in fake.world.asked)
    with_a_label(fake)
    assert store.list() == (first,)
    for late in (first, with_status(first, EndpointStatus(generation=1))):
        with pytest.raises(EndpointConflictError):
            store.put(late)
    (item,) = fake.all("modelendpoints")
    assert item["metadata"]["labels"] == {"team": "a"}
    assert "status" not in item

    fake.world.refusals.clear()
    until("the watch goes on", 60, lambda: store.list() != (first,))
    (read_again,) = store.list()
    store.put(with_status(read_again, EndpointStatus(generation=1)))
    (item,) = fake.all("modelendpoints")
    assert item["metadata"]["labels"] == {"team": "a"}
    assert item["status"]["generation"] == 1


def generations(fake: Fake) -> set[int]:
    """Of which specs the stored status says that it is about them."""
    (item,) = fake.all("modelendpoints")
    status = item["status"]
    return {status["observedGeneration"]} | {
        condition["observedGeneration"] for condition in status["conditions"]
    }


def test_a_status_says_of_which_spec_it_is(fake: Fake, store: KubernetesEndpointStore) -> None:
    first = store.put(endpoint())
    second = store.put(with_status(first, EndpointStatus(generation=7)))
    assert generations(fake) == {1}
    assert not second.status.outdated
    edited = store.put(second.model_copy(update={"spec": EndpointSpec(model="other")}))
    assert generations(fake) == {1}
    assert edited.status.outdated
    seen = edited.status.model_copy(update={"outdated": False})
    last = store.put(with_status(edited, seen))
    assert generations(fake) == {2}
    assert last.status == seen


def test_who_only_edits_the_spec_does_not_say_that_it_was_seen(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    first = store.put(endpoint())
    item = store.put(with_status(first, EndpointStatus(generation=7)))
    for model in ("other", "another"):
        item = store.put(item.model_copy(update={"spec": EndpointSpec(model=model)}))
    assert generations(fake) == {1}
    assert item.status.outdated


def test_an_answer_is_on_record_before_its_command_is_taken_away(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    made = endpoint()
    metadata = made.metadata.model_copy(update={"annotations": {"command.headrace.dev/1": "{}"}})
    first = store.put(made.model_copy(update={"metadata": metadata}))
    fake.world.asked.clear()
    store.put(without_annotations(with_status(first, EndpointStatus(generation=1))))
    assert writes(fake) == [f"PUT {PATH}/e/status", f"PUT {PATH}/e"]


def test_a_write_between_the_two_is_a_conflict_and_the_status_stands(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    first = store.put(endpoint())
    metadata = first.metadata.model_copy(update={"annotations": {"a": "1"}})
    changed = with_status(first, EndpointStatus(generation=1)).model_copy(
        update={"metadata": metadata}
    )
    fake.refuse(f"PUT {PATH}/e", 409, "the object has been modified")
    with pytest.raises(EndpointConflictError):
        store.put(changed)
    found = store.get("e")
    assert found is not None
    assert found.status.generation == 1


def test_a_transition_is_told_as_an_event_and_a_refused_one_stops_nothing(
    fake: Fake, store: KubernetesEndpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    first = store.put(endpoint())
    second = store.put(with_status(first, EndpointStatus(history=(LINE,))))
    until("the Event is created", 60, lambda: bool(fake.all("events")))
    assert [told["reason"] for told in fake.all("events")] == ["Serving"]
    fake.refuse(f"POST {EVENTS}", 403, "events is forbidden")
    third = store.put(with_status(second, EndpointStatus(history=(LINE, LATER))))
    assert third.status.history == (LINE, LATER)
    until("the log says so", 60, lambda: "events is forbidden" in caplog.text)


def test_each_step_of_one_pass_is_an_event_with_its_reason(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    store.put(endpoint())
    steps = [
        Transition(
            at=7.0, version="2", phase=Phase.CANARY, step=step, by="ann", reason=f"by ann: {why}"
        )
        for step, why in enumerate(("it is small", "it is small", "it is well"), start=1)
    ]
    told = events_of(fake, EndpointStatus(history=tuple(steps)))
    assert sorted(one["message"] for one in told) == [
        "version 2 is Canary: by ann: it is small (by ann)",
        "version 2 is Canary: by ann: it is small (by ann)",
        "version 2 is Canary: by ann: it is well (by ann)",
    ]


BLOCKED = Candidate(version="2", phase=Phase.BLOCKED, reason="no space left")
RETRY = Wait(cause=WaitsFor.RETRY, since=60.0, version="2")


def events_of(fake: Fake, *statuses: EndpointStatus) -> list[dict[str, Any]]:
    """The Events once an endpoint has had these statuses one after the other."""
    events = cluster_events.KubernetesEvents(fake.client(), NAMESPACE)
    (item,) = fake.all("modelendpoints")
    for before, after in pairwise((EndpointStatus(), *statuses)):
        events.create(item, before, after)
    return list(fake.all("events"))


def test_what_is_waited_for_is_one_event_that_says_what_to_do_however_often_it_comes(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    store.put(endpoint())
    waits = EndpointStatus(candidate=BLOCKED, waits=(RETRY,))
    over = EndpointStatus(generation=1)
    (told,) = events_of(fake, waits, waits, over, waits)
    assert (told["reason"], told["type"]) == ("Waits", "Normal")
    assert told["message"].startswith(
        "version 2 waits: no space left, since 1970-01-01 00:01:00 UTC; to do: put that right"
    )
    other = BLOCKED.model_copy(update={"reason": "the store is away"})
    both = events_of(fake, waits, EndpointStatus(candidate=other, waits=(RETRY,)))
    assert len(both) == 2


def test_a_queue_that_moves_is_no_news(fake: Fake, store: KubernetesEndpointStore) -> None:
    store.put(endpoint())
    turn = (Wait(cause=WaitsFor.TURN, since=60.0, version="2"),)
    moves = [
        EndpointStatus(
            candidate=Candidate(version="2", phase=Phase.WAITING, reason=f"{number} before it"),
            waits=turn,
        )
        for number in range(5, 0, -1)
    ]
    (told,) = events_of(fake, *moves)
    assert "other conversions have to end first" in told["message"]


def test_a_transition_that_says_what_is_waited_for_is_its_event_with_what_to_do(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    store.put(endpoint())
    line = Transition(at=60.0, version="2", phase=Phase.BLOCKED, reason="no space left " * 200)
    status = EndpointStatus(candidate=BLOCKED, waits=(RETRY,), history=(line,))
    (told,) = events_of(fake, status)
    assert (told["reason"], told["type"]) == ("Blocked", "Warning")
    assert told["message"].endswith("; to do: " + to_do("e", RETRY))
    assert len(told["message"]) <= 1024


def test_nobody_waits_for_an_event_and_those_that_wait_are_created_before_the_end(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    first = store.put(endpoint())
    with fake.held(f"POST {EVENTS}"):
        second = store.put(with_status(first, EndpointStatus(history=(LINE,))))
        store.put(with_status(second, EndpointStatus(history=(LINE, LATER))))
        assert fake.all("events") == []
    store.close()
    assert {told["reason"] for told in fake.all("events")} == {"Serving", "Rejected"}


def test_events_that_nobody_can_create_are_bounded(
    fake: Fake,
    store: KubernetesEndpointStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_events, "_MOST_WAITING", 1)
    bounded = cluster_events.KubernetesEvents(fake.client(), NAMESPACE)
    bounded.start()
    store.put(endpoint())
    (item,) = fake.all("modelendpoints")
    with fake.held(f"POST {EVENTS}"):
        bounded.create(item, EndpointStatus(), EndpointStatus(history=(LINE,)))
        bounded.create(item, EndpointStatus(), EndpointStatus(history=(LATER,)))
    bounded.close()
    assert [told["reason"] for told in fake.all("events")] == ["Serving"]
    assert "1 Events of e are left out" in caplog.text


@pytest.mark.slow
def test_what_the_first_event_needs_is_imported_at_the_start(tmp_path: Path) -> None:
    script = tmp_path / "starts.py"
    script.write_text(
        "import sys\n"
        "from kubernetes.client import Configuration\n"
        "from registry.stores.cluster_events import KubernetesEvents\n"
        "from service.cluster.client import ClusterClient\n"
        "events = KubernetesEvents(ClusterClient(Configuration()), 'n')\n"
        "events.start()\n"
        "events.close()\n"
        "print('kubernetes.client.api.core_v1_api' in sys.modules)\n"
    )
    said = subprocess.run(
        [sys.executable, "-P", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout == "True\n"


def test_whoever_does_not_watch_has_its_events_created_when_a_write_returns(fake: Fake) -> None:
    store = KubernetesEndpointStore(fake.client(), NAMESPACE)
    store.put(with_status(store.put(endpoint()), EndpointStatus(history=(LINE,))))
    assert [told["reason"] for told in fake.all("events")] == ["Serving"]


def test_an_event_told_before_is_no_fault(
    fake: Fake, store: KubernetesEndpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    first = store.put(endpoint())
    second = store.put(with_status(first, EndpointStatus(history=(LINE,))))
    third = store.put(with_status(second, EndpointStatus()))
    store.put(with_status(third, EndpointStatus(history=(LINE,))))
    store.close()
    assert fake.world.asked.count(f"POST {EVENTS}") == 2
    assert len(fake.all("events")) == 1
    assert "Event" not in caplog.text


def test_an_outage_keeps_what_is_listed_and_refuses_to_write(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    first = store.put(endpoint())
    while store.list() != (first,):
        pass
    fake.go_away()
    assert store.list() == (first,)
    with pytest.raises(ApiUnavailableError):
        store.put(with_status(first, EndpointStatus(generation=1)))
    with pytest.raises(OSError, match="does not answer"):
        store.get("e")


def test_what_the_api_server_refuses_is_an_error_with_its_words(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    first = store.put(endpoint())
    fake.refuse(f"PUT {PATH}/e/status", 422, "status.generation is invalid")
    with pytest.raises(ApiRefusedError, match="is invalid"):
        store.put(with_status(first, EndpointStatus(generation=1)))


def test_only_what_a_person_said_is_written_of_a_new_spec(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    store.put(endpoint())
    (item,) = fake.all("modelendpoints")
    assert item["spec"] == {"model": "m"}


def accepted(fake: Fake) -> dict[str, Any]:
    """The condition of the only endpoint."""
    (item,) = fake.all("modelendpoints")
    found = [each for each in item["status"]["conditions"] if each["type"] == "Accepted"]
    return dict(*found)


def test_what_can_not_be_read_says_why_in_a_condition_and_keeps_its_status(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    good = store.put(with_status(store.put(endpoint()), EndpointStatus(generation=7)))
    (item,) = fake.all("modelendpoints")
    spec = {**item["spec"], "serving": {"lengthBuckets": "auto2"}}
    changed = {**item, "spec": spec, "metadata": {**item["metadata"], "generation": 2}}
    fake.write(PATH, changed)

    def is_refused() -> bool:
        store.tell_refused()
        return bool(accepted(fake)["status"] == "False")

    until("the condition says so", 60, is_refused)
    assert accepted(fake)["reason"] == "Invalid"
    assert accepted(fake)["message"].startswith("spec.serving.lengthBuckets: must ")
    assert accepted(fake)["observedGeneration"] == 2
    (told,) = fake.all("modelendpoints")
    assert told["status"]["generation"] == 7
    assert store.list() == (good,)
    before = writes(fake)
    store.tell_refused()
    assert writes(fake) == before

    fake.write(PATH, {**told, "spec": item["spec"]})
    until("it is read again", 60, lambda: store.list()[0].status.outdated)
    store.put(with_status(store.list()[0], EndpointStatus(generation=7)))
    assert accepted(fake)["status"] == "True"


def test_whatever_the_schema_lets_through_is_read_or_has_a_sentence_of_ours() -> None:
    with fake_kubernetes() as fake:
        store = KubernetesEndpointStore(fake.client(), NAMESPACE, pace=PACE)
        store.start()
        client = fake.client()

        @settings(max_examples=30, deadline=None, phases=[hypothesis.Phase.generate])
        @given(specs())
        def check(spec: dict[str, Any]) -> None:
            assert is_taken(client, NAMESPACE, store, spec)

        try:
            check()
        finally:
            store.close()


def test_one_that_never_could_be_read_has_a_condition_too(
    fake: Fake, store: KubernetesEndpointStore
) -> None:
    fake.write(PATH, {"metadata": {"name": "e", "generation": 1}, "spec": {"model": 7}})
    until("the watch has told", 60, lambda: store.list() == () and store.unreadable == {"e"})
    store.tell_refused()
    assert accepted(fake)["message"] == 'spec.model: must be text: write it in quotes, "7"'
