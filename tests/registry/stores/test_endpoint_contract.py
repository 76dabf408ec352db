"""The contract of ``EndpointStore``: files and a cluster pass it, with summaries or whole."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from fake_kubernetes import NAMESPACE, fake_kubernetes, write_kubeconfig
from registry_fakes import endpoint, ref
from typer.testing import CliRunner

from contracts.backoff import Backoff
from contracts.endpoint import (
    API_VERSION,
    KIND,
    Arm,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Phase,
    Route,
    Transition,
)
from contracts.rollout import RolloutState
from headrace.cli import app
from registry.errors import EndpointConflictError, EndpointUnreadableError
from registry.stores.cluster_endpoints import KubernetesEndpointStore
from registry.stores.endpoints import EndpointStore, FileEndpointStore
from registry.stores.whole_endpoints import WholeEndpoints
from service.cluster import endpoints
from service.cluster.access import ClusterNamespace
from service.cluster.errors import ConflictError, MissingError
from service.cluster.watch import WatchPace
from service.endpoint_records import ClusterRecords, FileRecords

PACE = WatchPace(pauses=Backoff(0.01, 0.05))


class World:
    """One set of endpoints, as many stores on it as a test opens."""

    def __init__(self, opened: Callable[[], EndpointStore], broken: Callable[[str], None]) -> None:
        self.opened = opened
        self.break_it = broken
        self.store = opened()

    def listed(self, expected: tuple[ModelEndpoint, ...]) -> None:
        """Waits until the store lists what it should; a watch may take a moment."""
        while (found := self.store.list()) != expected:
            assert all(item.kind == "ModelEndpoint" for item in found)


def in_files(stack: ExitStack, folder: Path) -> World:
    del stack
    folder.mkdir()

    def broken(name: str) -> None:
        (folder / f"{name}.json").write_text('{"kind": "Pod"}')

    return World(lambda: FileEndpointStore(folder), broken)


def in_a_cluster(stack: ExitStack, folder: Path) -> World:
    del folder
    fake = stack.enter_context(fake_kubernetes())

    def opened() -> KubernetesEndpointStore:
        store = KubernetesEndpointStore(fake.client(), NAMESPACE, pace=PACE)
        store.start()
        stack.callback(store.close)
        return store

    def broken(name: str) -> None:
        item = {"metadata": {"name": name, "generation": 1}, "spec": {"model": 7}}
        fake.write(endpoints.collection(NAMESPACE).path, item)

    return World(opened, broken)


def in_a_cluster_unwatched(stack: ExitStack, folder: Path) -> World:
    """As commands use it: each list asks."""
    del folder
    fake = stack.enter_context(fake_kubernetes())

    def broken(name: str) -> None:
        item = {"metadata": {"name": name, "generation": 1}, "spec": {"model": 7}}
        fake.write(endpoints.collection(NAMESPACE).path, item)

    return World(lambda: KubernetesEndpointStore(fake.client(), NAMESPACE), broken)


def whole_in_files(stack: ExitStack, folder: Path) -> World:
    summaries = in_files(stack, folder)
    return World(
        lambda: WholeEndpoints(FileEndpointStore(folder), FileRecords(folder)), summaries.break_it
    )


def whole_in_a_cluster(stack: ExitStack, folder: Path) -> World:
    del folder
    fake = stack.enter_context(fake_kubernetes())

    def opened() -> WholeEndpoints:
        summaries = KubernetesEndpointStore(fake.client(), NAMESPACE, pace=PACE)
        summaries.start()
        stack.callback(summaries.close)
        return WholeEndpoints(summaries, ClusterRecords(fake.client(), NAMESPACE))

    def broken(name: str) -> None:
        item = {"metadata": {"name": name, "generation": 1}, "spec": {"model": 7}}
        fake.write(endpoints.collection(NAMESPACE).path, item)

    return World(opened, broken)


def in_a_real_cluster(stack: ExitStack, folder: Path) -> World:
    from real_api_server import real_api_server

    del folder
    api = stack.enter_context(real_api_server())
    collection = endpoints.collection(api.namespace)

    def opened() -> WholeEndpoints:
        store = KubernetesEndpointStore(api.client, api.namespace)
        store.start()
        stack.callback(store.close)
        return WholeEndpoints(store, ClusterRecords(api.client, api.namespace))

    def broken(name: str) -> None:
        """As far as a real one can be: what the schema can't say is wrong."""
        spec = {"model": "m", "serving": {"lengthBuckets": "short"}}
        try:
            found = api.client.get(collection, name)
        except MissingError:
            item = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}}
            api.client.create(collection, {**item, "spec": spec})
        else:
            api.client.replace(collection, name, {**found, "spec": spec})

    return World(opened, broken)


IN_A_CLUSTER = [pytest.mark.cluster, pytest.mark.walk]
REAL = pytest.param(in_a_real_cluster, marks=IN_A_CLUSTER, id="real")


@pytest.fixture(
    params=[
        pytest.param(in_files, id="files"),
        pytest.param(in_a_cluster, id="cluster"),
        pytest.param(in_a_cluster_unwatched, id="unwatched"),
        pytest.param(whole_in_files, id="whole files"),
        pytest.param(whole_in_a_cluster, id="whole cluster"),
        REAL,
    ]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield request.param(stack, tmp_path / "endpoints")


def changed(item: ModelEndpoint, generation: int) -> ModelEndpoint:
    return item.model_copy(update={"status": EndpointStatus(generation=generation)})


def annotated(item: ModelEndpoint, **annotations: str) -> ModelEndpoint:
    metadata = item.metadata.model_copy(update={"annotations": annotations})
    return item.model_copy(update={"metadata": metadata})


FULL = EndpointStatus(
    generation=3,
    routes=(
        Route(arm=Arm.STABLE, ref=ref(), weight=95),
        Route(arm=Arm.CANARY, ref=ref("2"), weight=5),
    ),
    packages=(ref(), ref("2")),
    candidate=Candidate(version="2", phase=Phase.CANARY, ref=ref("2"), retry_at=1.5),
    rollout=RolloutState(
        id="r",
        candidate=ref("2"),
        stable=ref(),
        began=1.25,
        step_began=2.0,
        evidence={"logs": [0.1, -3.0, None], "deep": {"n": 1}},
    ),
    history=(Transition(at=1.5, version="2", phase=Phase.CANARY, figures={"a": 0.1}),),
)


def test_what_is_put_is_read_again_with_a_new_revision(world: World) -> None:
    first = world.store.put(endpoint())
    second = world.store.put(changed(first, 5))
    assert "" != first.metadata.revision != second.metadata.revision
    assert world.store.get("e") == second
    world.listed((second,))


def test_a_status_comes_back_as_it_was_to_the_last_bit(world: World) -> None:
    first = world.store.put(endpoint())
    second = world.store.put(first.model_copy(update={"status": FULL}))
    assert second.status == FULL
    found = world.opened().get("e")
    assert found is not None
    assert found.status == FULL


def test_an_endpoint_may_be_made_with_all_it_has(world: World) -> None:
    spec = EndpointSpec.model_validate(
        {
            "model": "m",
            "version": {"alias": "champion"},
            "rollout": {"checks": {"latency": None}, "alias": None, "deadline": "90m"},
            "limits": {"requestsPerSecondPerKey": 5},
        }
    )
    made = annotated(endpoint(FULL, spec=spec), note="of a person")
    stored = world.store.put(made)
    assert (stored.spec, stored.status) == (spec, FULL)
    assert stored.metadata.annotations == {"note": "of a person"}
    assert world.store.get("e") == stored


def test_a_write_against_an_old_revision_is_refused_and_changes_nothing(world: World) -> None:
    first = world.store.put(endpoint())
    second = world.store.put(changed(first, 1))
    with pytest.raises(EndpointConflictError):
        world.store.put(changed(first, 2))
    with pytest.raises(EndpointConflictError):
        world.store.put(annotated(first, note="late"))
    assert world.store.get("e") == second


def test_creating_what_exists_and_writing_what_is_gone_are_conflicts(world: World) -> None:
    first = world.store.put(endpoint())
    with pytest.raises(EndpointConflictError):
        world.store.put(endpoint())
    world.store.delete("e")
    world.store.delete("e")
    with pytest.raises(EndpointConflictError):
        world.store.put(first)
    world.listed(())
    assert world.store.get("e") is None


def test_a_status_and_annotations_can_change_in_one_put(world: World) -> None:
    first = world.store.put(annotated(endpoint(), one="1", two="2"))
    second = world.store.put(changed(annotated(first, two="2"), 4))
    assert second.metadata.annotations == {"two": "2"}
    assert second.status.generation == 4
    assert world.store.get("e") == second
    third = world.store.put(second.model_copy(update={"spec": EndpointSpec(model="other")}))
    assert third.spec.model == "other"
    assert third.status.generation == 4


@pytest.mark.slow
def test_what_was_put_is_listed_at_once(world: World) -> None:
    world.listed(())
    item = world.store.put(endpoint())
    for generation in range(1, 20):
        item = world.store.put(changed(item, generation))
        (found,) = world.store.list()
        assert found == item


def test_of_two_that_read_the_same_one_wins(world: World) -> None:
    first = world.store.put(endpoint())
    other = world.opened()
    found = other.get("e")
    assert found == first
    other.put(changed(first, 1))
    with pytest.raises(EndpointConflictError):
        world.store.put(changed(first, 2))


def test_a_put_of_nothing_new_against_an_old_revision_is_refused_too(world: World) -> None:
    first = world.store.put(endpoint())
    second = world.opened().put(changed(first, 1))
    with pytest.raises(EndpointConflictError):
        world.store.put(first)
    assert world.store.get("e") == second


@pytest.mark.slow
def test_of_two_who_write_what_they_listed_neither_undoes_the_other(world: World) -> None:
    world.store.put(endpoint())
    stores = [world.store, world.opened()]

    def counted(store: EndpointStore) -> None:
        written = 0
        while written < 10:
            for found in store.list():
                with suppress(EndpointConflictError):
                    store.put(changed(found, found.status.generation + 1))
                    written += 1

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(counted, stores))
    found = world.store.get("e")
    assert found is not None
    assert found.status.generation == 20


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(in_files, id="files"),
        pytest.param(in_a_cluster, id="cluster"),
        pytest.param(whole_in_files, id="whole files"),
        pytest.param(whole_in_a_cluster, id="whole cluster"),
        REAL,
    ],
    indirect=True,
)
def test_a_broken_one_keeps_its_last_good_state_and_hides_no_other(world: World) -> None:
    good = world.store.put(endpoint())
    other = world.store.put(endpoint(name="other"))
    world.listed((good, other))
    world.break_it("e")
    with pytest.raises(EndpointUnreadableError, match="e"):
        world.store.get("e")
    for _ in range(5):
        assert world.store.list() == (good, other)
        assert world.store.unreadable == frozenset()


def test_one_that_was_never_good_is_named_as_unreadable(world: World) -> None:
    other = world.store.put(endpoint(name="other"))
    world.break_it("e")
    while world.store.unreadable != {"e"}:
        assert world.store.list() == (other,)
    world.store.delete("e")
    while world.store.unreadable:
        assert world.store.list() == (other,)


# Dry runs


def fake_namespace(stack: ExitStack, folder: Path) -> tuple[ClusterNamespace, Path]:
    fake = stack.enter_context(fake_kubernetes())
    return ClusterNamespace(fake.client(), NAMESPACE), write_kubeconfig(folder, fake.server)


def real_namespace(stack: ExitStack, folder: Path) -> tuple[ClusterNamespace, Path]:
    from real_api_server import real_api_server

    del folder
    api = stack.enter_context(real_api_server())
    return ClusterNamespace(api.client, api.namespace), Path(os.environ["KUBECONFIG"])


@pytest.fixture(
    params=[
        pytest.param(fake_namespace, id="cluster"),
        pytest.param(real_namespace, marks=IN_A_CLUSTER, id="real"),
    ]
)
def reached(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[ClusterNamespace, Path]]:
    """A namespace, and the kubeconfig by which it is reached."""
    with ExitStack() as stack:
        yield request.param(stack, tmp_path)


def test_a_dry_run_is_answered_as_by_a_real_server_and_stores_nothing(
    reached: tuple[ClusterNamespace, Path],
) -> None:
    client, collection = reached[0].client, endpoints.collection(reached[0].name)
    item = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "e"}}
    specs = [{"model": model} for model in "mno"]
    made = client.create(collection, {**item, "spec": specs[0]}, dry_run="All")
    assert made["spec"]["model"] == "m"  # beside defaults, which a real server fills
    assert made["metadata"].items() >= {"name": "e", "generation": 1}.items()
    assert made["metadata"]["uid"]
    assert "resourceVersion" not in made["metadata"]
    with pytest.raises(MissingError):
        client.get(collection, "e")
    stored = client.create(collection, {**item, "spec": specs[0]})
    with pytest.raises(ConflictError):
        client.create(collection, {**item, "spec": specs[0]}, dry_run="All")
    changed = client.replace(collection, "e", {**stored, "spec": specs[1]}, dry_run="All")
    assert changed["spec"]["model"] == "n"
    assert changed["metadata"]["generation"] == 2
    assert changed["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
    assert client.get(collection, "e") == stored
    client.replace(collection, "e", {**stored, "spec": specs[2]})
    with pytest.raises(ConflictError):
        client.replace(collection, "e", {**stored, "spec": specs[1]}, dry_run="All")


def test_a_dry_run_of_apply_says_what_would_change_and_stores_nothing(
    reached: tuple[ClusterNamespace, Path], tmp_path: Path
) -> None:
    namespace, config = reached
    env = {"COLUMNS": "200", "HEADRACE_NAMESPACE": namespace.name, "KUBECONFIG": str(config)}
    file = tmp_path / "e.yaml"
    store = KubernetesEndpointStore(namespace.client, namespace.name)

    def tried(more: str) -> str:
        head = f"apiVersion: {API_VERSION}\nkind: {KIND}\nmetadata: {{name: e}}\n"
        file.write_text(f"{head}spec: {{model: m{more}}}\n")
        done = CliRunner().invoke(app, ["apply", "-f", str(file), "--dry-run", "server"], env=env)
        assert done.exit_code == 0, done.output
        return done.output

    assert tried("") == "endpoint e created (server dry run)\n"
    assert store.list() == ()
    stored = store.put(ModelEndpoint(metadata=Metadata(name="e"), spec=EndpointSpec(model="m")))
    assert tried("") == "endpoint e unchanged (server dry run)\n"
    assert "spec.serving.instances: null -> 2" in tried(", serving: {instances: 2}")
    assert store.list() == (stored,)
