"""Has models come back that left their Tritons because nobody asked, while their callers wait.

One task a model asks the loaders of its pool, again and again, until a Triton serves it; anyone who
waits shares that task. A loader's word decides whether a batch may be sent: it says that it holds
the model, and keeps it, or else the replica serves again after a probe. Callers wait in a room of
bounded size, each for a bounded time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic

from contracts.loading import WAKE_PATH, LoaderReport, WakeAnswer
from gateway.admission.waiting_room import WaitingRoom
from gateway.engine.fleet import Fleet
from gateway.errors import (
    RETRY_AFTER_SECONDS,
    DeadlineExceededError,
    ModelUnavailableError,
    ShuttingDownError,
)

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0  # between two questions to the loaders
_CALL_SECONDS = 0.9
_MOST_HEAD_BYTES = 4096
# For how long a loader's word holds: it keeps a model for a minute at least.
AWAKE_SECONDS = 20.0
_RETRY_SECONDS = 5.0  # after which a caller may try again


Ask = Callable[[LoaderReport, str], Awaitable[WakeAnswer]]


@dataclass(slots=True)
class _Wake:
    """A model that is coming back."""

    task: asyncio.Task[None] | None = None
    served: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0
    heard: bool = False  # a loader has said what becomes of it
    full: set[str] = field(default_factory=set)  # loaders who said last that there is no room


class Waking:
    """The models that are asleep, and the callers that wait for one.

    Args:
        fleet: the Tritons.
        ask: asks one loader for a model, by Triton's name of it; see ``ask_loader``.
        awakened: is told how long a model took to come back, seconds; False where its last caller
            had gone before.
        seconds: that a caller waits at most.
        room: in which callers of all models wait.
        clock: the event loop's, seconds.
    """

    def __init__(
        self,
        fleet: Fleet,
        ask: Ask,
        awakened: Callable[[float, bool], None],
        seconds: float,
        *,
        room: WaitingRoom | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.seconds = seconds
        self.room = room or WaitingRoom("a model that is coming back")
        self._fleet = fleet
        self._ask = ask
        self._awakened = awakened
        self._clock = clock
        self._reports: tuple[LoaderReport, ...] = ()
        self._asleep: frozenset[tuple[str, str]] = frozenset()
        self._awake_until: dict[tuple[str, str], float] = {}
        self._wakes: dict[tuple[str, str], _Wake] = {}

    @property
    def asleep(self) -> int:
        """Models that sleep by their endpoints' statuses, those of two pools counted twice."""
        return len(self._asleep)

    def follow(self, asleep: Iterable[tuple[str, str]], reports: tuple[LoaderReport, ...]) -> None:
        """Takes what sleeps by the endpoints' statuses, by pool and Triton's name, and reports."""
        self._asleep, self._reports = frozenset(asleep), reports
        self._fleet.set_asleep(self._asleep - self._wakes.keys())
        for key in self._awake_until.keys() - self._asleep:
            del self._awake_until[key]

    def is_asleep(self, pool: str, model: str) -> bool:
        """Whether a caller has to wait for the loaders' word."""
        key = pool, model
        return key in self._asleep and self._clock() >= self._awake_until.get(key, 0.0)

    def serves(self, pool: str, model: str) -> None:
        """A Triton of a pool serves a model: those who wait for it go on."""
        wake = self._wakes.get((pool, model))
        if wake is not None and wake.heard:  # before, it may be one that is leaving
            wake.served.set()

    async def wait(self, pool: str, model: str, until: float, size: int) -> None:
        """Has a model come back, and waits until a Triton serves it.

        Args:
            pool: of Tritons.
            model: Triton's name of it.
            until: by the loop's clock, seconds.
            size: bytes that the caller holds meanwhile.

        Raises:
            OverloadedError: too many wait already.
            ModelUnavailableError: it was not there in time.
            ShuttingDownError: this process ends.
        """
        key = pool, model
        wake = self._wakes.get(key)
        if wake is None:
            wake = self._wakes[key] = _Wake()
        if wake.task is None:
            wake.task = asyncio.create_task(self._wake(key, wake), name=f"wake-{model}")
        wake.waiting += 1
        began = self._clock()
        try:
            await self.room.wait(wake.task, size, until)
        except DeadlineExceededError as late:
            full = wake.full.issuperset(each.loader for each in self._asked_in(pool))
            why = "there is no room for it now" if wake.full and full else "it is coming back"
            raise ModelUnavailableError(
                f"This model is not loaded while nobody asks for it; {why}, and it was not there "
                f"within {self._clock() - began:.1f} s.",
                retry_after_seconds=_RETRY_SECONDS,
            ) from late
        except asyncio.CancelledError:
            if not wake.task.cancelled():
                raise
            raise ShuttingDownError(
                "This gateway is shutting down; try again.", retry_after_seconds=RETRY_AFTER_SECONDS
            ) from None
        finally:
            wake.waiting -= 1

    async def close(self) -> None:
        """Ends all wakes; those who wait for one are refused."""
        tasks = [wake.task for wake in self._wakes.values() if wake.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wake(self, key: tuple[str, str], wake: _Wake) -> None:
        """Asks the loaders until a Triton serves the model, or nobody waits for it any more."""
        if not wake.waiting:  # all who came found no room
            del self._wakes[key]
            return
        began = self._clock()
        log.info("a caller asks for a model that sleeps", extra={"model": key[1], "pool": key[0]})
        self._fleet.set_asleep(self._asleep - self._wakes.keys())
        served = False
        try:
            while not served and wake.waiting:
                served = await self._try(key, wake)
        finally:
            del self._wakes[key]
            if served:
                self._awake_until[key] = self._clock() + AWAKE_SECONDS
            self._awakened(self._clock() - began, served)

    async def _try(self, key: tuple[str, str], wake: _Wake) -> bool:
        """Asks all loaders once; returns whether a Triton serves the model by their word."""
        pool, model = key
        wake.served.clear()
        asking = [
            asyncio.create_task(self._ask_one(report, model, wake))
            for report in self._asked_in(pool)
        ]
        try:
            async with asyncio.timeout(_AGAIN_SECONDS):
                await wake.served.wait()
        except TimeoutError:
            wake.heard = True  # who says nothing for so long unloads nothing either
            return False
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return True

    def _asked_in(self, pool: str) -> list[LoaderReport]:
        """The reports of those who can be asked."""
        return [each for each in self._reports if each.pool == pool and each.wake_address]

    async def _ask_one(self, report: LoaderReport, model: str, wake: _Wake) -> None:
        """Asks one loader, and goes by what it says of its Triton."""
        told = await self._ask(report, model)
        now = asyncio.get_running_loop().time()
        (wake.full.add if told is WakeAnswer.NO_ROOM else wake.full.discard)(report.loader)
        if told is not WakeAnswer.HELD:
            pause = _AGAIN_SECONDS if told is WakeAnswer.LEAVING else 0.0
            self._fleet.doubt(report.triton_grpc, model, now, pause)
        elif self._fleet.trust(report.triton_grpc, model, now):
            wake.served.set()
        wake.heard = wake.heard or told is not WakeAnswer.LEAVING


async def ask_loader(report: LoaderReport, model: str) -> WakeAnswer:
    """Asks a loader for a model over HTTP; what goes wrong is no answer."""
    host, _, port = report.wake_address.rpartition(":")
    try:
        async with asyncio.timeout(_CALL_SECONDS):
            return await _posted(host.strip("[]"), int(port), report, model)
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        fields = {"loader": report.loader, "model": model, "reason": repr(error)}
        log.warning("a loader can't be asked for a model", extra=fields)
        return WakeAnswer.UNKNOWN


async def _posted(host: str, port: int, report: LoaderReport, model: str) -> WakeAnswer:
    reader, writer = await asyncio.open_connection(host, port, limit=_MOST_HEAD_BYTES)
    try:
        writer.write(
            f"POST {WAKE_PATH}{model} HTTP/1.1\r\nHost: {report.wake_address}\r\n"
            f"Authorization: Bearer {report.wake_key}\r\nContent-Length: 0\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        line = await reader.readuntil(b"\r\n")
    finally:
        writer.close()
    status = int(line.split()[1])
    return next((word for word in WakeAnswer if word.value == status), WakeAnswer.UNKNOWN)
