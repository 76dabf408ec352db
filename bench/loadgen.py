"""The load generator's process: a ``Load`` as JSON on standard input, a ``Result`` on output.

Started by ``load.offer``, on a core that what is measured does not use. For an open load it spins
rather than sleeps when a request is nearly due: timers are a millisecond coarse.
"""

import asyncio
import bisect
import sys
import time
from collections import Counter, deque
from collections.abc import Callable

import msgspec
import numpy as np
import uvloop

from bench import grpc_wire
from bench.load import LatencyMilliseconds, Load, Result, StatusOutcome
from bench.wire import Connection, request

_SPIN_SECONDS = 0.003

Sender = Connection | grpc_wire.Caller


class Generator:
    """One run, by a clock in seconds. ``answered`` is called by the connections, on the loop."""

    def __init__(self, load: Load, clock: Callable[[], float] = time.perf_counter) -> None:
        self._load = load
        self._clock = clock
        self._payloads = _payloads(load)
        self._channels: grpc_wire.Channels | None = None
        self._idle: list[Sender] = []
        self._waiting: deque[tuple[float, int]] = deque()
        self._opening = 0
        self._connections = 0
        self._begin = 0.0
        self._end = 0.0
        self._sent = 0
        self._unanswered = 0
        self._measured: list[tuple[int, float]] = []  # status, seconds
        self._ends: list[tuple[float, int]] = []  # of every answer: when, status
        self._late: list[float] = []
        self._processor = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> Result:
        """Offers the load to its end and waits for the answers still due."""
        load = self._load
        if load.protocol == "grpc":
            self._channels = grpc_wire.Channels(f"{load.host}:{load.port}")
        start = self._clock()
        self._begin = start + load.warm_up_seconds
        self._end = self._begin + load.seconds
        if load.rate is None:
            for _ in range(load.callers):
                self._open()
        else:
            self._tick(start)
        began = time.process_time()
        await asyncio.sleep(load.warm_up_seconds + load.seconds)
        self._processor = (time.process_time() - began) / (load.warm_up_seconds + load.seconds)
        deadline = self._clock() + load.timeout_seconds
        while self._unanswered and self._clock() < deadline:  # noqa: ASYNC110 - two values, no event
            await asyncio.sleep(0.01)
        if self._channels is not None:
            await self._channels.close()
        return self._result()

    def _tick(self, start: float) -> None:
        """Sends what is due; calls itself again shortly before the next is."""
        rate = self._load.rate or 0.0
        now = self._clock()
        while (due := start + self._sent / rate) <= now and due < self._end:
            self._late.append(now - due)
            self._dispatch(due, self._sent)
        if due >= self._end:
            return
        loop = asyncio.get_running_loop()
        if due - now > _SPIN_SECONDS:
            loop.call_later(due - now - _SPIN_SECONDS, self._tick, start)
        else:
            loop.call_soon(self._tick, start)

    def _dispatch(self, due: float, index: int) -> None:
        self._sent += 1
        self._unanswered += 1
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                connection.send(self._payloads[index % len(self._payloads)], due, index)
                return
        if self._connections < self._load.connections and self._opening <= len(self._waiting):
            self._open()
        if self._opening <= len(self._waiting) and self._load.gives_up:
            # Queued here, it and all behind it would come late, whatever the server does.
            self._count(0, due, index)
            return
        self._waiting.append((due, index))

    def _open(self) -> None:
        self._connections += 1
        self._opening += 1
        task = asyncio.create_task(self._connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self) -> None:
        if self._channels is not None:
            self._opening -= 1
            self._next(self._channels.caller(self._answered, self._load.timeout_seconds))
            return
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(self._answered, self._lost), self._load.host, self._load.port
            )
        except OSError:
            self._opening -= 1
            self._connections -= 1
            if self._waiting:
                self._count(0, *self._waiting.popleft())
            await asyncio.sleep(0.01)
            if self._load.rate is None and self._clock() < self._end:
                self._open()
            return
        self._opening -= 1
        self._next(connection)

    def _next(self, connection: Sender) -> None:
        """Gives an idle connection its next request, or lays it aside."""
        if not connection.open:
            return
        if self._load.rate is None:
            now = self._clock()
            if now < self._end:
                index = self._sent
                self._sent += 1
                self._unanswered += 1
                connection.send(self._payloads[index % len(self._payloads)], now, index)
        elif self._waiting:
            due, index = self._waiting.popleft()
            connection.send(self._payloads[index % len(self._payloads)], due, index)
        else:
            self._idle.append(connection)

    def _answered(self, connection: Sender, status: int) -> None:
        self._count(status, connection.due, connection.index)
        self._next(connection)

    def _lost(self, connection: Connection) -> None:  # noqa: ARG002 - one is like another
        self._connections -= 1
        if self._load.rate is None and self._clock() < self._end:
            self._open()

    def _count(self, status: int, due: float, index: int) -> None:  # noqa: ARG002
        self._unanswered -= 1
        now = self._clock()
        self._ends.append((now, status))
        if self._begin <= due < self._end:
            self._measured.append((status, now - due))

    def _result(self) -> Result:
        load = self._load
        seconds = load.seconds
        by_status: dict[int, list[float]] = {}
        for status, took in self._measured:
            by_status.setdefault(status, []).append(took)
        # A closed load's last requests may be answered after the end: they are few, and counted.
        rates = rates_of(self._ends, self._begin, self._end) if load.rate is None else {}
        outcomes = [
            StatusOutcome(
                status, len(found), rates.get(status, len(found) / seconds), _latency(found)
            )
            for status, found in sorted(by_status.items())
        ]
        if self._unanswered:
            timeout = _latency([load.timeout_seconds])
            outcomes.append(StatusOutcome(-1, self._unanswered, 0.0, timeout))
        late = float(np.percentile(self._late, 99)) * 1000 if self._late else 0.0
        return Result(
            offered=len(self._measured) + self._unanswered,
            seconds=seconds,
            outcomes=outcomes,
            send_late_p99_ms=late,
            processor=self._processor,
        )


def rates_of(ends: list[tuple[float, int]], begin: float, end: float) -> dict[int, float]:
    """Answers a second by status, from the last before the beginning to the last before the end.

    A server that answers in batches answers no whole number of them in a given time, so that a
    count over that time is off by up to a batch. Between two answers it is not. ``ends`` are in
    order. Empty where no time lies between two answers.
    """
    times = [at for at, _ in ends]
    first = max(bisect.bisect_right(times, begin) - 1, 0)
    last = bisect.bisect_right(times, end) - 1
    if last <= first:
        return {}
    counts = Counter(status for _, status in ends[first + 1 : last + 1])
    return {status: count / (times[last] - times[first]) for status, count in counts.items()}


def _payloads(load: Load) -> list[bytes]:
    """Each body as it goes over the wire."""
    if load.protocol == "grpc":
        bodies = [msgspec.json.decode(body, type=list[str]) for body in load.bodies]
        return [grpc_wire.message(load.path, texts) for texts in bodies]
    return [request(load.path, f"{load.host}:{load.port}", body) for body in load.bodies]


def _latency(seconds: list[float]) -> LatencyMilliseconds:
    values = np.array(seconds) * 1000
    return LatencyMilliseconds(*(float(each) for each in np.percentile(values, [50, 99, 100])))


def main() -> None:
    """Reads a load, makes it, says what came of it."""
    load = msgspec.json.decode(sys.stdin.buffer.read(), type=Load)

    async def run() -> Result:
        return await Generator(load).run()

    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(run())))


if __name__ == "__main__":
    main()
