"""Which Tritons there are, what each is doing, and which of them hold a package.

A ``Replica`` is one package on one Triton, to which batches are sent. It serves once a probe has
found the model ready there; a failed batch closes it to callers at once and probes look for its
return. Reports of who holds what are never trusted without a probe. This module never picks rows.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gateway.engine.breaker import Breaker
from gateway.engine.protocol import Engine

log = logging.getLogger(__name__)

_PROBE_TIMEOUT_SECONDS = 1.0
_PROBE_TICK_SECONDS = 0.05
_MOST_COVER = 4  # times the batches usually sent ahead, while the event loop's turns are long


class Flight:
    """A batch on its way; ``started`` is when an engine instance was free to run it."""

    __slots__ = ("expected", "sent", "started", "tokens")

    def __init__(self, sent: float, expected: float, tokens: int) -> None:
        self.sent = sent
        self.expected = expected  # engine seconds
        self.tokens = tokens  # padding included
        self.started: float | None = None


class Replica:
    """One package on one Triton.

    Args:
        engine: the connection to that Triton.
        address: its name in logs and metrics.
        model: the name under which Triton holds the package.
        instances: how many batches it runs at once.
        ahead: batches in flight for each instance; what is more waits in the batcher.
    """

    def __init__(
        self, engine: Engine, address: str, model: str, instances: int, ahead: int
    ) -> None:
        self.engine = engine
        self.address = address
        self.model = model
        self.breaker = Breaker()
        self.failed = 0  # batches in a row that the model failed at
        self._instances = instances
        self._ahead = ahead
        self._flights: list[Flight] = []
        self._running = 0
        self._expected = 0.0

    @property
    def serves(self) -> bool:
        """Whether batches may be sent."""
        return self.breaker.closed

    @property
    def instances(self) -> int:
        """Batches that it runs at once."""
        return self._instances

    @property
    def busy(self) -> bool:
        """Whether any batch is on its way."""
        return bool(self._flights)

    @property
    def idle(self) -> int:
        """Instances with nothing to do."""
        return max(0, self._instances - len(self._flights))

    def spare(self, cover_seconds: float = 0.0) -> int:
        """Batches that may still be sent ahead, idle instances not counted.

        Args:
            cover_seconds: so long the engine should have work for, even where that takes more
                batches than are usually sent ahead: up to some times as many.
        """
        flying = len(self._flights)
        most = self._instances * self._ahead
        spare = most - max(flying, self._instances)
        if spare <= 0 and self._expected < cover_seconds * self._instances:
            return int(flying < _MOST_COVER * most)
        return max(0, spare)

    @property
    def tokens(self) -> int:
        """Padded tokens in flight."""
        return sum(flight.tokens for flight in self._flights)

    def next_free(self) -> tuple[float, float]:
        """When an instance should have nothing to do, and its last batch's engine seconds."""
        ends = []
        waiting = last = 0.0
        for flight in self._flights:
            if flight.started is not None:
                ends.append((flight.started + flight.expected, flight.expected))
            else:
                waiting += flight.expected
                last = flight.expected
        end, running = min(ends, default=(0.0, 0.0))
        return end + waiting / self._instances, last or running

    @property
    def expected_seconds(self) -> float:
        """Engine seconds of all that is in flight, what has been spent of them included."""
        return self._expected

    def depart(self, now: float, expected: float, tokens: int) -> Flight:
        """Counts a batch as sent."""
        flight = Flight(now, expected, tokens)
        self._flights.append(flight)
        self._expected += expected
        if self._running < self._instances:
            self._running += 1
            flight.started = now
        return flight

    def arrive(self, flight: Flight, now: float) -> float:
        """Counts a batch as ended.

        Returns:
            Seconds that an instance spent on it: time behind other batches is not its cost.
        """
        self._flights.remove(flight)
        self._expected = self._expected - flight.expected if self._flights else 0.0
        if flight.started is None:  # it overtook one that was sent before
            return now - flight.sent
        self._running -= 1
        self._start_waiting(now)
        return now - flight.started

    def resize(self, instances: int, now: float) -> bool:
        """Takes note of how many batches it runs at once from now on; true if that is news."""
        if instances == self._instances:
            return False
        self._instances = instances
        self._start_waiting(now)
        return True

    def _start_waiting(self, now: float) -> None:
        """Counts the batches that wait there as begun, as far as instances are free."""
        for flight in self._flights:
            if self._running >= self._instances:
                return
            if flight.started is None:
                flight.started = now
                self._running += 1


@dataclass(frozen=True, slots=True)
class _Left:
    """A Triton that left, and what may still be on its way there."""

    engine: Engine
    replicas: tuple[Replica, ...]


class Fleet:
    """All Tritons and all replicas, and the task that probes those that do not serve.

    Args:
        connect: opens an engine by its address.
        ahead: see ``Replica``.
    """

    def __init__(self, connect: Callable[[str], Engine], ahead: int) -> None:
        self._connect = connect
        self._ahead = ahead
        self._engines: dict[str, Engine] = {}
        self._replicas: dict[tuple[str, str], Replica] = {}
        self._watchers: dict[str, Callable[[], None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._probes: set[asyncio.Task[None]] = set()
        self._left: list[_Left] = []

    @property
    def addresses(self) -> tuple[str, ...]:
        """The Tritons known now."""
        return tuple(self._engines)

    def start(self) -> None:
        """Begins to probe; ``close`` ends it."""
        self._task = asyncio.create_task(self._probe_forever(), name="fleet-probes")

    async def close(self) -> None:
        """Stops probing and closes every engine."""
        tasks = [*self._probes, *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for engine in (*self._engines.values(), *(left.engine for left in self._left)):
            await engine.close()

    def set_addresses(self, addresses: Iterable[str]) -> bool:
        """Takes the Tritons that there are now; true if they are others than before.

        A Triton that left gets no new batch; its connection is closed once all that is in flight
        there has come back.
        """
        wanted = set(addresses)
        gone, new = self._engines.keys() - wanted, wanted - self._engines.keys()
        for address in gone:
            log.info("triton left", extra={"triton": address})
            keys = [key for key in self._replicas if key[0] == address]
            replicas = tuple(self._replicas.pop(key) for key in keys)
            self._left.append(_Left(self._engines.pop(address), replicas))
        for address in sorted(new):
            log.info("triton joined", extra={"triton": address})
            self._engines[address] = self._connect(address)
        return bool(gone or new)

    def replicas(
        self, model: str, instances: int, on_change: Callable[[], None]
    ) -> tuple[Replica, ...]:
        """The replicas of a package, one for each Triton, made where they are missing.

        ``on_change`` is called whenever one of them begins to serve.
        """
        self._watchers[model] = on_change
        return tuple(self._replica(address, model, instances) for address in self._engines)

    def resize(self, address: str, model: str, instances: int, now: float) -> bool:
        """Takes note of how many batches of a package a Triton runs at once; true if it is news."""
        replica = self._replicas.get((address, model))
        return replica is not None and replica.resize(instances, now)

    def forget(self, model: str) -> None:
        """Drops the replicas of a package that no route needs any more."""
        self._watchers.pop(model, None)
        for key in [key for key in self._replicas if key[1] == model]:
            del self._replicas[key]

    def lost(self, address: str, now: float) -> None:
        """Nobody answers at an address: none of its replicas serves until a probe says so."""
        for replica in self._replicas.values():
            if replica.address == address and replica.serves:
                replica.breaker.fail(now)
                log.warning(
                    "replica stopped serving", extra={"triton": address, "model": replica.model}
                )

    def _replica(self, address: str, model: str, instances: int) -> Replica:
        key = (address, model)
        replica = self._replicas.get(key)
        if replica is None:
            engine = self._engines[address]
            replica = self._replicas[key] = Replica(engine, address, model, instances, self._ahead)
        return replica

    async def _probe_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            for replica in tuple(self._replicas.values()):
                if replica.breaker.probe_due(loop.time()):
                    task = asyncio.create_task(self._probe(replica))
                    self._probes.add(task)
                    task.add_done_callback(self._probes.discard)
            await self._close_left()
            await asyncio.sleep(_PROBE_TICK_SECONDS)

    async def _close_left(self) -> None:
        """Pods come under ever new addresses: connections to those that went must not add up."""
        done = [left for left in self._left if not any(each.busy for each in left.replicas)]
        for left in done:
            await left.engine.close()
            self._left.remove(left)

    async def _probe(self, replica: Replica) -> None:
        ready = False
        try:
            ready = await replica.engine.ready(replica.model, _PROBE_TIMEOUT_SECONDS)
        finally:
            if not ready:
                replica.breaker.fail(asyncio.get_running_loop().time())
        if not ready:
            return
        replica.breaker.succeed()
        log.info("replica serves", extra={"triton": replica.address, "model": replica.model})
        watcher = self._watchers.get(replica.model)
        if watcher is not None:
            watcher()
