"""A rollout with real edges: MLflow, an object store and an API server, each behind a proxy.

Controller, rollout machine, loader and collection of packages are ours; the servers are fakes on
real sockets. A conversion reads its version as a real one does; what it makes, and the judge, say
what a test has them say. Faults are put before a server with ``put``.
"""

import asyncio
import json
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import fsspec
import pytest
from dripping import Drip
from fake_kubernetes import NAMESPACE, PATIENT_SECONDS, Fake, fake_kubernetes
from fake_mlflow import FakeMlflow
from fake_mlflow import serve as serve_mlflow
from fake_object_store import BUCKET, FakeObjectStore
from fake_object_store import serve as serve_objects
from http_server import Answer, Request
from loader_harness import NoPlacement
from no_devices import NoDevices
from registry_fakes import (
    KEYS,
    FakeTriton,
    MemoryArtifacts,
    MemoryReports,
    ScriptedLauncher,
    endpoint,
    packed,
)
from rollout_walk import FakeJudge, MemoryStatistics, window

from contracts import endpoint_record
from contracts.backoff import Backoff
from contracts.endpoint import EndpointSpec, EndpointStatus, Phase
from contracts.loading import LoaderReport
from contracts.rollout import RolloutSpec
from contracts.windows import EndpointWindow
from controller.garbage_collection import GarbageCollection
from controller.rollouts import JoinedRollouts, Statistics
from registry.conversions.index import ConversionIndex
from registry.conversions.messages import (
    ConversionFailure,
    ConversionProgress,
    ConversionRequest,
    PublishedPackage,
)
from registry.conversions.running import ConversionJobs
from registry.convert.download import fetch, recognise
from registry.convert.errors import ConversionError
from registry.convert.tracking import TrackingServer
from registry.errors import RegistryError
from registry.loading.loader import Loader
from registry.loading.options import LoaderOptions
from registry.mlflow.client import MlflowConnection
from registry.mlflow.model_registry import MlflowRegistry
from registry.mlflow.projection import ShownRollout
from registry.mlflow.watch import SourceWatch
from registry.mlflow.workspaces import WorkspaceWatches
from registry.mlflow.write_back import WriteBack
from registry.packages.cache import LocalPackages
from registry.packages.store import PackageStore, StoreError
from registry.reconcile.controller import Controller, ControllerOptions
from registry.stores.cluster_endpoints import KubernetesEndpointStore
from registry.stores.cluster_reports import KubernetesReports
from registry.stores.whole_endpoints import WholeEndpoints
from service.cluster import endpoints, records
from service.cluster.client import ClusterClient
from service.cluster.watch import WatchPace
from service.endpoint_records import ClusterRecords
from service.steady_clock import SteadyClock

PACE = WatchPace(pauses=Backoff(0.01, 0.02), second_look_seconds=3600.0)
ROLLOUT = {
    "steps": [{"shadow": 100}, {"weight": 5}, {"weight": 50}],
    "deadline": "1d",
    "bake": "1h",
}
KEEP_SECONDS = 600.0
BAKE_SECONDS = 3600.0
UNLOAD_SECONDS = 60.0

# The files of a version, as far as they are looked at before it is converted.
VERSION = {
    "config.json": '{"architectures": ["BertForSequenceClassification"], "model_type": "bert"}',
    "model.safetensors": "weights",
    "tokenizer.json": "{}",
}

Clock = Callable[[], float]
Reply = tuple[int, str | Drip]
_MLFLOW_SECONDS = "MLFLOW_HTTP_REQUEST_TIMEOUT"  # of one answer to any client in this process
DRIP = Drip()


class Servers:
    """What stays while one world follows another: clients of MLflow and S3 are slow to begin."""

    def __init__(
        self,
        mlflow: FakeMlflow,
        objects: FakeObjectStore,
        kubernetes: Fake,
        registry: MlflowRegistry,
    ) -> None:
        self.mlflow = mlflow
        self.objects = objects
        self.kubernetes = kubernetes
        self.registry = registry
        self.worlds = 0

    def put(self, part: str, reply: Callable[[str], Reply | None]) -> None:
        """Answers in the place of a server from now on, to a path with its query."""
        if part == "mlflow":
            self.mlflow.script = lambda path, query: reply(f"{path}?{json.dumps(query)}")
        elif part == "objects":
            self.objects.script = lambda asked: _answer(reply(_whole(asked)))
        else:
            self.kubernetes.world.script = lambda asked: _encoded(reply(asked))
            self.kubernetes.expire()  # so that all is listed again

    def clear(self) -> None:
        """Every server answers for itself."""
        self.mlflow.script = lambda _path, _query: None
        self.objects.script = lambda _: None
        self.kubernetes.world.script = lambda _: None
        DRIP.stop()
        self.kubernetes.break_watches()


def _whole(asked: Request) -> str:
    return f"{asked.method} {asked.path}?{json.dumps(asked.query)}"


def _answer(reply: Reply | None) -> Answer | None:
    return None if reply is None else Answer(*reply)


def _encoded(reply: Reply | None) -> tuple[int, bytes | Drip] | None:
    if reply is None:
        return None
    return reply[0], reply[1].encode() if isinstance(reply[1], str) else reply[1]


@contextmanager
def served(folder: Path, patch: pytest.MonkeyPatch, timeout_seconds: float) -> Iterator[Servers]:
    """The three servers."""
    with (
        serve_mlflow(FakeMlflow(folder)) as mlflow,
        serve_objects(FakeObjectStore(), patch) as objects,
        fake_kubernetes() as kubernetes,
    ):
        registry = MlflowRegistry(MlflowConnection(mlflow.uri, timeout_seconds=timeout_seconds))
        yield Servers(mlflow, objects, kubernetes, registry)


class WatchedReports(MemoryReports):
    """In memory, beside a watch of those in the cluster that says whether it is away."""

    def __init__(self, client: ClusterClient) -> None:
        super().__init__()
        self._watched = KubernetesReports(client, NAMESPACE, pace=PACE)

    def list(self) -> tuple[LoaderReport, ...]:
        self._watched.list()
        self.disconnected = self._watched.disconnected
        return super().list()

    def close(self) -> None:
        """Stops watching."""
        self._watched.close()


class Traffic(Statistics, Protocol):
    """What gateways publish of a world's requests, and what is known of it."""

    def publish(self, endpoint: str, windows: Sequence[EndpointWindow]) -> None:
        """Publishes at least that gateways are there."""

    def spoil(self, fault: str) -> None:
        """What becomes of Kafka's answers from now on; empty: they come."""


class MemoryTraffic(MemoryStatistics):
    """Without a Kafka: in any fault nothing can be read."""

    def __init__(self, _: Clock) -> None:
        super().__init__()

    def publish(self, _: str, windows: Sequence[EndpointWindow]) -> None:
        self.known += windows

    def spoil(self, fault: str) -> None:
        self.away = bool(fault)


class ReadingLauncher(ScriptedLauncher):
    """Its conversions read their version from MLflow when a test has them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.unread = 0  # conversions that could not read it
        self._folder = folder

    async def read(self) -> None:
        """The conversion that runs reads its version as real ones do, and ends if it can't."""
        try:
            await asyncio.to_thread(self._recognise, self.requests[-1])
        except ConversionError as error:
            self.unread += 1
            self.end(ConversionFailure(reason=error.reason, by_version=error.by_version))

    def _recognise(self, request: ConversionRequest) -> None:
        seconds = os.environ[_MLFLOW_SECONDS]
        tracking = TrackingServer(request.tracking_uri)
        os.environ[_MLFLOW_SECONDS] = seconds  # a conversion's own are of its process
        with tempfile.TemporaryDirectory(dir=self._folder) as work:
            recognise(fetch(request, tracking, Path(work)), request)


@dataclass(frozen=True)
class Seen:
    """What no fault may change but for the better."""

    status: EndpointStatus
    objects: Mapping[str, bytes]
    models: frozenset[str]
    conversions: int  # without those that could not read their version
    cancelled: int


class RolloutWorld:
    """One endpoint of the model ``m``, and all that brings its versions into service."""

    def __init__(
        self,
        servers: Servers,
        folder: Path,
        patch: pytest.MonkeyPatch,
        *,
        answer_seconds: float,
        traffic: Callable[[Clock], Traffic],
    ) -> None:
        servers.worlds += 1
        self.servers = servers
        self.model = f"m{servers.worlds}"
        self.folder = folder / self.model
        self.url = f"s3://{BUCKET}/{self.model}"
        self.time = 1_000_000.0
        self.ahead = 0.0  # of it, what the machine takes for the time of day
        self.judged = traffic(lambda: self.time)
        self._publish_at = 0.0
        self.triton = FakeTriton()
        self.launcher = ReadingLauncher(folder)
        self.people = KubernetesEndpointStore(servers.kubernetes.client(), NAMESPACE)
        self.conversions = PackageStore(self.url)  # where they publish
        patch.setenv(_MLFLOW_SECONDS, f"{answer_seconds:.0f}")
        limits = {"config_kwargs": {"read_timeout": answer_seconds}}
        patch.setitem(fsspec.config.conf, "s3", limits)
        self.client = servers.kubernetes.client(answer_seconds)
        self.reports = WatchedReports(servers.kubernetes.client(answer_seconds))
        self.changed = asyncio.Event()
        self.loads = True  # whether the loader makes passes
        self._looks: asyncio.Queue[asyncio.Event] = asyncio.Queue()
        self._looked: asyncio.Event | None = None
        self._register_model()
        self._open()

    def _open(self) -> None:
        self.summaries = KubernetesEndpointStore(self.client, NAMESPACE, pace=PACE)
        rollout = RolloutSpec.model_validate(ROLLOUT)
        spec = EndpointSpec(model=self.model, rollout=rollout)
        self.people.put(endpoint(name=self.model, spec=spec))
        self.summaries.start()
        self.store = PackageStore(self.url)
        self.jobs = ConversionJobs(self.launcher, most=1, changed=self.changed)
        self.rollouts = JoinedRollouts(FakeJudge(), self.judged)
        self.watch = SourceWatch(
            self.servers.registry,
            WriteBack(self.servers.registry, MemoryArtifacts(), self._render),
            poll_seconds=1.0,
            changed=self.changed,
            clock=lambda: self.time,
        )
        self.start_controller()
        ledger = self.folder / "ledger.json"
        self.loader = Loader(
            LoaderOptions(
                "l", "t:1", ledger, warmup_seconds=0.01, unload_after_seconds=UNLOAD_SECONDS
            ),
            endpoints=self.summaries,
            packages=LocalPackages(self.store, self.folder / "local"),
            triton=self.triton,
            placement=NoPlacement(),
            reports=self.reports,
            now=self._of_day,
            devices=NoDevices(),
        )
        self.collection = GarbageCollection(
            1,
            self.store,
            lambda: KubernetesEndpointStore(self.client, NAMESPACE),
            lambda: bool(self.jobs.states),
            foreign=lambda: "",
            prove=self.controller.prove,
            wait=self._until_look,
        )

    def start_controller(self) -> None:
        """One that knows nothing yet of endpoints and their records."""
        self.endpoints = WholeEndpoints(self.summaries, ClusterRecords(self.client, NAMESPACE))
        self.controller = Controller(
            ControllerOptions(self.servers.mlflow.uri, self.url, keep_seconds=KEEP_SECONDS),
            endpoints=self.endpoints,
            source=WorkspaceWatches({"": self.watch}),
            index=ConversionIndex(self.url, self.store, KEYS),
            reports=self.reports,
            jobs=self.jobs,
            rollouts=self.rollouts,
            changed=self.changed,
            now=SteadyClock(self._of_day, lambda: self.time),
        )

    def _of_day(self) -> float:
        return self.time + self.ahead

    async def _render(self, evidence: ShownRollout) -> Mapping[str, bytes]:
        return self.rollouts.evidence(evidence.endpoint, evidence.state)

    async def _until_look(self, _: float) -> None:
        if self._looked is not None:
            self._looked.set()
        self._looked = await self._looks.get()

    # What people do, and what converts

    def _register_model(self) -> None:
        for name in (self.model, f"{self.model}-other"):
            self.servers.mlflow.models[name] = {"name": name, "last_updated_timestamp": 1000}

    def register(self, number: str) -> None:
        """One more version in MLflow."""
        fake, at = self.servers.mlflow, 1000 + int(number)
        fake.models[self.model]["last_updated_timestamp"] = at
        fake.versions[self.model, number] = {
            "name": self.model,
            "version": number,
            "status": "READY",
            "source": f"models:/{self.model}-{number}",
            "run_id": "",
            "creation_timestamp": at,
        }
        made = f"{self.model}-{number}"
        fake.locations[self.model, number] = f"models:/{made}"
        fake.logged[made] = f"mlflow-artifacts:/{made}"
        (fake.root / made).mkdir()
        for name, content in VERSION.items():
            (fake.root / made / name).write_text(content)

    async def read(self) -> None:
        """The conversion that runs, if one does, reads its version."""
        if self.phase == Phase.CONVERTING and self.launcher.running:
            await self.launcher.read()

    async def verifying(self) -> None:
        """The conversion that runs says so."""
        self.launcher.say(ConversionProgress(phase=Phase.VERIFYING, message="compares"))
        await self.settle()

    async def converted(self, number: str) -> None:
        """The conversion that runs ends well."""
        made = self.folder / number
        manifest = packed(made, number.encode(), number)
        lineage = manifest.lineage.model_copy(update={"registered_model": self.model})
        manifest = manifest.model_copy(update={"model": self.model, "lineage": lineage})
        ref = await asyncio.to_thread(self.conversions.publish, made, manifest)
        self.changed.clear()
        self.launcher.end(PublishedPackage(ref=ref))
        await self.changed.wait()

    async def traffic(self, verdict: str) -> None:
        """Requests on the routes as they are, and what the judge says of them."""
        windows = []
        for _ in range(21):
            windows.append(window(self.status.routes, int(self.time), verdict=verdict))
            self.time += 10.0
        self.time += 10.0  # by then they are closed
        await self._publish(*windows)

    async def _publish(self, *windows: EndpointWindow) -> None:
        """What gateways publish, at least every ten seconds, and what is counted of it."""
        self._publish_at = self.time + 10.0
        await asyncio.to_thread(self.judged.publish, self.model, windows)

    # The passes

    @property
    def status(self) -> EndpointStatus:
        """Of the endpoint, as the API server has it for whoever asks it itself."""
        stored = self.servers.kubernetes
        items = {item["metadata"]["name"]: item for item in stored.all(endpoints.PLURAL)}
        found = endpoints.read(items[self.model])
        if (ref := found.status.record) is None:
            return found.status
        texts = {item["metadata"]["name"]: item["text"] for item in stored.all(records.PLURAL)}
        status = endpoint_record.read(ref, texts[records.name(found, ref.slot)])
        assert status is not None
        return status

    @property
    def phase(self) -> str:
        """Of the version on its way."""
        candidate = self.status.candidate
        return candidate.phase.value if candidate is not None else ""

    async def round(self) -> None:
        """Everybody makes one pass, a second later; what is away cuts a pass short."""
        self.time += 1.0
        if self.time >= self._publish_at:
            await self._publish()
        await self.watch.attempt()
        if self.loads:
            with suppress(RegistryError, OSError):
                while await self.loader.step():
                    pass
        with suppress(RegistryError, StoreError, OSError):
            await self.controller.step()
        await asyncio.sleep(0)

    async def settle(self) -> EndpointStatus:
        """Rounds until two in a row change nothing."""
        quiet = 0
        while quiet < 2:
            before = self.status, frozenset(self.triton.models), len(self.launcher.requests)
            await self.round()
            now = self.status, frozenset(self.triton.models), len(self.launcher.requests)
            quiet = quiet + 1 if before == now else 0
        return self.status

    async def until(self, what: str, reached: Callable[[], bool]) -> None:
        """Rounds until it is so; the pauses after a fault are over by then."""
        for _ in range(4000):
            if reached():
                return
            await self.round()
            await asyncio.sleep(0.005)  # the watch has a thread, whose end nobody is told of
        raise AssertionError(f"never: {what}; {self.status.candidate}, {self.status.waits}")

    async def collect(self) -> None:
        """The collection of packages looks once."""
        looked = asyncio.Event()
        self._looks.put_nowait(looked)
        await looked.wait()

    def seen(self) -> Seen:
        """What is there now."""
        return Seen(
            self.status,
            {key: data for key, data in self.servers.objects.objects.items() if "/" in key},
            frozenset(self.triton.models),
            len(self.launcher.requests) - self.launcher.unread,
            self.launcher.cancelled,
        )


@asynccontextmanager
async def opened(
    servers: Servers,
    folder: Path,
    *,
    answer_seconds: float = PATIENT_SECONDS,
    traffic: Callable[[Clock], Traffic] = MemoryTraffic,
) -> AsyncIterator[RolloutWorld]:
    """A world in which nothing was registered yet.

    ``answer_seconds``: the deadline of an answer as a whole, of all clients of controller and
    loader. ``traffic``: makes what knows the world's windows by its clock.
    """
    with pytest.MonkeyPatch.context() as patch:
        world = RolloutWorld(servers, folder, patch, answer_seconds=answer_seconds, traffic=traffic)
        collecting = asyncio.create_task(world.collection.run())
        try:
            yield world
        finally:
            servers.clear()
            collecting.cancel()
            await world.jobs.close()
            world.people.delete(world.model)
            await asyncio.to_thread(world.summaries.close)
            await asyncio.to_thread(world.reports.close)


PAGE = "<html><head><title>404</title></head><body>default backend<br></body></html>"
SLOW = "a slow drip"
# Whoever answers these is none of the three servers.
FOREIGN: dict[str, Reply] = {
    "an ingress without a backend": (404, PAGE),
    "another server's 404": (404, '{"detail": "Not Found"}'),
    "Kong without a route": (404, '{"message":"no Route matched with those values"}'),
    "an API gateway without a route": (404, '{"message":"Not Found"}'),
    "Traefik without a route": (404, "404 page not found\n"),
    "a sign-in proxy": (200, "{}"),
    "a sign-in page": (200, "<!DOCTYPE html><html><form action='/login'></form></html>"),
    "a bad gateway": (502, "<html>502 Bad Gateway</html>"),
    "an empty answer": (200, ""),
    "half of an answer": (200, '{"registered_models": [{"name": "m'),
    "another server's answer": (200, '{"status": "ok"}'),
    SLOW: (200, DRIP),
}
_EMPTY_S3 = (
    "<ListBucketResult><Name>models</Name><KeyCount>0</KeyCount>"
    "<IsTruncated>false</IsTruncated></ListBucketResult>"
)


def nothing_listed(part: str, world: RolloutWorld) -> Callable[[str], Reply | None]:
    """The server's own words, and an empty list for each list."""

    def reply(asked: str) -> Reply | None:
        if part == "mlflow":
            return (200, "{}") if "/search?" in asked or "/artifacts?" in asked else None
        if part == "objects":
            return (200, _EMPTY_S3) if '"list-type"' in asked else None
        return _kubernetes_list(world, asked, lambda _: False)

    return reply


def one_lost(part: str, world: RolloutWorld) -> Callable[[str], Reply | None]:
    """The server's own words, and lists that lack the endpoint, its model or its last package."""
    other = {"name": f"{world.model}-other", "last_updated_timestamp": 1000}
    package = world.status.packages[-1].package if world.status.packages else "none"

    def reply(asked: str) -> Reply | None:
        if part == "mlflow":
            told = json.dumps({"registered_models": [other]})
            return (200, told) if "registered-models/search?" in asked else None
        if part == "objects":
            return (200, _EMPTY_S3) if '"list-type"' in asked and package in asked else None
        return _kubernetes_list(world, asked, lambda name: name != world.model)

    return reply


def _kubernetes_list(
    world: RolloutWorld, asked: str, listed: Callable[[str], bool]
) -> Reply | None:
    if "watch=" in asked or not re.match(r"GET \S*/modelendpoints(\?|$)", asked):
        return None
    server = world.servers.kubernetes
    items = [each for each in server.all("modelendpoints") if listed(each["metadata"]["name"])]
    return 200, json.dumps(
        {"metadata": {"resourceVersion": str(server.world.number)}, "items": items}
    )
