"""A status lies in two objects and is one: whatever is killed, lost or written by two at once."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from fake_kubernetes import NAMESPACE, Fake, fake_kubernetes
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from registry_fakes import endpoint, ref

from contracts.endpoint import (
    EndpointStatus,
    ModelEndpoint,
    Phase,
    RecordRef,
    Route,
    Transition,
)
from contracts.endpoint_record import ref_to
from contracts.rollout import RolloutState
from registry.errors import EndpointConflictError
from registry.stores.cluster_endpoints import KubernetesEndpointStore
from registry.stores.endpoints import EndpointStore, FileEndpointStore
from registry.stores.whole_endpoints import WholeEndpoints
from service.cluster import records as layout
from service.cluster.client import ClusterClient
from service.cluster.errors import ApiRefusedError, ApiUnavailableError
from service.endpoint_records import ClusterRecords, FileRecords, Records


def rolling(counted: int, *, generation: int = 1) -> EndpointStatus:
    """A status whose evidence says how many windows were counted."""
    state = RolloutState(
        id="r",
        candidate=ref("2"),
        stable=ref(),
        began=1.0,
        step_began=1.0,
        evidence={"counted": counted, "history_windows": 30},
    )
    return EndpointStatus(
        generation=generation,
        routes=(Route.all_callers(ref()),),
        rollout=state,
        history=(Transition(at=1.0, version="2", phase=Phase.SHADOW, figures={"percent": 100.0}),),
    )


def counted(found: ModelEndpoint | None) -> int | None:
    assert found is not None
    state = found.status.rollout
    assert state is not None
    return state.evidence.get("counted")


class Killed(Exception):  # noqa: N818 - no fault: the process is gone
    """The process is killed before the next write."""


class MortalWrites:
    """Counts writes of both stores; the process is gone before one of them, or never."""

    def __init__(self) -> None:
        self.left: int | None = None

    def spend(self) -> None:
        if self.left == 0:
            raise Killed
        if self.left is not None:
            self.left -= 1


class MortalSummaries:
    """A store of summaries of such a process."""

    def __init__(self, store: EndpointStore, writes: MortalWrites) -> None:
        self._store, self._writes = store, writes
        self.unreadable: frozenset[str] = frozenset()

    def list(self) -> tuple[ModelEndpoint, ...]:
        return self._store.list()

    def get(self, name: str) -> ModelEndpoint | None:
        return self._store.get(name)

    def put(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        self._writes.spend()
        return self._store.put(endpoint)

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def tell_refused(self) -> None:
        self._store.tell_refused()


class MortalRecords:
    """Records of such a process."""

    def __init__(self, records: Records, writes: MortalWrites) -> None:
        self._records, self._writes = records, writes

    def read(self, endpoint: ModelEndpoint, slot: str) -> str | None:
        return self._records.read(endpoint, slot)

    def look(self, endpoint: ModelEndpoint) -> None:
        self._records.look(endpoint)

    def write(self, endpoint: ModelEndpoint, slot: str, text: str) -> None:
        self._writes.spend()
        self._records.write(endpoint, slot, text)

    def forget(self, endpoint: str) -> None:
        self._records.forget(endpoint)


Place = Callable[[], tuple[EndpointStore, Records]]


def files(stack: ExitStack, folder: Path) -> Place:
    del stack
    folder.mkdir(exist_ok=True)
    return lambda: (FileEndpointStore(folder), FileRecords(folder))


def cluster(stack: ExitStack, folder: Path) -> Place:
    del folder
    fake = stack.enter_context(fake_kubernetes())
    return lambda: (
        KubernetesEndpointStore(fake.client(), NAMESPACE),
        ClusterRecords(fake.client(), NAMESPACE),
    )


@pytest.mark.parametrize("place", [files, pytest.param(cluster, marks=pytest.mark.slow)])
@given(kills=st.lists(st.none() | st.integers(0, 2), min_size=1, max_size=12))
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_process_that_is_killed_at_any_write_leaves_a_whole_status(
    tmp_path_factory: pytest.TempPathFactory,
    place: Callable[[ExitStack, Path], Place],
    kills: list[int | None],
) -> None:
    with ExitStack() as stack:
        opened = place(stack, tmp_path_factory.mktemp("kills") / "endpoints")
        WholeEndpoints(*opened()).put(endpoint(rolling(0)))
        done = 0
        store = WholeEndpoints(*opened())
        for number, kill in enumerate(kills, 1):
            found = store.get("e")
            assert counted(found) == done
            assert found is not None
            following = found.model_copy(update={"status": rolling(number)})
            if kill is None:
                store.put(following)
                done = number
                continue
            writes = MortalWrites()
            writes.left = kill
            summaries, records = opened()
            mortal = WholeEndpoints(
                MortalSummaries(summaries, writes), MortalRecords(records, writes)
            )
            with pytest.raises(Killed):
                mortal.put(following)
            store = WholeEndpoints(*opened())
        assert counted(WholeEndpoints(*opened()).get("e")) == done


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_kubernetes() as made:
        yield made


def in_cluster(fake: Fake, *, for_people: bool = False) -> WholeEndpoints:
    summaries = KubernetesEndpointStore(fake.client(), NAMESPACE)
    return WholeEndpoints(
        summaries, ClusterRecords(fake.client(), NAMESPACE), for_people=for_people
    )


def test_what_all_watch_has_no_evidence_and_the_record_belongs_to_its_endpoint(fake: Fake) -> None:
    made = in_cluster(fake).put(endpoint(rolling(7)))
    (item,) = fake.all("modelendpoints")
    assert (item["status"]["rollout"]["evidence"], item["status"]["rollout"]["series"]) == ({}, [])
    assert item["status"]["history"][0]["figures"] == {}
    (record,) = fake.all("endpointrecords")
    metadata = record["metadata"]
    assert metadata["name"] == f"{made.metadata.uid}-{item['status']['record']['slot']}"
    assert [owner["uid"] for owner in metadata["ownerReferences"]] == [item["metadata"]["uid"]]
    assert metadata["labels"] == {"headrace.dev/endpoint": "e"}


def test_of_two_controllers_one_writes_and_no_evidence_is_lost(fake: Fake) -> None:
    one, other = in_cluster(fake), in_cluster(fake)
    read = one.put(endpoint(rolling(0)))
    stale = other.get("e")
    assert stale is not None
    for number in range(1, 4):
        read = one.put(read.model_copy(update={"status": rolling(number)}))
        with pytest.raises(EndpointConflictError):
            other.put(stale.model_copy(update={"status": rolling(100 + number)}))
        assert counted(in_cluster(fake).get("e")) == number


def test_a_record_that_is_gone_or_of_another_time_leaves_a_rollout_without_evidence(
    fake: Fake,
) -> None:
    store = in_cluster(fake)
    read = store.put(endpoint(rolling(1)))
    read = store.put(read.model_copy(update={"status": rolling(2)}))
    path = layout.collection(NAMESPACE).path
    older, newest = fake.all("endpointrecords")
    fake.write(path, {**newest, "text": older["text"]})
    assert counted(in_cluster(fake).get("e")) is None
    fake.remove(path, newest["metadata"]["name"])
    again = in_cluster(fake)
    lost = again.get("e")
    assert counted(lost) is None
    assert lost is not None
    again.put(lost.model_copy(update={"status": rolling(3)}))
    assert counted(in_cluster(fake).get("e")) == 3


def test_a_record_of_another_release_holds_its_endpoint_and_no_other(
    fake: Fake,
) -> None:
    in_cluster(fake).put(endpoint(rolling(1)))
    path = layout.collection(NAMESPACE).path
    (record,) = fake.all("endpointrecords")
    text = record["text"].replace("{", '{"field_of_a_later_release":1,', 1)
    fake.write(path, {**record, "text": text})
    store = KubernetesEndpointStore(fake.client(), NAMESPACE)
    found = store.get("e")
    assert found is not None
    ref = ref_to(text, None)
    store.put(found.model_copy(update={"status": found.status.model_copy(update={"record": ref})}))
    in_cluster(fake).put(endpoint(rolling(2), name="other"))
    again = in_cluster(fake)
    fake.world.asked.clear()
    for _ in range(2):
        assert [counted(each) for each in again.list()] == [2]
        assert again.unreadable == {"e"}
    assert sum(f"GET {path}/" in each for each in fake.world.asked) == 2  # each record once
    assert in_cluster(fake, for_people=True).list()[0].status.notes


class Turns:
    """Threads of writers, each of which goes on by one request when it is told to."""

    def __init__(self, writers: Sequence[Callable[[], None]]) -> None:
        self._asks = [threading.Semaphore(0) for _ in writers]
        self._may = [threading.Semaphore(0) for _ in writers]
        self._done = [False] * len(writers)
        self._threads = [
            threading.Thread(target=self._write, args=each, daemon=True)
            for each in enumerate(writers)
        ]
        self._number = threading.local()
        for thread, asks in zip(self._threads, self._asks, strict=True):
            thread.start()
            asks.acquire()

    def wait(self) -> None:
        """Before a request of this thread."""
        number = getattr(self._number, "mine", None)
        if number is not None:
            self._asks[number].release()
            self._may[number].acquire()

    def go_on(self, number: int) -> bool:
        """One request of a writer; false once it has ended."""
        if not self._done[number]:
            self._may[number].release()
            self._asks[number].acquire()
        return not self._done[number]

    def _write(self, number: int, writer: Callable[[], None]) -> None:
        self._number.mine = number
        self.wait()
        try:
            writer()
        finally:
            self._done[number] = True
            self._asks[number].release()


class ClientInTurn(ClusterClient):
    """Waits for its thread's turn before each request."""

    def __init__(self, fake: Fake, wait: Callable[[], None]) -> None:
        super().__init__(kubernetes.client.Configuration(host=fake.server), namespace=NAMESPACE)
        self._wait = wait

    def _data(self, what: str, method: Any, *arguments: object, **options: object) -> bytes:
        self._wait()
        return super()._data(what, method, *arguments, **options)


def is_record_there(fake: Fake) -> bool:
    """Whether the record that the newest endpoint's summary names is the one that is stored."""
    item = fake.all("modelendpoints")[-1]
    named = RecordRef.model_validate(item["status"]["record"])
    name = f"{item['metadata']['uid']}-{named.slot}"
    texts = {each["metadata"]["name"]: each["text"] for each in fake.all("endpointrecords")}
    return ref_to(texts[name], named) == named


@pytest.mark.parametrize("has_written", [(True, True), (False, True), (False, False)])
@given(order=st.lists(st.integers(0, 1), max_size=20))
@example(order=[1] * 8 + [0] * 9 + [1, 1, 0])  # one has written its record, and not named it yet
@example(order=[0] * 5 + [1] * 10 + [0] * 4)  # one has all but written, as the other comes
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_of_two_controllers_whose_requests_mix_neither_writes_over_what_the_other_named(
    fake: Fake, has_written: tuple[bool, bool], order: list[int]
) -> None:
    name = f"e{len(fake.all('modelendpoints')):05}"
    in_cluster(fake).put(endpoint(rolling(0), name=name))
    turns: list[Turns] = []
    done = [0]

    def write(store: WholeEndpoints, number: int, tries: int) -> None:
        for tried in range(number, number + tries):
            read = store.get(name)
            assert read is not None
            with suppress(EndpointConflictError):
                store.put(read.model_copy(update={"status": rolling(tried)}))
                done.append(tried)

    stores = []
    for number, wrote in enumerate(has_written, 1):
        client = ClientInTurn(fake, lambda: turns[0].wait() if turns else None)
        summaries = KubernetesEndpointStore(client, NAMESPACE)
        stores.append(WholeEndpoints(summaries, ClusterRecords(client, NAMESPACE)))
        if wrote:
            write(stores[-1], 10 * number, 2)
    turns.append(Turns([partial(write, store, 100 * n, 3) for n, store in enumerate(stores, 1)]))
    for number in order:
        turns[0].go_on(number)
        assert is_record_there(fake)
    for number in (0, 1):
        while turns[0].go_on(number):
            assert is_record_there(fake)
    assert counted(in_cluster(fake).get(name)) == done[-1]


class UnheardSummaries(KubernetesEndpointStore):
    """A write is done, and its answer is lost."""

    loses = False

    def put(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        done = super().put(endpoint)
        if self.loses:
            raise ApiUnavailableError("no answer in time")
        return done


def test_a_write_whose_answer_was_lost_keeps_its_record_until_the_watch_tells_of_it(
    fake: Fake,
) -> None:
    summaries = UnheardSummaries(fake.client(), NAMESPACE)
    store = WholeEndpoints(summaries, ClusterRecords(fake.client(), NAMESPACE))
    read = store.put(endpoint(rolling(1)))
    summaries.loses = True
    with pytest.raises(ApiUnavailableError):
        store.put(read.model_copy(update={"status": rolling(2)}))
    summaries.loses = False
    with pytest.raises(EndpointConflictError):
        store.put(read.model_copy(update={"status": rolling(3)}))
    assert counted(in_cluster(fake).get("e")) == 2
    read = store.put(store.list()[0].model_copy(update={"status": rolling(4)}))
    assert counted(in_cluster(fake).get("e")) == 4


def test_a_record_that_a_person_removed_is_made_again(fake: Fake) -> None:
    store = in_cluster(fake)
    read = store.put(endpoint(rolling(1)))
    read = store.put(read.model_copy(update={"status": rolling(2)}))
    for record in fake.all("endpointrecords"):
        fake.remove(layout.collection(NAMESPACE).path, record["metadata"]["name"])
    with pytest.raises(EndpointConflictError):
        store.put(read.model_copy(update={"status": rolling(3)}))
    store.put(read.model_copy(update={"status": rolling(3)}))
    assert counted(in_cluster(fake).get("e")) == 3


def test_an_endpoint_that_is_made_again_never_meets_the_records_of_before(fake: Fake) -> None:
    store = in_cluster(fake)
    first = store.put(endpoint(rolling(1)))
    store.delete("e")
    second = store.put(endpoint(rolling(2)))
    assert first.metadata.uid != second.metadata.uid
    assert counted(in_cluster(fake).get("e")) == 2
    assert len(fake.all("endpointrecords")) == 2


def test_a_refused_record_changes_nothing_and_says_why(fake: Fake) -> None:
    in_cluster(fake).put(endpoint(rolling(1)))
    store = in_cluster(fake)
    path = layout.collection(NAMESPACE).path
    fake.refuse(f"POST {path}", 403, "exceeded quota")
    fake.world.asked.clear()
    for _ in range(3):
        with pytest.raises(ApiRefusedError, match="exceeded quota"):
            store.put(store.list()[0].model_copy(update={"status": rolling(2)}))
    assert counted(in_cluster(fake).get("e")) == 1
    assert sum(each.startswith("PUT") for each in fake.world.asked) == 1  # who writes the records


def test_whoever_decides_does_not_go_by_a_summary_and_people_are_told_that_it_is_one(
    fake: Fake,
) -> None:
    made = in_cluster(fake).put(endpoint(rolling(1)))
    path = layout.collection(NAMESPACE).path
    fake.refuse(f"GET {path}/{made.metadata.uid}-a", 403, "forbidden")
    store = in_cluster(fake)
    assert store.list() == ()
    assert store.unreadable == {"e"}
    with pytest.raises(ApiRefusedError):
        store.get("e")
    (found,) = in_cluster(fake, for_people=True).list()
    assert "this is a summary" in found.status.notes[-1]
    assert found.status.routes == made.status.routes


def test_who_edits_the_spec_writes_no_status_and_no_record(fake: Fake) -> None:
    in_cluster(fake).put(endpoint(rolling(1)))
    people = in_cluster(fake, for_people=True)
    found = people.get("e")
    assert found is not None
    asked = len(fake.world.asked)
    spec = found.spec.model_copy(update={"model": "other"})
    assert counted(people.put(found.model_copy(update={"spec": spec}))) == 1
    written = [each for each in fake.world.asked[asked:] if not each.startswith("GET")]
    assert [each.rpartition("/")[2] for each in written] == ["e"]


def test_what_is_the_same_is_one_object_and_is_read_once(fake: Fake) -> None:
    in_cluster(fake).put(endpoint(rolling(1)))
    summaries = KubernetesEndpointStore(fake.client(), NAMESPACE)
    summaries.start()
    try:
        store = WholeEndpoints(summaries, ClusterRecords(fake.client(), NAMESPACE))
        (first,) = store.list()
        asked = [each for each in fake.world.asked if layout.PLURAL in each]
        (second,) = store.list()
        assert second is first
        assert [each for each in fake.world.asked if layout.PLURAL in each] == asked
    finally:
        summaries.close()


def test_files_of_an_endpoint_that_is_removed_go_with_it(tmp_path: Path) -> None:
    store = WholeEndpoints(FileEndpointStore(tmp_path), FileRecords(tmp_path))
    store.put(endpoint(rolling(1)))
    assert len(list((tmp_path / ".records").iterdir())) == 1
    store.delete("e")
    assert list((tmp_path / ".records").iterdir()) == []


def test_an_api_server_that_is_away_is_no_lost_record(fake: Fake) -> None:
    made = in_cluster(fake).put(endpoint(rolling(1)))
    records = ClusterRecords(fake.client(), NAMESPACE)
    fake.go_away()
    with pytest.raises(ApiUnavailableError):
        records.read(made, "a")
