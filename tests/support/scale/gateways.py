"""Gateways without callers: each watches endpoints and reports, and publishes prediction events.

``python -P -m scale.gateways ACCOUNT PORT BROKER NUMBER POPULATION WHAT`` is all of them in
one process, until SIGTERM. ``WHAT`` is ``watch`` or ``publish``, each a process of its own: what
one costs must not delay what the other sees. It prints a JSON when all watch, and one at the end.

Each is some coroutines. What it sends to Kafka is made by the gateway's own buffer, outbox and
publisher, from made-up attempts on the routes that it has read last. It reads the API server as a
gateway's reader does, with the same lists and watches; of reports it counts bytes alone. Objects
that several gateways get are parsed once for all of them. The processes of
``scale.reading`` read as one whole gateway does.
"""

import asyncio
import gc
import json
import random
import signal
import ssl
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import msgspec
from kafka import KafkaProducer
from msgspec import structs

from contracts.endpoint import Arm, ModelEndpoint
from contracts.events import TOPIC, Latency, PredictionEvent, TextRecord
from contracts.model import ModelRef
from contracts.rollout import Outcome
from contracts.windows import WINDOW_SECONDS
from gateway.events.buffer import EventBuffer
from gateway.events.outbox import Outbox
from gateway.events.publisher import Publisher
from scale.population import Population
from scale.servers import HOST
from service.cluster import endpoints, leases, reports
from service.cluster.collection import Collection
from service.kafka import KafkaAddress, Topic, Topics, close, producer

PARTITIONS = 4  # as the chart makes the topic
_TICK_SECONDS = 0.25
_ROTATION_SECONDS = PARTITIONS * 0.5  # in which a gateway sends to each of them
_LISTS_AT_ONCE = 4
_WATCH_SECONDS = 60
_COLLECTIONS = 3
_BUFFER_BYTES = 1 << 20
_LATENCY = Latency(0.0005, 0.001, 0.002, 0.01, 0.0135)
_CALLERS = 1000
# More than a rollout wants to know of its stable version; every tenth gateway has an attempt each.
_PAST_WINDOWS, _PAST_SHARE = 24, 10
# Rollouts that are under way when the traffic begins have candidates that fail from then on: the
# controller has been there for long enough to have caught up.
_FAIL_AFTER_SECONDS = 60.0


class _Metadata(msgspec.Struct):
    name: str = ""
    resourceVersion: str = ""  # noqa: N815 - the API's word


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _List(msgspec.Struct):
    metadata: _Metadata
    items: list[msgspec.Raw] = []


_event = msgspec.json.Decoder(_Event)
_named = msgspec.json.Decoder(_Object)
_list = msgspec.json.Decoder(_List)


class SharedProducer:
    """The producer that all gateways of this process share, in place of one each."""

    def __init__(self, bootstrap: str) -> None:
        address = KafkaAddress.of(bootstrap)
        topics = Topics(address)
        topics.ensure(Topic(TOPIC, partitions=PARTITIONS))
        topics.close()
        self._producer: KafkaProducer = producer(
            address,
            compression="lz4",
            max_request_bytes=1_001_024,
            delivery_seconds=10.0,
            batch_size=0,
            max_in_flight_requests_per_connection=5,
        )
        self.bytes = self.messages = 0

    def send(self, partition: int, message: bytes, done: "Future[None]") -> None:
        """Hands a message over; the future ends when Kafka has it."""
        self.bytes += len(message)
        self.messages += 1
        sent = self._producer.send(TOPIC, value=message, partition=partition % PARTITIONS)
        sent.add_callback(lambda _: done.set_result(None))
        sent.add_errback(done.set_exception)

    def close(self) -> None:
        """Ends the producer's thread."""
        close(self._producer, 5.0)


class _Sink:
    """One gateway's ``EventSink``: tells its coroutine when a message is there."""

    def __init__(self, topic: SharedProducer, acknowledged: Callable[[], object]) -> None:
        self._topic = topic
        self._acknowledged = acknowledged

    def submit(self, sequence: int, message: bytes, key: int | None = None) -> "Future[None]":
        """See ``EventSink``; partitions take turns, as ``KafkaSink`` has it."""
        done: Future[None] = Future()
        done.add_done_callback(lambda _: self._acknowledged())
        self._topic.send(sequence if key is None else key, message, done)
        return done

    def close(self, timeout_seconds: float) -> None:
        """See ``EventSink``."""


class Server:
    """The API server, as it is listed and watched.

    A watch is read from its socket here, and not by an HTTP library: 20 statuses that change at
    once are 46 MB to 100 gateways, which kept a library busy for 30 s, and one process has to stand
    for 100 gateways without being what is measured. ``scale.reading`` reads as gateways do.
    """

    def __init__(self, account: Path, port: int) -> None:
        self._context = ssl.create_default_context(cafile=str(account / "ca.crt"))
        self._token = (account / "token").read_text()
        self._port = port
        self.namespace = (account / "namespace").read_text()
        self.client = httpx.AsyncClient(
            base_url=f"https://{HOST}:{port}",
            verify=self._context,
            trust_env=False,
            headers={"authorization": f"Bearer {self._token}", "accept-encoding": "identity"},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            timeout=httpx.Timeout(120.0),
        )

    async def lines(self, target: str) -> AsyncGenerator[bytes]:
        """The lines of an answer that comes in chunks (RFC 9112, 7.1), as they come."""
        reader, writer = await asyncio.open_connection(
            HOST, self._port, ssl=self._context, limit=_BUFFER_BYTES
        )
        try:
            writer.write(
                f"GET {target} HTTP/1.1\r\nhost: {HOST}\r\nauthorization: Bearer {self._token}\r\n"
                "accept: application/json\r\nconnection: close\r\n\r\n".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200 "):
                raise RuntimeError(f"the API server says: {head[:200]!r}")
            parts: list[bytes] = []
            while size := int(await reader.readline(), 16):
                chunk = await reader.readexactly(size + 2)
                *whole, rest = chunk[:-2].split(b"\n")
                for line in whole:
                    parts.append(line)
                    yield b"".join(parts)
                    parts.clear()
                parts.append(rest)
        finally:
            writer.close()


class EndpointCache:
    """What all gateways know of the objects that any of them was sent."""

    def __init__(self) -> None:
        self._parsed: dict[tuple[str, str], ModelEndpoint] = {}

    def endpoint(self, name: str, revision: str, raw: msgspec.Raw) -> ModelEndpoint:
        """An endpoint, parsed by the first gateway that gets this revision."""
        found = self._parsed.get((name, revision))
        if found is None:
            found = endpoints.read(msgspec.json.decode(raw))
            self._parsed[name, revision] = found
        return found


class Gateway:
    """One gateway.

    Attributes:
        back: when it read that an endpoint's rollout was taken back, unix seconds.
        listed_bytes: of its first lists.
        watched_bytes: since then.
    """

    def __init__(
        self,
        number: int,
        population: Population,
        seen: EndpointCache,
        topic: SharedProducer | None,
        of: int,
    ) -> None:
        self.back: dict[str, float] = {}
        self.listed_bytes = self.watched_bytes = 0
        self.lists = 0
        self._number = number
        self._rolling = frozenset(population.rolling)
        self._population = population
        self._seen = seen
        self._random = random.Random(number)
        self._of = of
        self.routes: dict[str, tuple[ModelRef, ModelRef | None, float]] = {}
        self._fails_at = 0.0 if population.fresh else time.time() + _FAIL_AFTER_SECONDS
        self._woken = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._buffer = EventBuffer(capacity_records=100_000, wake_events=250)
        outbox = Outbox(self._buffer, gateway=f"{number}-{uuid.uuid4().hex}", pause=lambda: None)
        if topic is not None:
            sink = _Sink(topic, lambda: loop.call_soon_threadsafe(self._woken.set))
            self._publisher = Publisher(self._buffer, outbox, sink)

    async def watch(self, server: Server, turn: asyncio.Semaphore) -> None:
        """Lists and watches what a gateway does, until it is cancelled."""
        namespace = server.namespace
        await asyncio.gather(
            self._follow(server, endpoints.collection(namespace), turn, self._take),
            self._follow(server, reports.collection(namespace), turn, lambda _: None),
            self._follow(server, leases.beats(namespace), turn, lambda _: None),
        )

    def remember(self) -> None:
        """Puts this gateway's part of the past into the buffer: rollouts need some of it."""
        now = int(time.time())
        for place, name in enumerate(sorted(self._rolling)):
            for window in range(1, _PAST_WINDOWS + 1):
                if (self._number + place + window) % _PAST_SHARE == 0 and name in self.routes:
                    self._attempt(name, now - WINDOW_SECONDS * window)

    async def publish(self) -> None:
        """Publishes what is in the buffer, until it is cancelled.

        Pods do not start in the same half second. If all did, all would send to the same partition
        at the same time, and each partition would wait for its turn.
        """
        await asyncio.sleep(self._random.random() * _ROTATION_SECONDS)
        while True:
            self._woken.clear()
            delay = self._publisher.step()
            if delay:
                try:
                    async with asyncio.timeout(delay):
                        await self._woken.wait()
                except TimeoutError:
                    continue

    async def answer(self) -> None:
        """Makes attempts up, until it is cancelled."""
        usual = self._population.usual_rate / self._of
        rolling = self._population.rolling_rate / self._of
        due = self._random.random() * _TICK_SECONDS
        owed = {"usual": self._random.random(), "rolling": self._random.random()}
        while True:
            await asyncio.sleep(due)
            began, due = time.monotonic(), _TICK_SECONDS
            names = list(self.routes)
            for kind, rate in (("usual", usual), ("rolling", rolling)):
                owed[kind] += rate * _TICK_SECONDS if names else 0.0
                number, owed[kind] = int(owed[kind]), owed[kind] % 1.0
                chosen = names if kind == "usual" else list(self._rolling)
                for name in self._random.choices(chosen, k=number) if number else ():
                    self._attempt(name)
            due = max(0.0, due - (time.monotonic() - began))

    def _attempt(self, name: str, at: float = 0.0) -> None:
        routes = self.routes.get(name)
        if routes is None:
            return
        stable, candidate, share = routes
        caller = self._random.randrange(1, _CALLERS)
        label, score = "yes" if caller % 5 < 2 else "no", 0.5 + caller % 50 / 100
        answered = PredictionEvent(
            request_id=f"{self._random.getrandbits(64):016x}",
            time=at or time.time(),
            endpoint=name,
            version=stable.version,
            package=stable.package,
            arm=Arm.STABLE,
            status=200,
            answered=True,
            latency=_LATENCY,
            texts=[TextRecord(16 + caller % 32, 12, caller % 3, False, label, score)],
            caller=caller,
        )
        if candidate is not None and caller * 100 < share * _CALLERS:
            tried = structs.replace(
                answered, version=candidate.version, package=candidate.package, arm=Arm.CANARY
            )
            if answered.time < self._fails_at:
                self._buffer.attempt(tried)
                return
            self._buffer.attempt(structs.replace(tried, status=500, answered=False, texts=[]))
            answered = structs.replace(answered, repeated=True)
        self._buffer.attempt(answered)

    def _take(self, raw: msgspec.Raw) -> None:
        metadata = _named.decode(raw).metadata
        if not metadata.name:
            return  # a bookmark
        found = self._seen.endpoint(metadata.name, metadata.resourceVersion, raw)
        arms = {route.arm: route for route in found.status.routes}
        if Arm.STABLE not in arms:
            return
        canary = arms.get(Arm.CANARY)
        self.routes[found.name] = (
            arms[Arm.STABLE].ref,
            None if canary is None else canary.ref,
            0.0 if canary is None else canary.weight,
        )
        last = found.status.last_rollout
        if last is not None and last.outcome is Outcome.ROLLED_BACK and canary is None:
            self.back.setdefault(found.name, time.time())

    async def _follow(
        self,
        server: Server,
        collection: Collection,
        turn: asyncio.Semaphore,
        take: Callable[[msgspec.Raw], None],
    ) -> None:
        selector = {"labelSelector": collection.selector} if collection.selector else {}
        revision = "0"
        while True:
            least = {"resourceVersion": revision, "resourceVersionMatch": "NotOlderThan"}
            async with turn:
                answer = await server.client.get(collection.path, params={**selector, **least})
            listed = _list.decode(answer.raise_for_status().content)
            self.listed_bytes += len(answer.content)
            for raw in listed.items:
                take(raw)
            self.lists += 1
            revision = listed.metadata.resourceVersion
            expired = False
            while not expired:
                query = {
                    **selector, "watch": "true", "allowWatchBookmarks": "true",
                    "resourceVersion": revision, "timeoutSeconds": str(_WATCH_SECONDS),
                }  # fmt: skip
                async for line in server.lines(f"{collection.path}?{urlencode(query)}"):
                    self.watched_bytes += len(line)
                    event = _event.decode(line)
                    if event.type == "ERROR":  # the revision is too old: list again
                        expired = True
                        break
                    revision = _named.decode(event.object).metadata.resourceVersion
                    take(event.object)


class Gateways:
    """All of them, in this process."""

    def __init__(
        self, number: int, population: Population, account: Path, port: int, broker: str
    ) -> None:
        self._account = account
        self._port = port
        self._topic = SharedProducer(broker) if broker else None
        seen = EndpointCache()
        self._gateways = [
            Gateway(each, population, seen, self._topic, number) for each in range(number)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> dict[str, Any]:
        """Begins all watches, or one and the traffic; what the first lists took."""
        began = time.monotonic()
        server = Server(self._account, self._port)
        turn = asyncio.Semaphore(_LISTS_AT_ONCE)
        watching = self._gateways if self._topic is None else self._gateways[:1]
        for gateway in watching:
            self._spawn(gateway.watch(server, turn))
        while any(gateway.lists < _COLLECTIONS for gateway in watching):
            await asyncio.sleep(0.2)
            self.check()
        took = time.monotonic() - began
        if self._topic is not None:
            for gateway in self._gateways:
                gateway.routes = watching[0].routes
                gateway.remember()
                self._spawn(gateway.publish())
                self._spawn(gateway.answer())
        most = max(gateway.listed_bytes for gateway in watching)
        return {"first_lists_seconds": took, "first_list_bytes": most}

    def check(self) -> None:
        """Raises what ended any of them."""
        for task in self._tasks:
            if task.done():
                task.result()

    def counts(self) -> dict[str, int]:
        """What was sent and read so far."""
        if self._topic is not None:
            return {"event_bytes": self._topic.bytes, "event_messages": self._topic.messages}
        return {
            "lists": sum(gateway.lists for gateway in self._gateways),
            "watched_bytes": sum(gateway.watched_bytes for gateway in self._gateways),
        }

    def back(self) -> list[tuple[str, float]]:
        """Endpoint and time, of each gateway that saw its rollout taken back."""
        return [item for gateway in self._gateways for item in gateway.back.items()]

    async def close(self) -> None:
        """Ends all of them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._topic is not None:
            await asyncio.to_thread(self._topic.close)

    def _spawn(self, running: Any) -> None:
        self._tasks.append(asyncio.create_task(running))


def figures(
    back: Sequence[tuple[str, float]], decided_at: Mapping[str, float], lateness: float
) -> dict[str, Any]:
    """From the end of the deciding window, and from when it is closed, to changed routes."""
    found = sorted(at - decided_at[name] for name, at in back if name in decided_at)
    return {
        "rolled_back": len({name for name, _ in back}),
        "rolled_back_seen": len(found),
        **_quantiles("window_end_to_routes_seconds", found),
        **_quantiles("rollback_seconds", [each - lateness for each in found]),
    }


def since_closed(
    name: str, at: Mapping[str, float], decided_at: Mapping[str, float], lateness: float
) -> dict[str, float | None]:
    """How long after the deciding window was closed something had happened to each endpoint."""
    late = sorted(at[key] - decided_at[key] - lateness for key in at.keys() & decided_at.keys())
    return _quantiles(name, late)


def _quantiles(name: str, ordered: list[float]) -> dict[str, float | None]:
    def at(share: float) -> float | None:
        return ordered[int(len(ordered) * share)] if ordered else None

    return {f"{name}_median": at(0.5), f"{name}_p99": at(0.99), f"{name}_most": at(0.99999)}


async def _run(gateways: Gateways) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print(json.dumps(await gateways.start()), flush=True)
    # It must not stand still while it looks at the clock.
    gc.collect()
    gc.freeze()
    gc.disable()
    began, before = time.monotonic(), gateways.counts()
    while not stop.is_set():
        gateways.check()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await stop.wait()
    took = time.monotonic() - began
    rates = {
        f"{name}_a_second": (value - before[name]) / took
        for name, value in gateways.counts().items()
    }
    print(json.dumps({"rates": rates, "back": gateways.back()}), flush=True)
    await gateways.close()


async def _main() -> None:
    account, port, broker, number, population, what = sys.argv[1:]
    made = Population(**json.loads(population))
    publishes = broker if what == "publish" else ""
    await _run(Gateways(int(number), made, Path(account), int(port), publishes))


if __name__ == "__main__":
    asyncio.run(_main())
