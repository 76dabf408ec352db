"""The gateway's process: ``python -P -m gateway.main --help``.

Builds everything from one ``Settings`` object, runs HTTP and gRPC on one event loop, and shuts it
down in order: not ready, no new connections, running requests answered, events flushed, engines
closed. Only this module knows all the parts.
"""

import asyncio
import contextlib
import gc
import logging
import math
import os
import resource
import signal
import socket
import ssl
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version as package_version
from pathlib import Path
from typing import cast

import uvicorn
import uvloop

from contracts.endpoint import ModelEndpoint
from contracts.events import StatisticSpec
from contracts.gateway_metrics import names_of_edge
from gateway.admission.byte_budget import ByteBudget
from gateway.admission.controller import AdmissionController
from gateway.admission.keys import KeyRing
from gateway.admission.rate_limits import RateLimits
from gateway.admission.token_budget import TokenBudget
from gateway.app import Application, create_app, create_operations
from gateway.batch_jobs.objects import ObjectFolder, StoreUrlError
from gateway.batch_jobs.runner import BatchRunner
from gateway.batch_jobs.store import BatchStore
from gateway.batching.bulk import BulkShare
from gateway.calls import CallerHashes
from gateway.dialects.front import Front
from gateway.dialects.oip_grpc import CONNECTION_SECONDS, OpenInferenceGrpc, create_server
from gateway.dialects.openai import OpenAI
from gateway.engine.fleet import Fleet, Replica
from gateway.engine.protocol import Engine
from gateway.engine.triton import TritonEngine
from gateway.events.outbox import declared_by
from gateway.events.stream import EventStream, NoEvents, open_events
from gateway.http.body import BodyReader, HttpLimits
from gateway.http.large_work import LargeWork
from gateway.http.port_watch import ROOM, PortWatch
from gateway.http.server import uvicorn_options
from gateway.http.tls import Tls, TlsFileError
from gateway.inference.encoding import Encoding
from gateway.inference.feedback import FeedbackReceiver
from gateway.inference.generation import Generation
from gateway.inference.observations import find_hooks
from gateway.inference.own_code import ModelCodes, OwnCode
from gateway.inference.pipeline import Pipeline
from gateway.inference.receipts import Receipts
from gateway.inference.serving import ServedEndpoints, Serving
from gateway.inference.tokens import Tokenisers
from gateway.mirroring.pair_stream import open_pairs
from gateway.mirroring.shadow import Shadows
from gateway.packages import HereOrApart, StorePackages
from gateway.settings import Settings
from gateway.state.bulk_reports import BulkReports
from gateway.state.peers import LOOPBACK, HeartbeatFolder, Peers, follow, peer_source
from gateway.state.reconcile import Reconciler
from gateway.state.sources import open_sources
from gateway.state.waking import Waking, ask_loader
from gateway.telemetry import gen_ai
from gateway.telemetry.metrics import Metrics, ObservedMetric, Reading
from gateway.telemetry.tracing import TracingUnavailableError, open_tracer
from gateway.tokenising.on_demand import OnDemand
from gateway.tokenising.process import Spawner
from preprocess.model_code.process import CodeLimits
from preprocess.model_code.sandbox import hide_from_others
from service import flags, listener, logs, machine
from service.allocator import return_freed_memory
from service.cluster.errors import AccessError
from service.kafka import KafkaLoginError
from service.key_files import HexKeyFileError, read_keys
from service.mutual_tls import MutualTls

log = logging.getLogger("gateway")

# A thread that reads a large body gives Python's lock to the event loop after this time, not after
# Python's 5 ms: the loop wants the lock several times for each request.
_SWITCH_SECONDS = 0.0001
_OTHER_FILES = 512  # connections to Tritons and Kafka, packages, probes
# Of the operations port: nobody sends it a body, and Prometheus keeps one connection open.
_OPERATIONS_LIMITS = HttpLimits(max_body_bytes=1024, max_connections=256)
# The most that a gRPC connection may last, as a share of ``linger_seconds``; gRPC adds up to 10 %.
# Clients keep such connections open, and so would use this one until the process ends.
_CONNECTION_SHARE = 0.8


class PortTakenError(Exception):
    """The gateway can't listen on its port."""


# Errors that an operator can fix: logged as a sentence, without a traceback.
_SENTENCES = (
    AccessError,
    PortTakenError,
    HexKeyFileError,
    TracingUnavailableError,
    KafkaLoginError,
    TlsFileError,
    StoreUrlError,
)


class HttpServer(uvicorn.Server):
    """uvicorn on our event loop, without its own signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to ``Gateway``."""
        yield


class Gateway:
    """All parts of one process; ``connect`` gives the engine of an address, a Triton's if None."""

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str],
        connect: Callable[[str], Engine] | None = None,
    ) -> None:
        self._settings = settings
        self._stop = asyncio.Event()
        self._metrics = Metrics()
        self._budget = TokenBudget(settings.tokens_in_flight)
        self._tracer = open_tracer(
            settings.otlp_endpoint, settings.trace_share, environment.get(gen_ai.VARIABLE, "")
        )
        instance = f"gateway-{uuid.uuid4().hex}"
        self._events: EventStream | NoEvents = open_events(settings, instance, self._declared)
        self._keys = KeyRing(settings.keys_file)
        self._rates = RateLimits(self._keys.own_limit)
        self._bulk = BulkShare(settings.bulk_delay_seconds)
        self._peers = peer_source(settings, environment, instance)
        receipts = open_receipts(settings)
        self._pairs = open_pairs(settings, instance)
        self._codes = open_codes(settings, self._metrics)
        hooks = find_hooks(self._metrics)
        own = OwnCode(hooks, self._codes) if hooks or self._codes else None
        of_tokenisers = tokeniser_bytes(settings)
        ahead = int(of_tokenisers * settings.tokeniser_share_ahead)
        self._here = HereOrApart(ahead)
        packages = StorePackages(
            settings.packages_url,
            settings.cache_folder,
            run_code=self._codes is not None,
            here=self._here,
        )
        self._tokenisers = OnDemand(
            of_tokenisers - ahead,
            Spawner(environment, hidden=settings.model_code),
            self._metrics,
            packages.open,
        )
        encoding = Encoding(self._tokenisers)
        self._endpoints = ServedEndpoints()
        self._fleet = Fleet(connect or self._connect, settings.batches_ahead)
        self._waking = Waking(
            self._fleet, ask_loader, self._metrics.awakened, settings.wake_seconds
        )
        admission = AdmissionController(
            endpoints=self._endpoints,
            keys=self._keys,
            rates=self._rates,
            budget=self._budget,
            held=ByteBudget(settings.bytes_in_flight),
            recorder=self._events.recorder,
            metrics=self._metrics,
            waking=self._waking,
        )
        self._shadows = Shadows(
            self._events.recorder,
            self._metrics,
            self._budget,
            pairs=None if self._pairs is None else self._pairs.pairs,
            bulk=self._bulk,
            own=own,
            encoding=encoding,
        )
        self._pipeline = Pipeline(
            self._endpoints,
            admission,
            self._events.recorder,
            self._metrics,
            self._tracer,
            mirror=self._shadows,
            receipts=receipts,
            own=own,
            encoding=encoding,
        )
        self._reconciler = Reconciler(
            sources=open_sources(settings, environment),
            packages=packages,
            fleet=self._fleet,
            addresses=settings.triton_grpc,
            meter=self._metrics,
            serve=self._serve,
            ceilings=settings.ceilings,
            tokenisers=self._tokenisers,
            waking=self._waking,
            bulk=self._bulk,
        )
        feedback = None if receipts is None else FeedbackReceiver(receipts, self._events.recorder)
        callers = CallerHashes(b"" if receipts is None else receipts.secret(b"callers"))
        self._large = LargeWork()
        front = Front(
            self._endpoints,
            admission,
            self._pipeline,
            self._metrics,
            callers,
            Generation(self._pipeline),
            Tokenisers(self._endpoints, admission, encoding),
            self._large,
        )
        limits = HttpLimits(
            max_body_bytes=settings.max_body_bytes,
            max_connections=settings.max_connections,
            max_connections_of_peer=settings.max_connections_per_peer,
            body_seconds=settings.body_seconds,
        )
        self._batches = open_batches(settings, front, limits, instance)
        store = None if self._batches is None else self._batches.store
        app = create_app(front, limits, feedback, settings.allowed_origins, store)
        _ = app.documentation  # made now, as it takes long enough to delay other requests
        self._tls = open_tls(settings)
        self._http = _server(app, limits, settings.drain_seconds, self._tls)
        # In the clear, as the metrics of all other parts are.
        self._operations = _server(create_operations(front, app), _OPERATIONS_LIMITS, 1.0)
        self._open_inference = OpenInferenceGrpc(front, package_version("headrace"))
        oldest = settings.linger_seconds * _CONNECTION_SHARE or CONNECTION_SECONDS
        self._grpc_watch = PortWatch(settings.max_connections, settings.max_connections_per_peer)
        self._grpc = create_server(
            self._open_inference,
            limits,
            oldest,
            hang_up=self._grpc_watch.hang_up,
        )
        self._metrics.read_from(self._readings)
        self._metrics.read_from(self._tokenisers.readings)
        if self._codes is not None:
            self._metrics.read_from(self._codes.readings)
        self._metrics.read_from(self._events.readings)

    def _serve(self, serving: Serving) -> None:
        """Replaces what is served, once the processes that it needs are there."""
        if serving.complete and any(each.targets for each in serving.table.endpoints.values()):
            self._here.started()  # before, there was nobody who could be kept waiting
        if self._codes is not None:
            self._codes.keep(serving.table)
            serving = replace(serving, notes=(*serving.notes, *self._codes.notes()))
        self._endpoints.serve(serving)
        if serving.complete:
            self._tokenisers.served()

    def _connect(self, address: str) -> Engine:
        settings = self._settings
        tls = MutualTls.of(settings.triton_tls_folder, settings.triton_tls_name)
        return TritonEngine(address, tls, own_client=settings.triton_client == "own")

    async def run(self) -> None:
        """Serves until a signal, then shuts down in order; raises ``PortTakenError``."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        with self._listen() as (listener, operations_listener, grpc_port):
            await self._grpc.start()
            self._events.start()
            if self._pairs is not None:
                self._pairs.start()
            self._reconciler.start()
            self._shadows.start()
            renewal = asyncio.create_task(self._renew(), name="certificate")
            port = operations_listener.getsockname()[1]
            peers = asyncio.create_task(self._meet(port), name="peers")
            watch = asyncio.create_task(self._watch(grpc_port), name="connections over gRPC")
            http = asyncio.create_task(self._http.serve([listener]), name="http")
            operations = asyncio.create_task(
                self._operations.serve([operations_listener]), name="operations"
            )
            batches = asyncio.create_task(
                asyncio.sleep(0) if self._batches is None else self._batches.run(), name="batches"
            )
            stop = asyncio.create_task(self._stop.wait(), name="stop")
            # All objects so far live as long as the process, so that the garbage collector need
            # not visit them again.
            gc.collect()
            gc.freeze()
            try:
                await asyncio.wait((http, operations, stop), return_when=asyncio.FIRST_COMPLETED)
            finally:
                stop.cancel()
                renewal.cancel()
                await self._shut_down(http, batches)
                peers.cancel()
                watch.cancel()
                # The last to end: until then it shows what the process is doing.
                self._operations.should_exit = True
                await operations

    async def _meet(self, operations_port: int) -> None:
        """Follows which other gateways there are, and exchanges reports with them."""
        reports = BulkReports(self._bulk)

        def share(peers: Peers) -> None:
            self._rates.share(peers.gateways)
            reports.follow(peers)

        local = isinstance(self._peers, HeartbeatFolder)  # which tells others of any port
        host, port = (LOOPBACK, 0) if local else (self._settings.host, operations_port)
        port = await reports.open(host, port)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(reports.run(), name="bulk reports")
                tasks.create_task(follow(self._peers, port, share), name="peers")
        finally:
            reports.close()

    async def _watch(self, grpc_port: int) -> None:
        if grpc_port >= 0:
            await self._grpc_watch.follow(grpc_port)

    async def _renew(self) -> None:
        if self._tls is not None:
            await self._tls.follow()

    @contextlib.contextmanager
    def _listen(self) -> Iterator[tuple[socket.socket, socket.socket, int]]:
        """The callers' listener, that of operations, and gRPC's port; below 0: it has none."""
        settings = self._settings
        host = settings.host
        with (
            open_listener(host, settings.http_port, "--http-port") as http,
            open_listener(host, settings.operations_port, "--operations-port") as operations,
        ):
            grpc_port = settings.grpc_port
            if grpc_port >= 0:
                address = f"[{host}]" if ":" in host else host
                try:
                    grpc_port = self._bind_grpc(f"{address}:{grpc_port}")
                except RuntimeError as error:
                    sentence = _port_sentence(host, grpc_port, "--grpc-port")
                    raise PortTakenError(sentence) from error
            ports = {
                "http_port": http.getsockname()[1],
                "grpc_port": grpc_port,
                "operations_port": operations.getsockname()[1],
            }
            log.info("gateway listens", extra={"host": host, **ports})
            yield http, operations, grpc_port

    def _bind_grpc(self, address: str) -> int:
        if self._tls is None:
            return int(self._grpc.add_insecure_port(address))
        return int(self._grpc.add_secure_port(address, self._tls.grpc_credentials()))

    async def _shut_down(self, http: "asyncio.Task[None]", batches: "asyncio.Task[None]") -> None:
        settings = self._settings
        log.info("gateway stops")
        self._endpoints.drain()
        if settings.linger_seconds and not http.done():
            await asyncio.sleep(settings.linger_seconds)
        self._http.should_exit = True
        batches.cancel()  # other gateways go on with them
        await asyncio.gather(http, self._stop_grpc())
        await asyncio.wait((batches,), timeout=settings.drain_seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.drain_seconds):
                await self._pipeline.drained()
        self._large.close()
        if self._batches is not None:
            self._batches.store.close()
        await self._waking.close()
        await self._shadows.close()
        await self._events.close(settings.flush_seconds)
        if self._pairs is not None:
            await self._pairs.close(settings.flush_seconds)
        await self._reconciler.close()
        await self._tokenisers.close()
        if self._codes is not None:
            await self._codes.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.close)
        log.info("gateway has stopped")

    async def _stop_grpc(self) -> None:
        await self._open_inference.drain()
        await self._grpc.stop(self._settings.drain_seconds)

    def _declared(self, endpoint: str) -> list[StatisticSpec]:
        """The statistics of an endpoint and its versions. Called from the events' thread."""
        routes = self._endpoints.serving.table.endpoints.get(endpoint)
        if routes is None:
            return []
        return declared_by(routes.endpoint, [model.manifest for model in routes.models()])

    def _readings(self) -> Iterable[Reading]:
        yield Reading(ObservedMetric.READY, (), float(self._endpoints.ready))
        yield Reading(ObservedMetric.TOKENISERS_OPEN, ("here",), self._here.count)
        yield Reading(ObservedMetric.TOKENISER_BYTES, ("here",), self._here.bytes)
        yield Reading(ObservedMetric.CONTROLLER_SILENT, (), self._reconciler.silent_seconds)
        yield Reading(ObservedMetric.ENDPOINTS_KEPT, (), self._reconciler.kept_seconds)
        for endpoint, withheld in self._reconciler.withheld.items():
            yield Reading(ObservedMetric.WITHHELD, (endpoint,), float(withheld))
        for routes in self._endpoints.serving.table.endpoints.values():
            yield from slo_readings(routes.endpoint)
        yield Reading(ObservedMetric.KEY_LINES_BROKEN, (), float(self._keys.broken_lines))
        yield Reading(ObservedMetric.PEERS, (), self._rates.gateways)
        yield Reading(ObservedMetric.ASLEEP, (), self._waking.asleep)
        yield Reading(ObservedMetric.WAITING_FOR_MODELS, (), self._waking.room.callers)
        for endpoint, tokens in self._pipeline.tokens_in_flight().items():
            yield Reading(ObservedMetric.TOKENS_IN_FLIGHT, (endpoint,), tokens)
        for endpoint, cache in self._endpoints.caches.items():
            yield Reading(ObservedMetric.CACHE_TEXTS, (endpoint, "hit"), cache.hits)
            yield Reading(ObservedMetric.CACHE_TEXTS, (endpoint, "joined"), cache.joined)
            yield Reading(ObservedMetric.CACHE_TEXTS, (endpoint, "miss"), cache.misses)
            yield Reading(ObservedMetric.CACHE_BYTES, (endpoint,), cache.bytes)
        queued: Counter[str] = Counter()  # of a package in all pools
        pools = self._reconciler.by_pool()
        for batchers in pools.values():
            for batcher in batchers.values():
                queued[batcher.model.name] += batcher.queued_rows
        for model, rows in queued.items():
            yield Reading(ObservedMetric.QUEUED_ROWS, (model,), rows)
        yield from replica_readings(
            (
                (pool, each.model.name, each.replicas)
                for pool, batchers in pools.items()
                for each in batchers.values()
            ),
            self._fleet.asleep,
        )


def replica_readings(
    packages: Iterable[tuple[str, str, Sequence[Replica]]],
    asleep: Container[tuple[str, str]] = frozenset(),
) -> Iterable[Reading]:
    """What Tritons serve: by Triton and by package, for pairs are far more than both.

    A Triton that lacks only what sleeps is not reported as one that does not serve.

    Args:
        packages: the pool, the name in Triton and the replicas of each package with a batcher.
        asleep: pools and names of packages that no Triton need hold.
    """
    tritons: Counter[str] = Counter()  # of a package in all pools
    served: Counter[str] = Counter()  # packages of a Triton
    tokens: Counter[tuple[str, str]] = Counter()  # of a Triton in a pool
    missed = set[str]()  # Tritons without what they should serve
    for pool, model, replicas in packages:
        sleeps = (pool, model) in asleep
        number = sum(replica.serves for replica in replicas)
        if number or not sleeps:
            tritons[model] += number
        for replica in replicas:
            served[replica.address] += replica.serves
            if not sleeps:
                missed.add(replica.address)
            tokens[replica.address, pool] += replica.tokens
    for model, number in tritons.items():
        yield Reading(ObservedMetric.PACKAGE_TRITONS, (model,), number)
    for address, number in served.items():
        if number or address in missed:
            yield Reading(ObservedMetric.REPLICA_SERVES, (address,), float(number > 0))
        yield Reading(ObservedMetric.TRITON_PACKAGES, (address,), number)
    for (address, pool), flying in tokens.items():
        yield Reading(ObservedMetric.REPLICA_TOKENS, (address, pool), flying)


def slo_readings(endpoint: ModelEndpoint) -> Iterable[Reading]:
    """What an endpoint promises, for the alerts."""
    slo = endpoint.spec.slo
    if slo.availability is not None:
        yield Reading(ObservedMetric.SLO_AVAILABILITY, (endpoint.name,), slo.availability)
    if slo.latency is not None:
        for le in names_of_edge(slo.latency.threshold):
            share = slo.latency.percentile / 100
            yield Reading(ObservedMetric.SLO_LATENCY, (endpoint.name, le), share)


def open_codes(settings: Settings, metrics: Metrics) -> ModelCodes | None:
    """What runs the code of versions; None if an operator does not allow it."""
    if not settings.model_code:
        return None
    hide_from_others()
    limits = CodeLimits(
        call_seconds=settings.model_code_seconds,
        memory_bytes=settings.model_code_megabytes * 1_000_000,
        closed_off=settings.model_code_closed_off,
    )
    return ModelCodes(settings.cache_folder / "model-code", limits, metrics)


def tokeniser_bytes(settings: Settings) -> int:
    """Memory of all tokenisers together."""
    return settings.tokeniser_megabytes * 1_000_000 or machine.memory_bytes() // 2


def open_batches(
    settings: Settings, front: Front, limits: HttpLimits, name: str
) -> BatchRunner | None:
    """What runs batches, None if none are taken; raises ``StoreUrlError``."""
    if not settings.batches_url:
        return None
    objects = ObjectFolder(settings.batches_url)
    store = BatchStore(objects, file_bytes=settings.batch_file_bytes, days=settings.batch_days)
    rows = OpenAI(front, BodyReader(limits, front.large)).embeddings
    return BatchRunner(store, rows, front.admission, name)


def open_receipts(settings: Settings) -> Receipts | None:
    """The signer of receipts, None if feedback is off; raises ``HexKeyFileError``."""
    if not settings.receipt_key_file:
        return None
    keys = read_keys(Path(settings.receipt_key_file))
    return Receipts(keys, settings.feedback_days * 86400)


def open_tls(settings: Settings) -> Tls | None:
    """The certificate, None if none is named; raises ``TlsFileError``."""
    certificate, key = settings.tls_certificate_file, settings.tls_key_file
    if bool(certificate) != bool(key):
        raise TlsFileError("--tls-certificate-file and --tls-key-file go together")
    return Tls(Path(certificate), Path(key)) if certificate else None


def _server(
    app: Application, limits: HttpLimits, drain_seconds: float, tls: Tls | None = None
) -> HttpServer:
    """An application's server, which has not started."""
    config = uvicorn.Config(
        app,
        timeout_graceful_shutdown=int(drain_seconds),
        ssl_context_factory=_ssl_context_factory(tls),
        **uvicorn_options(limits, app.early_refusals, app, app.held),
    )
    return HttpServer(config)


def open_listener(host: str, port: int, flag: str) -> socket.socket:
    """A socket that takes connections, as gRPC's; raises ``PortTakenError``."""
    try:
        return listener.listen(host, port)
    except OSError as error:
        raise PortTakenError(_port_sentence(host, port, flag)) from error


def _ssl_context_factory(tls: Tls | None) -> Callable[..., ssl.SSLContext] | None:
    """The factory of uvicorn's TLS context."""
    return None if tls is None else lambda *_: tls.context


def _port_sentence(host: str, port: int, flag: str) -> str:
    return (
        f"The gateway can't listen on {host}:{port}: another program does, or it is not allowed. "
        f"Change {flag}."
    )


def allow_files(connections: int) -> int:
    """Lets the process have a file for each connection, as far as its system lets it.

    A process without files can take no connection, not even a probe's.

    Args:
        connections: over HTTP at once; over gRPC there may be as many, and its room.

    Returns:
        The connections that there are files for, at most these.
    """
    needed = math.ceil((2 + ROOM) * connections) + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed == needed:
        return connections
    fewer = max(1, int((allowed - _OTHER_FILES) / (2 + ROOM)))
    log.warning(
        "the system allows fewer open files than the connections may need, so that fewer may be "
        "open at once: lower --max-connections or raise the limit",
        extra={"allowed": allowed, "needed": needed, "connections": fewer},
    )
    return fewer


def within_files(settings: Settings) -> Settings:
    """With as many connections as there are files for; a peer's share of them stays the same."""
    most = allow_files(settings.max_connections)
    of_peer = math.ceil(settings.max_connections_per_peer * most / max(1, settings.max_connections))
    return replace(settings, max_connections=most, max_connections_per_peer=of_peer)


async def _run(
    settings: Settings, environment: Mapping[str, str], connect: Callable[[str], Engine] | None
) -> None:
    await Gateway(settings, environment, connect).run()


def main(
    arguments: Sequence[str] | None = None, connect: Callable[[str], Engine] | None = None
) -> int:
    """The process: reads settings, serves, and returns its exit status."""
    argv = sys.argv[1:] if arguments is None else arguments
    settings = flags.parse(Settings, argv, os.environ, program="gateway.main")
    sys.setswitchinterval(_SWITCH_SECONDS)
    return_freed_memory(os.environ)
    # The tokenisers' own threads would only compete with the event loop for processor time.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    style = cast("logs.Style", settings.log_style)
    logs.configure("gateway", settings.log_level, style)
    settings = within_files(settings)
    try:
        uvloop.run(_run(settings, os.environ, connect))
    except _SENTENCES as error:
        log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
