"""Callers of a model that left its Tritons: who waits, for how long, and who never does."""

import asyncio
from dataclasses import dataclass, field, replace
from time import monotonic

import pytest
from front_fakes import FakeKeys, FakeMetrics, view
from gateway_world import MemoryRecorder

from contracts.tasks import Task
from gateway.admission.byte_budget import ByteBudget
from gateway.admission.controller import AdmissionController, Capacity
from gateway.admission.rate_limits import RateLimits
from gateway.admission.token_budget import TokenBudget
from gateway.calls import EndpointView
from gateway.errors import ModelUnavailableError, UnauthenticatedError
from gateway.request_context import RequestContext

NAME, POOL, MODEL = "sentiment", "default", "sentiment-v1-abc"
LIMIT_SECONDS = 1.0


@dataclass
class SleepingEndpoint:
    """An endpoint whose model no Triton holds, until it is there."""

    found: list[Capacity] = field(default_factory=list)
    asleep: bool = True
    draining: bool = False

    def names(self) -> tuple[str, ...]:
        return (NAME,)

    def describe(self, endpoint: str) -> EndpointView:
        described = view(endpoint, Task.TEXT_CLASSIFICATION)
        return replace(described, asleep=self.asleep, timeout_seconds=LIMIT_SECONDS)

    def capacities(
        self, endpoint: str, key: str, forced_version: str | None, space: str | None = None
    ) -> list[Capacity]:
        return self.found

    def target(
        self, endpoint: str, key: str, forced_version: str | None, space: str | None = None
    ) -> tuple[str, str]:
        return POOL, MODEL


class Free:
    """A version that serves and has nothing to do."""

    serves = True
    may_return = False

    def wait_seconds(self, endpoint: str) -> float:
        return 0.0

    def work_seconds(self, tokens: object) -> float:
        return 0.0

    def likely_tokens(self, texts: int, characters: int) -> int:
        return 1


@dataclass
class FakeWaking:
    """Wakes that take as long as they are told to."""

    endpoint: SleepingEndpoint
    clock: "Clock"
    takes: float = 3.0
    seconds: float = 60.0
    waited: list[tuple[float, int]] = field(default_factory=list)  # left, and bytes
    awake: bool = False

    def is_asleep(self, pool: str, model: str) -> bool:
        assert (pool, model) == (POOL, MODEL)
        return not self.awake

    async def wait(self, pool: str, model: str, until: float, size: int) -> None:
        self.waited.append((until - self.clock.now, size))
        await asyncio.sleep(0)
        if self.clock.now + self.takes > until:
            self.clock.now = until
            raise ModelUnavailableError("It was not there in time.", retry_after_seconds=5.0)
        self.clock.now += self.takes
        self.awake = True
        self.endpoint.found = [Free()]


class Clock:
    def __init__(self) -> None:
        self.now = monotonic()

    def __call__(self) -> float:
        return self.now


class Door:
    """A controller, and what it asks."""

    def __init__(self, *, waits: bool = True) -> None:
        self.clock, self.endpoint = Clock(), SleepingEndpoint()
        self.keys, self.recorder = FakeKeys(), MemoryRecorder()
        self.waking = FakeWaking(self.endpoint, self.clock)
        self.admission = AdmissionController(
            endpoints=self.endpoint,
            keys=self.keys,
            rates=RateLimits(),
            budget=TokenBudget(1000),
            held=ByteBudget(10**9),
            recorder=self.recorder,
            metrics=FakeMetrics(),
            waking=self.waking if waits else None,
            clock=self.clock,
        )

    def arriving(self, timeout: float | None = None) -> RequestContext:
        context = RequestContext("r", 0.0, self.clock.now)
        context.timeout_seconds = timeout
        return context


async def test_a_caller_waits_for_the_model_and_then_has_the_endpoints_whole_time() -> None:
    door = Door()
    context = door.arriving()
    context.held_bytes = 77
    await door.admission.enter(context, NAME)
    assert door.waking.waited == [(60.0, 77)]
    assert context.waited_seconds == 3.0
    assert context.deadline(LIMIT_SECONDS) == pytest.approx(door.clock.now + LIMIT_SECONDS)


async def test_a_caller_that_names_a_time_waits_no_longer_than_that() -> None:
    door = Door()
    context = door.arriving(timeout=2.5)
    with pytest.raises(ModelUnavailableError) as caught:
        await door.admission.enter(context, NAME)
    assert door.waking.waited == [(2.5, 0)]
    assert caught.value.retry_after_seconds == 5.0
    patient = door.arriving(timeout=3.5)
    await door.admission.enter(patient, NAME)
    assert patient.deadline(LIMIT_SECONDS) == patient.started + 3.5


async def test_once_the_model_is_there_nobody_waits() -> None:
    door = Door()
    await door.admission.enter(door.arriving(), NAME)
    await door.admission.enter(door.arriving(), NAME)
    assert len(door.waking.waited) == 1


async def test_a_caller_without_a_key_wakes_nobody() -> None:
    door = Door()
    door.keys.endpoints_of = {"k": {NAME}}
    with pytest.raises(UnauthenticatedError):
        await door.admission.enter(door.arriving(), NAME)
    assert door.waking.waited == []


async def test_in_an_overload_a_connection_lets_it_in_to_wait() -> None:
    door = Door()
    door.admission.check_early(door.arriving(), NAME, None)
    assert door.waking.waited == []


async def test_a_model_that_is_missing_and_does_not_sleep_is_not_waited_for() -> None:
    door = Door()
    door.endpoint.asleep = False
    with pytest.raises(ModelUnavailableError, match="No Triton"):
        await door.admission.enter(door.arriving(), NAME)
    assert door.waking.waited == []


async def test_a_gateway_that_wakes_nothing_says_at_once_that_no_triton_serves() -> None:
    with pytest.raises(ModelUnavailableError, match="No Triton"):
        await Door(waits=False).admission.enter(Door().arriving(), NAME)
