"""The Tritons that there are, the packages on each, and the batches in flight there.

A ``Replica`` is one package on one Triton; batches are sent to it. It serves once a probe (Triton's
``ModelReady``) has found the model ready. The batcher opens the replica's circuit breaker if Triton
does not answer a batch: no batch is sent until a probe succeeds again. Loaders' reports of what a
Triton holds are always checked by a probe. Which replica gets which batch is decided in
``gateway.batching``.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from itertools import count

from contracts.backoff import Backoff
from contracts.model import DEFAULT_POOL
from gateway.engine.protocol import Engine


class State(StrEnum):
    """What the breaker does with a batch."""

    CLOSED = "closed"  # batches pass
    OPEN = "open"  # nothing passes until the next probe is due
    HALF_OPEN = "half-open"  # one probe is on its way; batches still don't pass


PROBE_PAUSES = Backoff(0.1, 0.5)
PATIENCE = Backoff(1.0, 8.0)


@dataclass(slots=True)
class Breaker:
    """The circuit breaker of one model on one Triton. Pure, with the time passed in.

    Closed, it lets batches through. Open, it refuses them at once, so that callers need not wait
    for a dead Triton. Only a probe closes it again, never a batch. It starts open with a probe due
    at once, so that a replica serves once Triton has called it ready.

    ``PROBE_PAUSES`` are between probes, and bound how late the return of a Triton is noticed. A
    probe may take the time of ``PATIENCE``: a Triton that is slow and serves is found.
    """

    state: State = State.OPEN
    probe_at: float = 0.0
    failures: int = 0

    @property
    def closed(self) -> bool:
        """Whether batches may be sent."""
        return self.state is State.CLOSED

    @property
    def patience(self) -> float:
        """How long a probe sent now may take, seconds."""
        return PATIENCE.after(self.failures + 1)

    def probe_due(self, now: float) -> bool:
        """Whether to send a probe now. If true, the caller must report the probe's outcome."""
        if self.state is not State.OPEN or now < self.probe_at:
            return False
        self.state = State.HALF_OPEN
        return True

    def succeed(self) -> None:
        """A probe has found the model ready."""
        self.state = State.CLOSED
        self.failures = 0

    def hasten(self, now: float) -> bool:
        """A probe may succeed by now: it is due then; returns whether it was due later."""
        if self.state is not State.OPEN or self.probe_at <= now:
            return False
        self.probe_at = now
        return True

    def fail(self, now: float, at_least: float = 0.0) -> None:
        """A probe or a batch had no answer: opens, with a longer pause than the last time.

        The pause is ``at_least`` so long, for a fault that a probe does not find.
        """
        self.failures += 1
        self.state = State.OPEN
        self.probe_at = now + max(PROBE_PAUSES.after(self.failures), at_least)


log = logging.getLogger(__name__)

_PROBE_TICK_SECONDS = 0.05
# Between two probes of a model that the Triton's loader does not report, while another Triton
# serves it. What the loader reports later is probed at once.
_UNREPORTED_PAUSE_SECONDS = 15.0
# Of a model that left all Tritons because nobody asked, and that nobody has come back.
_ASLEEP_PAUSE_SECONDS = 60.0
# Before a Triton that should serve a model is taken for one that does not.
_PATIENT_PROBES = 3
_MOST_LOOKAHEAD = 4  # times the batches usually sent ahead, while the event loop is slow


class TritonLoad:
    """Batches in flight at one Triton, of all its packages, by the class of their requests.

    ``waiting``: is called once the next of them has ended; for who waits for an idle instance.
    ``bulk_until``: when the last one of bulk requests is expected to end, while there is one.
    """

    __slots__ = ("bulk", "bulk_until", "interactive", "waiting")

    def __init__(self) -> None:
        self.bulk = self.interactive = 0
        self.bulk_until = 0.0
        self.waiting: set[Callable[[], None]] = set()

    @property
    def all(self) -> int:
        """Of both classes."""
        return self.bulk + self.interactive

    def tell(self) -> None:
        """Calls those that wait, each once."""
        waiting, self.waiting = self.waiting, set()
        for call in waiting:
            call()


class Flight:
    """A batch in flight; ``started`` is when an instance was free to run it, None until then."""

    __slots__ = ("answered", "bulk", "expected", "sent", "started", "tokens")

    def __init__(self, sent: float, expected: float, tokens: int, *, bulk: bool = False) -> None:
        self.bulk = bulk
        self.sent = sent
        self.expected = expected  # engine seconds
        self.tokens = tokens  # padding included
        self.started: float | None = None
        self.answered = False


class Replica:
    """One package on one Triton.

    Args:
        engine: the connection to that Triton.
        address: its name in logs and metrics.
        model: the name under which Triton holds the package.
        instances: how many batches it runs at once.
        ahead: batches in flight for each instance, the running one included. More are not sent, but
            wait in the batcher.
        opened: is told that its breaker has opened, and whether it served until then.
        load: of that Triton, by all its packages.
    """

    def __init__(
        self,
        engine: Engine,
        address: str,
        model: str,
        instances: int,
        ahead: int,
        *,
        opened: "Callable[[Replica, bool], None] | None" = None,
        load: TritonLoad | None = None,
    ) -> None:
        self.engine = engine
        self.load = load or TritonLoad()
        self.address = address
        self.model = model
        self.breaker = Breaker()
        self.failed = 0  # batches in a row that the model failed at
        self.refused = 0  # batches in a row that it was too busy for
        self.pauses = False  # since the last of these; no batch is sent meanwhile
        self.served_until = -math.inf  # when it stopped serving
        self.instances = instances
        self._ahead = ahead
        self._opened = opened
        self._flights: list[Flight] = []
        self._running = 0
        self.expected_seconds = 0.0  # of all batches in flight, with what they have run so far

    @property
    def serves(self) -> bool:
        """Whether batches may be sent."""
        return self.breaker.closed

    def fail(self, now: float, at_least: float = 0.0) -> None:
        """A probe or a batch had no answer: no batch is sent before a probe has one."""
        served = self.serves
        if served:
            self.served_until = now
        self.breaker.fail(now, at_least)
        if self._opened is not None:
            self._opened(self, served)

    @property
    def busy(self) -> bool:
        """Whether any batch is in flight."""
        return bool(self._flights)

    @property
    def idle(self) -> int:
        """Instances that run no batch; 0 while it pauses."""
        return 0 if self.pauses else max(0, self.instances - len(self._flights))

    def spare(self, lookahead_seconds: float = 0.0) -> int:
        """Batches that may be sent ahead, to wait at busy instances.

        Args:
            lookahead_seconds: seconds of work that each instance should have in flight, because the
                event loop sends no batch before they have passed. For this, up to
                ``_MOST_LOOKAHEAD`` times as many batches as usual are sent ahead.
        """
        if self.pauses:
            return 0
        flying = len(self._flights)
        most = self.instances * self._ahead
        spare = most - max(flying, self.instances)
        if spare <= 0 and self.expected_seconds < lookahead_seconds * self.instances:
            return int(flying < _MOST_LOOKAHEAD * most)
        return max(0, spare)

    @property
    def tokens(self) -> int:
        """Padded tokens in flight."""
        return sum(flight.tokens for flight in self._flights)

    def next_free(self) -> tuple[float, float]:
        """When an instance is expected to be idle, and the engine seconds of its last batch."""
        ends = []
        waiting = last = 0.0
        for flight in self._flights:
            if flight.started is not None:
                ends.append((flight.started + flight.expected, flight.expected))
            else:
                waiting += flight.expected
                last = flight.expected
        end, running = min(ends, default=(0.0, 0.0))
        return end + waiting / self.instances, last or running

    @property
    def has_room(self) -> bool:
        """Whether its Triton runs no bulk batch, and fewer than this one's instances in all."""
        return not self.load.bulk and self.load.interactive < self.instances

    def batch_sent(self, now: float, expected: float, tokens: int, *, bulk: bool = False) -> Flight:
        """Records that a batch was sent; ``expected`` engine seconds, padded ``tokens``."""
        flight = Flight(now, expected, tokens, bulk=bulk)
        if bulk:
            last = self.load.bulk_until if self.load.bulk else 0.0
            self.load.bulk_until = max(last, now + expected)
            self.load.bulk += 1
        else:
            self.load.interactive += 1
        self._flights.append(flight)
        self.expected_seconds += expected
        if self._running < self.instances:
            self._running += 1
            flight.started = now
        return flight

    def batch_ended(self, flight: Flight, now: float) -> float:
        """Records that a batch has ended, answered or not.

        Gives the seconds that an instance ran it, without its wait behind other batches.
        """
        self._flights.remove(flight)
        if flight.bulk:
            self.load.bulk -= 1
        else:
            self.load.interactive -= 1
        if self.load.waiting:
            self.load.tell()
        self.expected_seconds = self.expected_seconds - flight.expected if self._flights else 0.0
        if flight.started is None:  # answered before one that was sent earlier
            return now - flight.sent
        self._running -= 1
        self._start_waiting(now)
        return now - flight.started

    def resize(self, instances: int, now: float) -> bool:
        """Sets how many batches it runs at once; returns whether that has changed."""
        if instances == self.instances:
            return False
        self.instances = instances
        self._start_waiting(now)
        return True

    def _start_waiting(self, now: float) -> None:
        """Marks batches that wait at the Triton as started, as far as instances are free."""
        for flight in self._flights:
            if self._running >= self.instances:
                return
            if flight.started is None:
                flight.started = now
                self._running += 1


@dataclass(frozen=True, slots=True)
class _RemovedTriton:
    """A Triton that was removed, and its replicas, which may have batches in flight."""

    engine: Engine
    replicas: tuple[Replica, ...]


class Fleet:
    """All Tritons and all replicas, and the task that probes those that do not serve.

    Most replicas serve, or belong to a Triton that need not hold the package. So the task looks at
    those alone whose probe is due, and at packages that a Triton has just stopped serving.
    """

    def __init__(self, connect: Callable[[str], Engine], ahead: int) -> None:
        self._connect = connect
        self._ahead = ahead
        self._engines: dict[str, Engine] = {}
        self._loads: dict[str, TritonLoad] = {}
        self._pools: Mapping[str, str] = {}  # of Tritons by address, but of the default pool's
        self._replicas: dict[tuple[str, str], Replica] = {}
        self._reported: Mapping[str, frozenset[str]] = {}
        self._asleep: Collection[tuple[str, str]] = frozenset()  # pool and model
        self._on_serving: dict[tuple[str, str], Callable[[], None]] = {}  # by pool and model
        self._task: asyncio.Task[None] | None = None
        self._probes: set[asyncio.Task[None]] = set()
        self._removed: list[_RemovedTriton] = []
        # When to probe whom. An entry may be out of date; each replica that does not serve and is
        # not being probed has one that is not too late.
        self._due: list[tuple[float, int, Replica]] = []
        self._numbers = count()  # no two entries are equal, and replicas are not compared
        self._stopped: set[tuple[str, str]] = set()  # pool and model that a Triton stopped serving

    def start(self) -> None:
        """Starts the task that probes; ``close`` ends it."""
        self._task = asyncio.create_task(self._probe_forever(), name="fleet-probes")

    async def close(self) -> None:
        """Stops probing and closes every engine."""
        tasks = [*self._probes, *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for engine in (*self._engines.values(), *(each.engine for each in self._removed)):
            await engine.close()

    def set_addresses(
        self, addresses: Iterable[str], pools: Mapping[str, str] | None = None
    ) -> bool:
        """Sets the Tritons that there are; returns whether they have changed.

        A Triton that is removed gets no new batch. Its connection is closed once no batch is in
        flight there.

        Args:
            addresses: of all Tritons.
            pools: the pool of each Triton, by address; what is left out belongs to the default one.
        """
        wanted = set(addresses)
        before = self._pools
        self._pools = {at: pool for at, pool in (pools or {}).items() if pool != DEFAULT_POOL}
        gone, new = self._engines.keys() - wanted, wanted - self._engines.keys()
        for address in gone:
            log.info("triton left", extra={"triton": address})
            keys = [key for key in self._replicas if key[0] == address]
            replicas = tuple(self._replicas.pop(key) for key in keys)
            pool = before.get(address, DEFAULT_POOL)
            self._stopped.update((pool, each.model) for each in replicas if each.serves)
            self._removed.append(_RemovedTriton(self._engines.pop(address), replicas))
            del self._loads[address]
        for key in [key for key in self._replicas if before.get(key[0]) != self._pools.get(key[0])]:
            moved = self._replicas.pop(key)  # its batches end, and it gets no more
            if moved.serves:
                self._stopped.add((before.get(key[0], DEFAULT_POOL), key[1]))
        for address in sorted(new):
            log.info("triton joined", extra={"triton": address})
            self._engines[address] = self._connect(address)
            self._loads[address] = TritonLoad()
        return bool(gone or new) or before != self._pools

    def set_reported(self, reported: Mapping[str, frozenset[str]], now: float) -> None:
        """Takes the models that loaders report, by address; what is new there is probed at once."""
        before, self._reported = self._reported, reported
        none: frozenset[str] = frozenset()
        new = {address: models - before.get(address, none) for address, models in reported.items()}
        for (address, model), replica in self._replicas.items():
            if model in new.get(address, none) and replica.breaker.hasten(now):
                self._schedule(replica)

    @property
    def asleep(self) -> Collection[tuple[str, str]]:
        """Pools and models that no Triton need hold, and that nobody waits for."""
        return self._asleep

    def set_asleep(self, asleep: Collection[tuple[str, str]]) -> None:
        """Takes them; see ``asleep``."""
        self._asleep = asleep

    def has_asked(self, replica: Replica) -> bool:
        """Whether a Triton serves a model, or has had its time to say so.

        Where its loader does not say that it holds the model, one question is enough. Else it may
        only be busy: the third question has four times the patience of the first.
        """
        reported = self._reported.get(replica.address)
        likely = reported is None or replica.model in reported
        return replica.serves or replica.breaker.failures >= (_PATIENT_PROBES if likely else 1)

    def trust(self, address: str, model: str, now: float) -> bool:
        """The loader says that its Triton holds a model; returns whether it serves already.

        If not, it is probed at once.
        """
        replica = self._replicas.get((address, model))
        if replica is None:
            return False
        if not replica.serves and replica.breaker.hasten(now):
            self._schedule(replica)
        return replica.serves

    def doubt(self, address: str, model: str, now: float, pause: float = 0.0) -> None:
        """A Triton may have unloaded a model: no batch is sent before a probe finds it.

        One that is busy with it is left alone, as its batches tell. ``pause``: seconds before the
        probe.
        """
        replica = self._replicas.get((address, model))
        if replica is None or replica.busy:
            return
        if replica.serves or pause:
            replica.fail(now, pause)
        elif replica.breaker.hasten(now):
            self._schedule(replica)

    def replicas(
        self,
        model: str,
        instances: int,
        on_change: Callable[[], None],
        pool: str = DEFAULT_POOL,
    ) -> tuple[Replica, ...]:
        """The replicas of a package, one for each Triton of a pool, made where they are missing.

        ``on_change`` is called whenever one of them begins to serve.
        """
        self._on_serving[pool, model] = on_change
        return tuple(
            self._replica(address, model, instances)
            for address in sorted(self._engines)  # the first is the same in all gateways
            if self._pool_of(address) == pool
        )

    def resize(self, address: str, model: str, instances: int, now: float) -> bool:
        """Sets how many batches of a package a Triton runs at once; returns if that has changed."""
        replica = self._replicas.get((address, model))
        return replica is not None and replica.resize(instances, now)

    def forget(self, model: str, pool: str = DEFAULT_POOL) -> None:
        """Removes the replicas of a package that no route to a pool needs any more."""
        self._on_serving.pop((pool, model), None)
        for key in [key for key in self._replicas if key[1] == model]:
            if self._pool_of(key[0]) == pool:
                del self._replicas[key]

    def lost(self, address: str, now: float) -> None:
        """No server answers at an address: its replicas serve again once a probe succeeds."""
        for replica in self._replicas.values():
            if replica.address == address and replica.serves:
                replica.fail(now)
                log.warning(
                    "replica stopped serving", extra={"triton": address, "model": replica.model}
                )

    def _pool_of(self, address: str) -> str:
        return self._pools.get(address, DEFAULT_POOL)

    def due(self, now: float) -> list[Replica]:
        """Whom to probe now, each once: the caller must report the outcome of its probe."""
        due = []
        while self._due and self._due[0][0] <= now:
            _, _, replica = heappop(self._due)
            known = self._replicas.get((replica.address, replica.model))
            if known is replica and replica.breaker.probe_due(now):
                due.append(replica)
        return due

    def _replica(self, address: str, model: str, instances: int) -> Replica:
        key = (address, model)
        replica = self._replicas.get(key)
        if replica is None:
            engine = self._engines[address]
            replica = self._replicas[key] = Replica(
                engine,
                address,
                model,
                instances,
                self._ahead,
                opened=self._opened,
                load=self._loads[address],
            )
            self._schedule(replica)
        return replica

    def _opened(self, replica: Replica, served: bool) -> None:  # noqa: FBT001 - a callback
        self._schedule(replica)
        if served:
            self._stopped.add((self._pool_of(replica.address), replica.model))

    def _schedule(self, replica: Replica) -> None:
        heappush(self._due, (replica.breaker.probe_at, next(self._numbers), replica))

    async def _probe_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._hasten_unserved(loop.time())
            for replica in self.due(loop.time()):
                task = asyncio.create_task(self._probe(replica))
                self._probes.add(task)
                task.add_done_callback(self._probes.discard)
            await self._close_removed()
            await asyncio.sleep(_PROBE_TICK_SECONDS)

    async def _close_removed(self) -> None:
        """Closes connections to removed Tritons, which would add up: pods get new addresses."""
        done = [each for each in self._removed if not any(r.busy for r in each.replicas)]
        for removed in done:
            await removed.engine.close()
            self._removed.remove(removed)

    async def _probe(self, replica: Replica) -> None:
        ready = False
        try:
            ready = await replica.engine.ready(replica.model, replica.breaker.patience)
        finally:
            if not ready:
                now = asyncio.get_running_loop().time()
                replica.fail(now, self._least_pause(replica))
        if not ready:
            return
        replica.breaker.succeed()
        log.info("replica serves", extra={"triton": replica.address, "model": replica.model})
        on_serving = self._on_serving.get((self._pool_of(replica.address), replica.model))
        if on_serving is not None:
            on_serving()

    def _hasten_unserved(self, now: float) -> None:
        """Has no replica wait long for its probe whose model nobody in its pool serves any more."""
        stopped, self._stopped = self._stopped, set()
        for pool, model in stopped:
            replicas = [
                replica
                for address in self._engines
                if self._pool_of(address) == pool
                and (replica := self._replicas.get((address, model))) is not None
            ]
            if any(replica.serves for replica in replicas):
                continue
            for replica in replicas:
                if replica.breaker.hasten(now + PROBE_PAUSES.most):
                    self._schedule(replica)

    def _least_pause(self, replica: Replica) -> float:
        """How long a replica that is not ready is left alone at least, seconds.

        A Triton need not hold what another one serves: with many of both, nearly all pairs would be
        probed for ever. Where nobody in its pool serves a model, no report is taken for an answer.
        """
        if (self._pool_of(replica.address), replica.model) in self._asleep:
            return _ASLEEP_PAUSE_SECONDS
        reported = self._reported.get(replica.address)
        if reported is None or replica.model in reported:
            return 0.0
        pool = self._pool_of(replica.address)
        for address in self._engines:
            if self._pool_of(address) != pool:
                continue
            other = self._replicas.get((address, replica.model))
            if other is not None and other.serves:
                return _UNREPORTED_PAUSE_SECONDS
        return 0.0
