"""Models that left come back while callers wait: one wake for all, and what waits is bounded."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

import pytest
from gateway_world import FakeEngine

from contracts.loading import WAKE_PATH, LoaderReport, WakeAnswer
from gateway.admission.waiting_room import WaitingRoom
from gateway.engine.fleet import Fleet, Replica
from gateway.errors import ModelUnavailableError, OverloadedError, ShuttingDownError
from gateway.state.waking import AWAKE_SECONDS, Waking, ask_loader
from service import pages

MODEL, POOL = "m-v1-abc", "default"
KEY = (POOL, MODEL)
ADDRESSES = ("one:8001", "other:8001")


def report(number: int, address: str = "l:1", key: str = "k") -> LoaderReport:
    return LoaderReport(
        loader=f"l{number}",
        triton_grpc=ADDRESSES[number],
        at=0.0,
        ready=True,
        wake_address=address,
        wake_key=key,
    )


REPORTS = (report(0), report(1))


@dataclass
class SleepyEngine(FakeEngine):
    """Holds the model when told to."""

    has_model: bool = False
    probes: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def ready(self, model: str, timeout_seconds: float) -> bool:
        self.probes += 1
        self.news.set()
        return self.has_model


@dataclass
class World:
    """A fleet of two Tritons, what their loaders say, and the wakes."""

    room: WaitingRoom | None = None
    engines: dict[str, SleepyEngine] = field(default_factory=dict)
    words: dict[str, WakeAnswer] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    wakes: list[bool] = field(default_factory=list)
    now: float | None = None
    on_ask: Callable[[], None] = lambda: None
    news: asyncio.Event = field(default_factory=asyncio.Event)  # of all that is noted here

    def __post_init__(self) -> None:
        self.fleet = Fleet(self._connect, ahead=2)
        self.waking = Waking(
            self.fleet, self._ask, self._awakened, 60.0, room=self.room, clock=self.clock
        )

    def _connect(self, address: str) -> SleepyEngine:
        engine = self.engines[address] = SleepyEngine(news=self.news)
        return engine

    async def _ask(self, report: LoaderReport, model: str) -> WakeAnswer:
        self.asked.append((report.loader, model))
        self.on_ask()
        self.news.set()
        return self.words.get(report.loader, WakeAnswer.COMING)

    def _awakened(self, seconds: float, served: bool) -> None:
        assert seconds >= 0
        self.wakes.append(served)
        self.news.set()

    def clock(self) -> float:
        return asyncio.get_running_loop().time() if self.now is None else self.now

    async def until(self, seen: Callable[[], bool]) -> None:
        """Waits for what is noted here, and for what follows from it at once."""
        while not seen():
            self.news.clear()
            await self.news.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def wait(self, seconds: float = 60.0, size: int = 0) -> None:
        await self.waking.wait(*KEY, self.clock() + seconds, size)


def serves(replica: Replica) -> bool:
    return replica.serves


@asynccontextmanager
async def world(room: WaitingRoom | None = None) -> AsyncIterator[World]:
    made = World(room)
    made.fleet.set_addresses(ADDRESSES)
    made.fleet.replicas(MODEL, 1, lambda: made.waking.serves(*KEY), POOL)
    made.waking.follow({KEY}, REPORTS)
    made.fleet.start()
    try:
        async with asyncio.timeout(60):
            yield made
    finally:
        await made.waking.close()
        await made.fleet.close()


async def test_many_callers_are_one_wake_and_go_on_when_one_triton_serves() -> None:
    async with world() as found:
        callers = [asyncio.create_task(found.wait()) for _ in range(50)]
        await asyncio.sleep(0)
        found.engines[ADDRESSES[1]].has_model = True
        await asyncio.gather(*callers)
        assert found.wakes == [True]
        assert found.waking.room.callers == 0
        assert len(found.asked) < 50
        assert not found.waking.is_asleep(*KEY)


async def test_loaders_are_asked_again_until_the_model_is_there() -> None:
    async with world() as found:
        found.words = dict.fromkeys(("l0", "l1"), WakeAnswer.UNKNOWN)  # both are being restarted

        def later() -> None:
            if len(found.asked) > 2:
                found.words = {}
                found.engines[ADDRESSES[0]].has_model = True

        found.on_ask = later
        await found.wait()
        assert found.asked[:4] == [("l0", MODEL), ("l1", MODEL)] * 2


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (WakeAnswer.NO_ROOM, "there is no room for it now"),
        (WakeAnswer.COMING, "it is coming back"),
    ],
)
async def test_who_waited_in_vain_is_told_whether_any_triton_has_the_room(
    other: WakeAnswer, said: str
) -> None:
    async with world() as found:
        found.words = {"l0": WakeAnswer.NO_ROOM, "l1": other}
        waiting = asyncio.create_task(found.wait())
        await found.until(lambda: len(found.asked) == 4)
        late = asyncio.create_task(found.wait(seconds=0.0))
        with pytest.raises(ModelUnavailableError, match=said):
            await late
        found.engines[ADDRESSES[0]].has_model = True  # others have left it
        found.words = {}
        await waiting


async def test_a_triton_that_is_unloading_the_model_is_not_taken_for_one_that_holds_it() -> None:
    async with world() as found:
        engine = found.engines[ADDRESSES[0]]
        engine.has_model = True
        found.words = {"l0": WakeAnswer.HELD}
        await found.wait()
        assert found.engines[ADDRESSES[0]].probes > 0
        replica = found.fleet.replicas(MODEL, 1, lambda: found.waking.serves(*KEY), POOL)[0]
        assert serves(replica)
        # A status that says that it sleeps, and a loader that is at it.
        found.now = asyncio.get_running_loop().time() + AWAKE_SECONDS
        assert found.waking.is_asleep(*KEY)
        found.now = None
        found.words = {"l0": WakeAnswer.LEAVING}
        engine.has_model = False
        waiting = asyncio.create_task(found.wait())
        await found.until(lambda: len(found.asked) == 4)
        assert not serves(replica)
        engine.has_model, found.words = True, {"l0": WakeAnswer.COMING}
        await waiting
        assert serves(replica)


async def test_a_triton_whose_loader_says_that_it_holds_the_model_is_asked_at_once() -> None:
    async with world() as found:
        for engine in found.engines.values():
            engine.has_model = True
        await found.wait()
        probes = [engine.probes for engine in found.engines.values()]
        found.words = dict.fromkeys(("l0", "l1"), WakeAnswer.HELD)
        await found.wait()
        assert [engine.probes for engine in found.engines.values()] == probes


async def test_who_waits_in_vain_is_told_when_to_come_again() -> None:
    async with world() as found:
        with pytest.raises(ModelUnavailableError, match="coming back") as caught:
            await found.wait(seconds=0.05)
        assert caught.value.retry_after_seconds == 5.0
        assert found.waking.room.callers == 0


async def test_a_wake_ends_where_nobody_waits_any_more() -> None:
    async with world() as found:
        caller = asyncio.create_task(found.wait())
        await asyncio.sleep(0)
        caller.cancel()
        await found.until(lambda: bool(found.wakes))
        assert found.wakes == [False]
        assert found.waking.is_asleep(*KEY)


async def test_who_finds_no_room_to_wait_is_refused_and_wakes_nothing() -> None:
    async with world(WaitingRoom("it", most_callers=2)) as found:
        found.waking.follow({KEY, (POOL, "n-v1-abc")}, REPORTS)
        callers = [asyncio.create_task(found.wait()) for _ in range(2)]
        await asyncio.sleep(0)
        assert found.waking.room.callers == 2
        with pytest.raises(OverloadedError, match="wait for it"):
            await found.waking.wait(POOL, "n-v1-abc", found.clock() + 60.0, 0)
        found.engines[ADDRESSES[0]].has_model = True
        await asyncio.gather(*callers)
        assert {model for _, model in found.asked} == {MODEL}
        assert found.wakes == [True]


async def test_who_waits_while_the_gateway_ends_is_told_so() -> None:
    async with world() as found:
        caller = asyncio.create_task(found.wait())
        await asyncio.sleep(0)
        await found.waking.close()
        with pytest.raises(ShuttingDownError):
            await caller


async def test_what_does_not_sleep_is_not_waited_for() -> None:
    async with world() as found:
        assert found.waking.is_asleep(*KEY)
        assert not found.waking.is_asleep("gpu", MODEL)
        found.waking.follow((), REPORTS)
        assert not found.waking.is_asleep(*KEY)


async def test_what_sleeps_is_probed_seldom() -> None:
    async with world() as found:
        await found.until(lambda: all(engine.probes for engine in found.engines.values()))
        pauses = [
            replica.breaker.probe_at - asyncio.get_running_loop().time()
            for replica in found.fleet.replicas(MODEL, 1, lambda: None, POOL)
        ]
        assert all(pause > 50 for pause in pauses)


# The question to a loader


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (HTTPStatus.OK, WakeAnswer.HELD),
        (HTTPStatus.ACCEPTED, WakeAnswer.COMING),
        (HTTPStatus.CONFLICT, WakeAnswer.LEAVING),
        (HTTPStatus.INSUFFICIENT_STORAGE, WakeAnswer.NO_ROOM),
        (HTTPStatus.NOT_FOUND, WakeAnswer.UNKNOWN),
        (HTTPStatus.FORBIDDEN, WakeAnswer.UNKNOWN),
    ],
)
async def test_a_loader_is_asked_over_http_with_its_key(
    status: HTTPStatus, told: WakeAnswer
) -> None:
    shown = []

    def act(name: str, key: str) -> tuple[HTTPStatus, str]:
        shown.append((name, key))
        return status, ""

    with pages.serve("127.0.0.1", 0, {}, {WAKE_PATH: act}) as server:
        asked = report(0, f"127.0.0.1:{server.port}", "secret")
        assert await ask_loader(asked, MODEL) is told
        server.shutdown()
    assert shown == [(MODEL, "secret")]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", ":", "127.0.0.1:x"])
async def test_a_loader_that_is_away_says_nothing(address: str) -> None:
    assert await ask_loader(report(0, address), MODEL) is WakeAnswer.UNKNOWN
