"""Who comes in, by numbers alone: no batcher, no Triton and no socket is behind these arms."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from time import monotonic

import msgspec
import pytest
from front_fakes import FakeKeys, FakeMetrics, view
from gateway_world import MemoryRecorder
from hypothesis import given
from hypothesis import strategies as st

from contracts.endpoint import EndpointLimits
from contracts.tasks import Task
from gateway.admission.byte_budget import ByteBudget
from gateway.admission.controller import SECONDS_OF_ONE, AdmissionController
from gateway.admission.rate_limits import RateLimits
from gateway.admission.token_budget import TokenBudget
from gateway.calls import Call, EndpointView
from gateway.errors import (
    BadRequestError,
    DeadlineExceededError,
    ForbiddenError,
    GatewayError,
    InvalidInputError,
    ModelUnavailableError,
    OverloadedError,
    RateLimitedError,
    ShuttingDownError,
    TooLargeError,
    UnauthenticatedError,
    UnknownEndpointError,
)
from gateway.request_context import RequestContext

NAME = "sentiment"


@dataclass
class Arm:
    """An arm in numbers."""

    wait: float = 0.0
    work: float = 0.0
    tokens: int = 1
    serves: bool = True
    may_return: bool = False

    def wait_seconds(self, endpoint: str) -> float:
        assert endpoint == NAME
        return self.wait

    def work_seconds(self, tokens: Iterable[int]) -> float:
        return self.work * len(list(tokens))

    def likely_tokens(self, texts: int, characters: int) -> int:
        return self.tokens


@dataclass
class OneEndpoint:
    """The endpoint, and the arms that may answer its callers."""

    found: list[Arm] = field(default_factory=lambda: [Arm()])
    most_tokens: int = 1000
    draining: bool = False
    rate: float | None = None

    def names(self) -> tuple[str, ...]:
        return (NAME,)

    def describe(self, endpoint: str) -> EndpointView:
        if endpoint != NAME:
            raise UnknownEndpointError("There is none.")
        described = view(NAME, Task.TEXT_CLASSIFICATION)
        return replace(
            described,
            max_tokens_in_flight=self.most_tokens,
            timeout_seconds=1.0,
            requests_per_second_per_key=self.rate,
        )

    def capacities(
        self, endpoint: str, key: str, forced_version: str | None, space: str | None = None
    ) -> list[Arm]:
        return self.found

    def target(
        self, endpoint: str, key: str, forced_version: str | None, space: str | None = None
    ) -> tuple[str, str]:
        return "default", endpoint


@dataclass
class Door:
    """A controller with what it is built on."""

    endpoints: OneEndpoint = field(default_factory=OneEndpoint)
    keys: FakeKeys = field(default_factory=FakeKeys)
    budget: TokenBudget = field(default_factory=lambda: TokenBudget(100_000))
    recorder: MemoryRecorder = field(default_factory=MemoryRecorder)
    rates: RateLimits = field(default_factory=RateLimits)
    clock: Callable[[], float] = monotonic
    metrics: FakeMetrics = field(default_factory=FakeMetrics)

    def __post_init__(self) -> None:
        self.admission = AdmissionController(
            endpoints=self.endpoints,
            keys=self.keys,
            rates=self.rates,
            budget=self.budget,
            held=ByteBudget(10**9),
            recorder=self.recorder,
            metrics=self.metrics,
            clock=self.clock,
        )

    def usual(self, tokens: int) -> None:
        """From now on a request is expected to have so many tokens."""
        self.budget.reserve(NAME, tokens, tokens)
        self.budget.release(NAME, tokens)


def arriving(
    key: str | None = None,
    version: str | None = None,
    endpoint: str | None = None,
    space: str | None = None,
) -> RequestContext:
    context = RequestContext("r1", received=0.0, started=monotonic())
    context.api_key, context.forced_version, context.endpoint = key, version, endpoint
    context.space = space
    return context


def comes_in_early(door: "Door") -> bool:
    try:
        door.admission.check_early(arriving(), NAME, None)
    except OverloadedError:
        return False
    return True


def call_of(*texts: str, seconds: float = 60.0, caller: str | None = None) -> Call:
    now = monotonic()
    return Call(NAME, list(texts), "r1", 0.0, now, now + seconds, caller=caller)


# Headers or metadata are there.


@pytest.mark.parametrize(
    ("context", "endpoint", "version", "kind"),
    [
        (arriving(), NAME, None, UnauthenticatedError),
        (arriving("bob"), NAME, None, ForbiddenError),
        (arriving("bob"), "other", None, UnknownEndpointError),
        (arriving("ann", version="2"), NAME, None, ForbiddenError),
        (arriving("ann"), NAME, "2", ForbiddenError),
        (arriving("ann", space="next"), NAME, None, ForbiddenError),
        (arriving("eve", version="2"), NAME, "3", InvalidInputError),
    ],
)
async def test_a_key_goes_before_the_endpoint_and_both_before_any_talk_of_room(
    context: RequestContext, endpoint: str, version: str | None, kind: type[GatewayError]
) -> None:
    keys = FakeKeys({"ann": {NAME}, "bob": {"other"}, "eve": {NAME}}, forcing={"eve"})
    door = Door(OneEndpoint([Arm(wait=60)]), keys)
    with pytest.raises(kind):
        await door.admission.enter(context, endpoint, version)
    with pytest.raises(kind):
        door.admission.check_early(context, endpoint, version)


async def test_a_queue_counts_only_where_every_arm_has_one() -> None:
    door = Door(OneEndpoint([Arm(wait=60), Arm(wait=0.1)]))
    await door.admission.enter(arriving(), NAME)
    door.endpoints.found = [Arm(wait=5.7), Arm(wait=60)]
    with pytest.raises(OverloadedError) as refused:
        await door.admission.enter(arriving(), NAME)
    assert refused.value.retry_after_seconds == pytest.approx(5.0)


async def test_without_a_version_that_serves_a_request_is_refused_on_arrival() -> None:
    door = Door(OneEndpoint([]))
    with pytest.raises(ModelUnavailableError) as refused:
        await door.admission.enter(arriving(), NAME)
    assert refused.value.retry_after_seconds


async def test_requests_read_in_one_iteration_of_the_loop_do_not_find_the_same_room() -> None:
    door = Door(OneEndpoint(most_tokens=40))
    door.usual(10)  # three times 10 is within 85 % of 40
    assert [comes_in_early(door) for _ in range(5)] == [True, True, True, False, False]
    await asyncio.sleep(0)  # the tasks of those that were let in begin
    assert comes_in_early(door)


def test_connections_ask_early_for_a_moment_after_a_refusal_for_want_of_room() -> None:
    now = 100.0
    admission = Door(clock=lambda: now).admission
    errors = (InvalidInputError("Odd."), OverloadedError("Full."))
    seen = [admission.checks_early]
    for error in errors:
        admission.refused(arriving(), error)
        seen.append(admission.checks_early)
    now += 0.06
    assert [*seen, admission.checks_early] == [False, False, True, False]


# What the rate counts.


def rated_door(
    rate: float | None, own: Callable[[str], float | None] = lambda _: None
) -> tuple[Door, list[float]]:
    """A door of callers with keys, and its clock."""
    now = [100.0]
    keys = FakeKeys({"ann": {NAME}, "bob": {NAME}, "eve": {"other"}})
    door = Door(OneEndpoint(rate=rate), keys, rates=RateLimits(own), clock=lambda: now[0])
    return door, now


async def refused_after(door: Door, context: RequestContext) -> float | None:
    """When a caller may come back, or None if its request comes in."""
    try:
        await door.admission.enter(context, NAME)
    except RateLimitedError as error:
        door.admission.refused(context, error)
        return error.retry_after_seconds
    return None


def read(door: Door, key: str, error: GatewayError | None = None) -> bool:
    """Whether the body of a request is read that names no endpoint; it is refused then."""
    context = arriving(key)
    try:
        door.admission.recognise(context)
    except RateLimitedError as too_many:
        door.admission.refused(context, too_many)
        return False
    context.body_read = True
    door.admission.refused(context, error or BadRequestError("It names none."))
    return True


async def test_a_caller_over_its_rate_is_told_on_arrival_when_to_come_back() -> None:
    door, now = rated_door(1.0)
    assert await refused_after(door, arriving("ann")) is None
    now[0] += 0.25
    assert await refused_after(door, arriving("ann")) == pytest.approx(0.75)
    assert await refused_after(door, arriving("bob")) is None
    assert door.recorder.refusals == [(NAME, 429, "rate_limited")]


async def test_a_request_that_finds_no_room_is_not_counted() -> None:
    door, _ = rated_door(1.0)
    door.endpoints.found = []
    with pytest.raises(ModelUnavailableError):
        await door.admission.enter(arriving("ann"), NAME)
    door.endpoints.found = [Arm()]
    assert await refused_after(door, arriving("ann")) is None


@pytest.mark.parametrize("own", [None, 2.0])
async def test_refused_bodies_that_name_no_endpoint_are_read_at_the_keys_rate(
    own: float | None,
) -> None:
    door, now = rated_door(2.0 if own is None else 100.0, lambda _: own)
    assert [read(door, "ann") for _ in range(5)] == [True, True, False, False, False]
    assert read(door, "bob")
    now[0] += 0.5
    assert [read(door, "ann") for _ in range(2)] == [True, False]
    # A key's own limit is of all that it sends; an endpoint's of what that endpoint is sent.
    assert (await refused_after(door, arriving("ann")) is None) == (own is None)


def test_refused_bodies_of_a_key_without_a_limit_are_all_read() -> None:
    door, _ = rated_door(None)
    assert all(read(door, "ann") for _ in range(50))


def test_a_key_for_no_endpoint_that_there_is_has_one_body_a_second_read() -> None:
    door, now = rated_door(None)
    assert [read(door, "eve") for _ in range(2)] == [True, False]
    now[0] += 1.0
    assert read(door, "eve")


def test_a_body_that_is_not_answered_for_want_of_room_is_not_counted() -> None:
    door, _ = rated_door(1.0)
    full = OverloadedError("Full.", retry_after_seconds=1.0)
    assert all(read(door, "ann", full) for _ in range(5))


async def test_time_that_reading_takes_counts_as_further_requests() -> None:
    door, now = rated_door(10.0)
    context = arriving("ann")
    await door.admission.enter(context, NAME)
    for _ in range(9):
        door.admission.spend(context, 0.1 * SECONDS_OF_ONE)
    now[0] += 1.0  # the bucket is full: 0.9 of the time of one is not charged
    assert [await refused_after(door, arriving("ann")) for _ in range(10)] == [None] * 10
    now[0] += 1.0
    context = arriving("ann")
    await door.admission.enter(context, NAME)
    door.admission.spend(context, 45.5 * SECONDS_OF_ONE)
    wait = await refused_after(door, arriving("ann"))
    assert wait == pytest.approx((1 + 45 + 1) / 10.0 - 1.0)
    now[0] += wait or 0.0
    assert await refused_after(door, arriving("ann")) is None


def test_time_before_the_name_is_known_is_charged_to_the_key() -> None:
    door, _ = rated_door(10.0)
    context = arriving("ann")
    door.admission.recognise(context)
    door.admission.spend(context, 10.5 * SECONDS_OF_ONE)
    assert not read(door, "ann")
    assert read(door, "bob")


async def test_nothing_is_charged_to_a_caller_without_a_key() -> None:
    door, _ = rated_door(10.0)
    for key in (None, "mallory"):
        context = arriving(key)
        with pytest.raises(UnauthenticatedError):
            door.admission.recognise(context)
        door.admission.spend(context, 1.0)
        door.admission.refused(context, BadRequestError("Wrong."))
    assert len(door.rates) == 0


# The body is read.


def test_too_many_texts_are_too_large() -> None:
    admission = Door().admission
    admission.check_body(call_of(*["a"] * 256), EndpointLimits())
    with pytest.raises(TooLargeError, match="256"):
        admission.check_body(call_of(*["a"] * 257), EndpointLimits())


# Its versions are known.


def test_without_room_on_any_arm_the_last_one_says_why() -> None:
    admission, call = Door().admission, call_of("a")
    with pytest.raises(OverloadedError):
        admission.pick_version(call, EndpointLimits(), [None, Arm(wait=60)], call.started)
    with pytest.raises(ModelUnavailableError) as refused:
        admission.pick_version(call, EndpointLimits(), [Arm(wait=60), None], call.started)
    assert refused.value.retry_after_seconds


def test_what_can_not_be_answered_in_time_is_refused_with_the_time_to_wait() -> None:
    admission = Door().admission
    call = call_of("a", seconds=1.0)
    admission.pick_version(call, EndpointLimits(), [Arm(wait=0.5, work=0.1)], call.started)
    with pytest.raises(OverloadedError) as refused:
        admission.pick_version(call, EndpointLimits(), [Arm(wait=5.0, work=0.1)], call.started)
    assert refused.value.retry_after_seconds == pytest.approx(4.4)
    with pytest.raises(DeadlineExceededError):
        admission.pick_version(call, EndpointLimits(), [Arm()], call.deadline)


def test_an_estimate_without_room_is_refused_before_anything_is_tokenised() -> None:
    door, limits = Door(), EndpointLimits(max_tokens_in_flight=100)
    door.admission.reserve(call_of("a"), 50, limits)
    arms = [Arm(tokens=20)]
    door.admission.pick_version(call_of("a", "b"), limits, arms, monotonic())
    with pytest.raises(OverloadedError):
        door.admission.pick_version(call_of("a", "b", "c"), limits, arms, monotonic())


_seconds = st.floats(0, 10)
_arms = st.lists(
    st.none()
    | st.builds(Arm, _seconds, _seconds, st.integers(1, 512), st.booleans(), st.booleans())
)


@given(_arms.filter(bool))
def test_an_arm_that_is_taken_serves_and_answers_in_time_or_has_no_queue(
    arms: list[Arm | None],
) -> None:
    call = call_of("a", seconds=5.0)
    try:
        place, arm = Door().admission.pick_version(call, EndpointLimits(), arms, call.started)
    except (ModelUnavailableError, OverloadedError):
        chosen = len(arms)
    else:
        assert arm is arms[place]
        chosen = place
    for index, each in enumerate(arms):
        answers = any(arm is not None and arm.serves for arm in arms)
        has_room = each is not None and (each.serves if answers else each.may_return)
        if each is not None and each.wait > 0:
            has_room &= each.wait + each.work <= 0.7 * (call.deadline - call.started)
        if index < chosen:
            assert not has_room
        elif index == chosen:
            assert has_room


# The tokens are counted.


def test_tokens_are_taken_and_given_back_and_none_past_the_deadline() -> None:
    door, call = Door(), call_of("a")
    door.admission.reserve(call, 30, EndpointLimits())
    assert door.admission.tokens_in_flight() == {NAME: 30}
    door.admission.release(call, 30)
    assert door.admission.tokens_in_flight() == {}
    with pytest.raises(DeadlineExceededError):
        door.admission.reserve(call_of("a", seconds=-1), 30, EndpointLimits())
    assert door.admission.tokens_in_flight() == {}


# Refusals, and the end.


def test_a_refusal_is_recorded_once_and_never_for_a_name_that_a_caller_made_up() -> None:
    door = Door()
    context = arriving(endpoint=NAME)
    door.admission.refused(context, OverloadedError("Full."))
    context.handed_over = True  # what comes of it now is the pipeline's to record
    door.admission.refused(context, OverloadedError("Full."))
    door.admission.refused(arriving(endpoint="made up"), UnknownEndpointError("There is none."))
    door.admission.refused(arriving(), InvalidInputError("Odd."))
    assert door.recorder.refusals == [(NAME, 503, "overloaded")]


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (TooLargeError("Much."), 413, "too_large"),
        (asyncio.CancelledError(), 499, "client_gone"),
        (ZeroDivisionError(), 500, "internal"),
    ],
)
def test_what_ends_a_call_before_any_attempt_is_recorded(
    error: BaseException, status: int, reason: str
) -> None:
    door = Door()
    door.admission.refused_call(call_of("a"), error)
    assert door.recorder.refusals == [(NAME, status, reason)]


async def test_a_closed_controller_refuses_at_every_moment_that_begins_something() -> None:
    door = Door()
    door.admission.close()
    with pytest.raises(ShuttingDownError) as refused:
        await door.admission.enter(arriving(), NAME)
    assert refused.value.retry_after_seconds
    with pytest.raises(ShuttingDownError):
        door.admission.check_body(call_of("a"), EndpointLimits())


def test_the_deadline_is_the_callers_until_the_endpoint_is_known_and_then_the_shorter_one() -> None:
    door, context = Door(), arriving()
    assert arriving().ends is None
    door.admission.identify(context, NAME)
    limit = door.endpoints.describe(NAME).timeout_seconds
    assert context.ends == context.started + limit
    context.shorten(limit / 2)
    assert context.ends == context.started + limit / 2
    early = arriving()
    early.shorten(7.0)
    assert early.ends == early.started + 7.0


# Bulk requests.


def in_bulk(seconds: float | None = None) -> RequestContext:
    context = arriving()
    context.bulk, context.timeout_seconds = True, seconds
    return context


async def test_bulk_requests_take_tokens_that_are_not_the_others_and_are_counted_apart() -> None:
    door = Door(OneEndpoint(most_tokens=10_000))
    limits = EndpointLimits(max_tokens_in_flight=10_000)
    bulk, other = msgspec.structs.replace(call_of("a"), bulk=True), call_of("a")
    for _ in range(4):
        door.admission.reserve(bulk, 2400, limits)
    with pytest.raises(OverloadedError) as caught:
        door.admission.reserve(bulk, 2400, limits)
    assert caught.value.retry_after_seconds == 1.0
    door.admission.reserve(other, 9000, limits)
    assert door.admission.tokens_in_flight() == {NAME: 4 * 2400 + 9000}
    door.admission.refused(arriving(endpoint=NAME), caught.value)
    refused = in_bulk()
    refused.endpoint = NAME
    door.admission.refused(refused, caught.value)
    door.admission.refused_call(bulk, caught.value)
    assert door.recorder.refusals == [(NAME, 503, "overloaded")]  # the interactive one
    assert door.metrics.finished == [(f"bulk {NAME}", 503)] * 2


async def test_no_request_is_refused_early_for_the_bulk_requests_of_its_moment() -> None:
    door = Door(OneEndpoint(most_tokens=10_000))
    limits = EndpointLimits(max_tokens_in_flight=10_000)
    door.admission.reserve(call_of("a"), 4000, limits)
    door.admission.release(call_of("a"), 4000)
    for _ in range(3):
        door.admission.check_early(in_bulk(), NAME, None)
    assert [comes_in_early(door) for _ in range(3)] == [True, True, False]


async def test_so_many_bulk_requests_wait_for_the_loop_and_each_until_its_deadline() -> None:
    door = Door()
    scheduler = door.admission.scheduler
    others = [asyncio.ensure_future(scheduler.wait(NAME)) for _ in range(2000)]
    waiting = [asyncio.ensure_future(scheduler.wait(NAME, bulk=True)) for _ in range(63)]
    await asyncio.sleep(0)
    with pytest.raises(DeadlineExceededError, match="no idle capacity"):
        await door.admission.enter(in_bulk(1e-9), NAME)
    with pytest.raises(OverloadedError, match="As many bulk requests wait as may") as caught:
        await door.admission.enter(in_bulk(), NAME)
    assert caught.value.retry_after_seconds == 1.0
    await asyncio.gather(*others, *waiting)
