"""The contract of the gateway's sources, which folders and a cluster pass, and what files do."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest
from fake_kubernetes import NAMESPACE, Fake, fake_kubernetes, write_kubeconfig
from gateway_world import endpoint_of, model_of

from contracts.backoff import Backoff
from contracts.endpoint import ModelEndpoint
from gateway.settings import Settings
from gateway.state.kept import SavedState
from gateway.state.sources import (
    ClusterSource,
    FolderSource,
    endpoint_source,
    open_sources,
    report_source,
)
from service.cluster import endpoints
from service.cluster.errors import AccessError
from service.cluster.mirror import CollectionMirror
from service.cluster.watch import WatchPace

PACE = WatchPace(pauses=Backoff(0.01, 0.05))
COLLECTION = endpoints.collection(NAMESPACE)

Source = FolderSource[ModelEndpoint] | ClusterSource[ModelEndpoint]


class World:
    """A source, and hands to change what it sees."""

    def __init__(
        self,
        source: Source,
        write: Callable[[str, dict[str, Any]], None],
        remove: Callable[[str], None],
        outage: Callable[[], Callable[[], None]],
    ) -> None:
        self.source = source
        self.write_document = write
        self.remove = remove
        self.outage = outage

    def write(self, endpoint: ModelEndpoint) -> None:
        self.write_document(endpoint.name, endpoint.model_dump(mode="json", by_alias=True))


def write_document(folder: Path, name: str, document: dict[str, Any]) -> None:
    """Puts a file into its place whole."""
    aside = folder / ".aside"
    aside.write_text(json.dumps(document))
    aside.rename(folder / f"{name}.json")


def write(folder: Path, endpoint: ModelEndpoint) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_document(folder, endpoint.name, endpoint.model_dump(mode="json", by_alias=True))


def source_of(folder: Path) -> FolderSource[ModelEndpoint]:
    return FolderSource(folder, ModelEndpoint, poll_seconds=0.01)


def in_a_folder(stack: ExitStack, folder: Path) -> World:
    del stack
    folder.mkdir()

    def outage() -> Callable[[], None]:
        elsewhere = folder.with_name("elsewhere")
        folder.rename(elsewhere)

        def come_back() -> None:
            elsewhere.rename(folder)

        return come_back

    return World(
        source_of(folder),
        lambda name, document: write_document(folder, name, document),
        lambda name: (folder / f"{name}.json").unlink(),
        outage,
    )


def in_a_cluster(stack: ExitStack, folder: Path) -> World:
    del folder
    fake: Fake = stack.enter_context(fake_kubernetes())

    def write(name: str, document: dict[str, Any]) -> None:
        fake.write(COLLECTION.path, {**document, "metadata": {"name": name}})

    def outage() -> Callable[[], None]:
        fake.go_away()
        return fake.come_back

    return World(
        ClusterSource(CollectionMirror(fake.pod_reader(), COLLECTION, endpoints.read, PACE)),
        write,
        lambda name: fake.remove(COLLECTION.path, name),
        outage,
    )


@pytest.fixture(params=[in_a_folder, in_a_cluster], ids=["folder", "cluster"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield request.param(stack, tmp_path / "endpoints")


def said(found: tuple[ModelEndpoint, ...]) -> list[tuple[str, object]]:
    """Names and statuses: a revision is the place's own."""
    return [(item.name, item.status) for item in found]


async def test_the_first_state_is_told_and_then_every_change(world: World) -> None:
    one, two = endpoint_of(None, name="one"), endpoint_of(None, name="two")
    async with asyncio.timeout(60), aclosing(world.source.watch()) as states:
        assert await anext(states) == ()
        world.write(two)
        assert said(await anext(states)) == said((two,))
        world.write(one)
        assert said(await anext(states)) == said((one, two))
        newer = endpoint_of(model_of().ref, name="two")
        world.write(newer)
        assert said(await anext(states)) == said((one, newer))
        world.remove("one")
        assert said(await anext(states)) == said((newer,))


async def test_what_can_not_be_read_keeps_its_last_good_state(world: World) -> None:
    one, two = endpoint_of(None, name="one"), endpoint_of(None, name="two")
    async with asyncio.timeout(60), aclosing(world.source.watch()) as states:
        await anext(states)
        world.write(one)
        await anext(states)
        world.write_document("one", {"spec": {"model": 7}})
        world.write(two)
        while said(state := await anext(states)) != said((one, two)):
            assert said(state) == said((one,))


async def test_an_outage_changes_nothing_and_what_came_meanwhile_is_told(world: World) -> None:
    one, two = endpoint_of(None, name="one"), endpoint_of(None, name="two")
    async with asyncio.timeout(60), aclosing(world.source.watch()) as states:
        await anext(states)
        world.write(one)
        assert said(await anext(states)) == said((one,))
        come_back = world.outage()
        waiting = asyncio.ensure_future(anext(states))
        done, _ = await asyncio.wait((waiting,), timeout=0.05)
        assert not done
        come_back()
        world.write(two)
        assert said(await waiting) == said((one, two))


async def test_a_cluster_that_was_never_reached_tells_nothing() -> None:
    with fake_kubernetes() as fake:
        fake.go_away()
        source = ClusterSource(
            CollectionMirror(fake.pod_reader(), COLLECTION, endpoints.read, PACE)
        )
        async with aclosing(source.watch()) as states:
            waiting = asyncio.ensure_future(anext(states))
            while len(fake.world.asked) < 3:
                done, _ = await asyncio.wait((waiting,), timeout=0.01)
                assert not done
            fake.come_back()
            async with asyncio.timeout(60):
                assert await waiting == ()


def test_a_flag_says_where_endpoints_and_reports_lie(tmp_path: Path) -> None:
    config = write_kubeconfig(tmp_path, "http://127.0.0.1:1")
    environment = {"KUBECONFIG": str(config)}
    inside = Settings(endpoints="kubernetes://models")
    assert isinstance(endpoint_source(inside, environment), ClusterSource)
    assert isinstance(report_source(inside, environment), ClusterSource)
    mixed = Settings(endpoints="kubernetes://models", reports=str(tmp_path))
    assert isinstance(report_source(mixed, environment), FolderSource)
    local = Settings(endpoints=str(tmp_path))
    assert isinstance(endpoint_source(local, {}), FolderSource)
    assert isinstance(report_source(local, {}), FolderSource)
    with pytest.raises(AccessError, match="set KUBECONFIG"):
        endpoint_source(inside, {"HOME": str(tmp_path)})


def test_what_a_gateway_keeps_of_a_cluster_lies_in_its_cache(
    tmp_path: Path,
) -> None:
    environment = {"KUBECONFIG": str(write_kubeconfig(tmp_path, "http://127.0.0.1:1"))}
    kept = SavedState(source="kubernetes://models", kept_at=1.0, endpoints=(), reports=())
    (tmp_path / "last-told.json").write_text(kept.model_dump_json(by_alias=True))
    folder = str(tmp_path)
    settings = Settings(endpoints="kubernetes://models", package_cache=folder, home=folder)
    keeper = open_sources(settings, environment).keeper
    assert keeper is not None
    assert keeper.read() == kept
    assert open_sources(Settings(home=folder), {}).keeper is None


def test_a_broken_file_keeps_its_last_good_object(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = source_of(tmp_path)
    endpoint = endpoint_of(None)
    write(tmp_path, endpoint)
    source.look()
    (tmp_path / "sentiment.json").write_text('{"half":')
    for _ in range(5):
        assert not source.look()
    assert source.objects() == (endpoint,)
    assert len([r for r in caplog.records if "can't be read" in r.message]) == 1
    newer = endpoint_of(model_of().ref)
    write(tmp_path, newer)
    assert source.look()
    assert source.objects() == (newer,)


@pytest.mark.parametrize("instead", ["nothing", "a file"])
def test_a_folder_that_is_away_keeps_everything(tmp_path: Path, instead: str) -> None:
    folder = tmp_path / "endpoints"
    endpoint = endpoint_of(None)
    write(folder, endpoint)
    source = source_of(folder)
    source.look()
    folder.rename(tmp_path / "elsewhere")
    if instead == "a file":
        folder.write_text("what a broken mount may show")
    assert not source.look()
    assert source.objects() == (endpoint,)


def test_a_file_that_goes_while_one_looks_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = endpoint_of(None)
    write(tmp_path, endpoint)
    (tmp_path / "gone.json").symlink_to(tmp_path / "nothing")  # is listed, and is not there
    source = source_of(tmp_path)
    assert source.look()
    assert source.objects() == (endpoint,)
    assert not caplog.records


def test_half_written_files_of_others_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / ".sentiment.json.tmp.json").write_text("{")
    source = source_of(tmp_path)
    assert not source.look()


async def test_a_folder_that_was_never_there_tells_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "endpoints"
    async with asyncio.timeout(60), aclosing(source_of(folder).watch()) as states:
        waiting = asyncio.ensure_future(anext(states))
        done, _ = await asyncio.wait((waiting,), timeout=0.05)
        assert not done
        endpoint = endpoint_of(None)
        write(folder, endpoint)
        assert await waiting in ((), (endpoint,))


async def test_a_folder_that_comes_empty_is_told_as_empty(tmp_path: Path) -> None:
    folder = tmp_path / "endpoints"
    async with asyncio.timeout(60), aclosing(source_of(folder).watch()) as states:
        waiting = asyncio.ensure_future(anext(states))
        await asyncio.wait((waiting,), timeout=0.05)
        folder.mkdir()
        assert await waiting == ()
