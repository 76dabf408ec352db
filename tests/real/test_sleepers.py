"""Models that nobody asks for: two real Tritons with their loaders, and two gateway processes."""

import asyncio
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import waiting
from gateway_process import ON_TRITONS, Running, gateway_at
from gateway_world import endpoint_of
from no_devices import NoDevices
from own_ports import own_ports
from own_servers import TritonProcess
from real_triton import published, reached

from contracts.endpoint import ModelEndpoint
from contracts.loading import WAKE_PATH, LoaderReport
from contracts.model import ModelRef
from registry.loader_main import answer_waking
from registry.loading.loader import Loader
from registry.loading.options import LoaderOptions
from registry.loading.placement import UploadedFiles
from registry.loading.room import WITHOUT_BOUNDS, PackageNeed, Room
from registry.loading.triton_client import GrpcTriton, Overrides
from registry.packages.cache import LocalPackages
from registry.packages.store import PackageStore
from registry.reconcile.rollouts import HeldPackages
from registry.reconcile.sleep import note_sleep
from registry.stores.endpoints import FileEndpointStore
from registry.stores.reports import FileReports
from service import pages

pytestmark = pytest.mark.real

NAME = "sentiment"
TEXT = {"inputs": "w1 w2 w3"}


@dataclass
class Home:
    """A home of the local stack, and what serves it."""

    folder: Path
    ref: ModelRef
    tritons: list[TritonProcess]

    @property
    def endpoints(self) -> FileEndpointStore:
        return FileEndpointStore(self.folder / "endpoints")

    def reports(self) -> tuple[LoaderReport, ...]:
        return FileReports(self.folder / "reports").list()

    def holders(self, ref: ModelRef | None = None) -> set[str]:
        """Loaders whose Tritons hold the model, or another one, as they say."""
        return {
            each.loader
            for each in self.reports()
            if any(model.ref == (ref or self.ref) for model in each.loaded)
        }

    def endpoint(self, name: str = NAME) -> ModelEndpoint:
        found = self.endpoints.get(name)
        assert found is not None
        return found

    def show_asleep(self, asleep: float | None, name: str = NAME) -> None:
        """Writes what the controller would."""
        now = self.endpoint(name)
        status = now.status.model_copy(update={"asleep": asleep})
        self.endpoints.put(now.model_copy(update={"status": status}))


@pytest.fixture
def home(tritons: list[TritonProcess], tmp_path: Path) -> Home:
    root = tmp_path / "home"
    for name in ("packages", "endpoints", "reports"):
        (root / name).mkdir(parents=True)
    store = PackageStore((root / "packages").as_uri())
    ref = published(store, tmp_path / "model", "1")
    made = Home(root, ref, tritons)
    made.endpoints.put(endpoint_of(ref, name=NAME, packages=[ref]))
    return made


async def until(found: Callable[[], bool], what: str) -> None:
    """Waits until a function says so; what is waited for is in other processes."""
    await asyncio.to_thread(waiting.until, what, 180, found)


async def ask(gateway: Running, name: str = NAME, **headers: str) -> httpx.Response:
    return await gateway.http.post(f"/endpoints/{name}", json=TEXT, headers=headers)


@asynccontextmanager
async def gateway(home: Home, name: str) -> AsyncIterator[Running]:
    """A gateway that is ready, which it is whether its model sleeps or not."""
    cache = home.folder / "cache" / name
    flags = ("--package-cache", str(cache))
    async with gateway_at(
        home.folder, *flags, begun="gateway listens", program=ON_TRITONS
    ) as running:
        ready = running.operations.base_url.join("/readyz")
        await until(lambda: httpx.get(ready, timeout=60).is_success, "the gateway is ready")
        yield running


class CountingTriton(GrpcTriton):
    """Counts loads."""

    loads = 0

    async def load(self, name: str, overrides: Overrides) -> None:
        await super().load(name, overrides)
        self.loads += 1


@asynccontextmanager
async def loaders(
    home: Home, idle_seconds: float, room: Room = WITHOUT_BOUNDS
) -> AsyncIterator[list[CountingTriton]]:
    """Both loaders, here, and the part of the controller that has models sleep."""
    stop = asyncio.Event()
    clients: list[CountingTriton] = []
    async with asyncio.TaskGroup() as tasks:
        with ExitStack() as cleanup:
            for number, triton in enumerate(home.tritons):
                client = CountingTriton(triton.grpc, call_seconds=30.0, load_seconds=60.0)
                clients.append(client)
                port = own_ports(1)[0]
                loader = loader_of(home, number, client, idle_seconds, port=port, room=room)
                actions = {WAKE_PATH: answer_waking(loader, f"key-{number}")}
                server = cleanup.enter_context(pages.serve("127.0.0.1", port, {}, actions))
                cleanup.callback(server.shutdown)
                tasks.create_task(loader.run(stop))
            sleeping = tasks.create_task(control(home))
            try:
                yield clients
            finally:
                sleeping.cancel()
                stop.set()
    for client in clients:
        await client.close()


def loader_of(
    home: Home, number: int, client: GrpcTriton, idle_seconds: float, *, port: int, room: Room
) -> Loader:
    options = LoaderOptions(
        f"loader-{number}",
        home.tritons[number].grpc,
        home.folder / f"ledger-{number}.json",
        backends=("python",),
        warmup_seconds=0.1,
        idle_seconds=idle_seconds,
        settle_seconds=1.0,
        wake_address=f"127.0.0.1:{port}",
        wake_key=f"key-{number}",
        room=room,
    )
    store = PackageStore((home.folder / "packages").as_uri())
    return Loader(
        options,
        endpoints=home.endpoints,
        packages=LocalPackages(store, home.folder / f"packages-{number}"),
        triton=client,
        placement=UploadedFiles(),
        reports=FileReports(home.folder / "reports"),
        demand=client,
        devices=NoDevices(),
    )


async def control(home: Home) -> None:
    """Decides as the controller does, by the loaders' reports."""
    held = HeldPackages()
    while True:
        held.take(home.reports())
        for found in home.endpoints.list():
            status = note_sleep(found.spec, found.status, held, time.time())
            if status != found.status:
                home.endpoints.put(found.model_copy(update={"status": status}))
        await asyncio.sleep(0.1)  # the pace of passes


async def test_a_model_leaves_both_tritons_and_each_gateways_first_caller_is_answered(
    home: Home,
) -> None:
    async with (
        loaders(home, idle_seconds=6.0) as tritons,
        gateway(home, "a") as one,
        gateway(home, "b") as other,
        asyncio.timeout(500),
    ):
        before = await ask(one)
        assert before.status_code == 200, before.text
        for first, second in ((one, other), (other, one)):
            await until(lambda: home.endpoint().status.asleep is None, "awake")
            await until(lambda: len(home.holders()) == 2, "held by both")
            await until(lambda: home.endpoint().status.asleep is not None, "asleep")
            await until(lambda: not home.holders(), "unloaded")
            held = [await holds(triton, home.ref.triton_model) for triton in home.tritons]
            assert held == [False, False]
            loads = [each.loads for each in tritons]
            asked = time.monotonic()
            # Many at once, through both: one wake, and every one is answered.
            answers = await asyncio.gather(*(ask(each) for each in [first] * 8 + [second] * 8))
            print(f"first callers waited {time.monotonic() - asked:.2f} s")
            assert [each.status_code for each in answers] == [200] * 16
            assert {each.text for each in answers} == {before.text}
            await until(lambda: len(home.holders()) == 2, "held by both again")
            assert [each.loads for each in tritons] == [count + 1 for count in loads]


async def test_a_model_that_does_not_fit_beside_what_came_meanwhile_ends_nothing_and_waits(
    home: Home, tmp_path: Path
) -> None:
    store = PackageStore((home.folder / "packages").as_uri())
    other = published(store, tmp_path / "second-model", "2")
    home.show_asleep(time.time())
    sleepless = endpoint_of(other, name="other", packages=[other])
    spec = sleepless.spec.model_copy(update={"sleeps": False})
    home.endpoints.put(sleepless.model_copy(update={"spec": spec}))
    one = PackageNeed.of(store.manifest(other.package), process=True).memory_bytes
    async with (
        loaders(home, idle_seconds=6.0, room=Room(memory_bytes=one * 3 // 2)),
        gateway(home, "a") as first,
        gateway(home, "b") as second,
        asyncio.timeout(500),
    ):
        await until(lambda: len(home.holders(other)) == 2, "the other one is held by both")
        busy = asyncio.create_task(kept_busy(first, "other"))
        try:
            patience = {"x-request-timeout": "30"}
            refused = await asyncio.gather(*(ask(each, **patience) for each in (first, second)))
            assert [each.status_code for each in refused] == [503, 503]
            assert all("no room for it" in each.text for each in refused)
            assert {failure.ref for each in home.reports() for failure in each.failed} == {home.ref}
            assert home.holders(other) == {"loader-0", "loader-1"}
        finally:
            busy.cancel()
        assert not busy.done()  # all of its callers were answered
        # It may sleep from now on, and leaves: those who wait for the first one get their answer.
        now = home.endpoint("other")
        spec = now.spec.model_copy(update={"sleeps": True})
        home.endpoints.put(now.model_copy(update={"spec": spec}))
        answers = await asyncio.gather(ask(first), ask(second))
        assert [each.status_code for each in answers] == [200, 200]
        await until(lambda: not home.holders(other), "unloaded")


async def kept_busy(gateway: Running, name: str) -> None:
    """Asks again and again."""
    while True:
        (await ask(gateway, name)).raise_for_status()
        await asyncio.sleep(0.2)  # the pace of a caller


async def holds(triton: TritonProcess, name: str) -> bool:
    client = GrpcTriton(triton.grpc, call_seconds=30.0, load_seconds=60.0)
    try:
        await reached(client)
        return name in await client.held((name,))
    finally:
        await client.close()


async def loader_process(home: Home, number: int, port: int) -> Process:
    triton = home.tritons[number]
    flags = {
        "endpoints": home.folder / "endpoints",
        "reports": home.folder / "reports",
        "store-url": (home.folder / "packages").as_uri(),
        "state-dir": home.folder / f"state-{number}",
        "triton-grpc": triton.grpc,
        "loader-name": f"loader-{number}",
        "backend": "python",
        "metrics-port": port,
        "idle-seconds": 60,
        "wake-address": f"127.0.0.1:{port}",
    }
    with (home.folder / f"loader-{number}.log").open("ab") as said:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "registry.loader_main",
            *(f"--{name}={value}" for name, value in flags.items()),
            stderr=said, stdout=DEVNULL,
        )  # fmt: skip


async def test_a_loader_that_is_killed_in_the_middle_of_a_wake_costs_no_answer(home: Home) -> None:
    home.show_asleep(time.time())
    ports = own_ports(2)
    running = [await loader_process(home, number, ports[number]) for number in (0, 1)]
    try:
        await until(lambda: len([r for r in home.reports() if r.asleep]) == 2, "two that sleep")
        assert home.holders() == set()
        async with gateway(home, "a") as one, gateway(home, "b") as other:
            asking = [asyncio.create_task(ask(each)) for each in (one, other)]
            ledger = home.folder / "state-0" / "loader-0.json"  # is written before each load
            await until(
                lambda: ledger.exists() and home.ref.triton_model in ledger.read_text(),
                "being loaded",
            )
            running[0].kill()
            await running[0].wait()
            answers = await asyncio.gather(*asking)
            texts = [each.text for each in answers]
            assert [each.status_code for each in answers] == [200, 200], texts
            # And the same where its next one finds what it left, with another key.
            running[0] = await loader_process(home, 0, ports[0])
            home.show_asleep(None)
            await until(lambda: len(home.holders()) == 2, "held by both")
            assert [(await ask(each)).status_code for each in (one, other)] == [200, 200]
    finally:
        for process in running:
            if process.returncode is None:
                process.kill()
            await process.wait()
