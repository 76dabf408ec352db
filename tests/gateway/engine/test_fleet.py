"""Tritons: nobody is sent where nobody was found, and who comes back is found again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from gateway_world import FakeEngine
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.fleet import PATIENCE, PROBE_PAUSES, Breaker, Fleet, Replica, State


@dataclass
class SoughtEngine(FakeEngine):
    """Says each time that it was looked for."""

    sought: asyncio.Event = field(default_factory=asyncio.Event)

    async def ready(self, model: str, timeout_seconds: float) -> bool:
        self.sought.set()
        return await super().ready(model, timeout_seconds)


def replica_of(instances: int = 1, ahead: int = 2) -> Replica:
    return Replica(FakeEngine(), "here", "m", instances, ahead)


def test_slots_are_idle_then_spare_then_none() -> None:
    replica = replica_of(instances=2, ahead=2)
    seen = []
    for number in range(5):
        seen.append((replica.idle, replica.spare()))
        if number < 4:
            replica.batch_sent(0.0, 1.0, 64)
    assert seen == [(2, 2), (1, 2), (0, 2), (0, 1), (0, 0)]


def test_time_behind_another_batch_is_not_a_cost() -> None:
    replica = replica_of()
    first = replica.batch_sent(0.0, 1.0, 64)
    second = replica.batch_sent(0.1, 1.0, 64)
    assert replica.batch_ended(first, 1.0) == pytest.approx(1.0)
    assert replica.batch_ended(second, 1.7) == pytest.approx(0.7)


def test_a_batch_that_waited_begins_where_an_instance_is_added() -> None:
    replica = replica_of(instances=1, ahead=2)
    first, second = replica.batch_sent(0.0, 1.0, 64), replica.batch_sent(0.0, 1.0, 64)
    assert replica.resize(2, 0.5)
    assert (replica.idle, replica.spare()) == (0, 2)
    assert replica.batch_ended(second, 1.5) == pytest.approx(1.0)
    assert replica.batch_ended(first, 1.5) == pytest.approx(1.5)
    assert replica.idle == 2
    assert not replica.resize(2, 2.0)


def test_where_instances_are_taken_away_batches_wait_for_those_that_are_left() -> None:
    replica = replica_of(instances=3, ahead=1)
    running = [replica.batch_sent(0.0, 1.0, 64) for _ in range(3)]
    replica.resize(1, 0.5)
    assert (replica.idle, replica.spare()) == (0, 0)
    waiting = replica.batch_sent(0.5, 1.0, 64)
    for flight in running:
        assert replica.batch_ended(flight, 1.0) == pytest.approx(1.0)
    assert replica.batch_ended(waiting, 1.7) == pytest.approx(0.7)
    assert replica.idle == 1


def test_a_replica_that_pauses_takes_no_batch() -> None:
    replica = replica_of(instances=2, ahead=2)
    replica.pauses = True
    assert (replica.idle, replica.spare(), replica.spare(1.0)) == (0, 0, 0)
    replica.pauses = False
    assert (replica.idle, replica.spare()) == (2, 2)


def test_tokens_and_work_in_flight_are_counted() -> None:
    replica = replica_of()
    first = replica.batch_sent(0.0, 1.0, 64)
    replica.batch_sent(0.0, 2.0, 100)
    assert replica.tokens == 164
    assert replica.expected_seconds == 3.0
    assert replica.next_free() == (3.0, 2.0)
    replica.batch_ended(first, 1.5)
    assert replica.next_free() == (3.5, 2.0)
    assert replica.expected_seconds == 2.0


@asynccontextmanager
async def fleet_of_one(engine: FakeEngine) -> AsyncIterator[tuple[Replica, asyncio.Event]]:
    """The replica on one Triton that is probed, and what is set once it serves."""
    fleet = Fleet(lambda _: engine, ahead=2)
    fleet.set_addresses(["a:1"])
    found = asyncio.Event()
    (replica,) = fleet.replicas("m", 1, found.set)
    fleet.start()
    try:
        async with asyncio.timeout(60):
            yield replica, found
    finally:
        await fleet.close()


async def test_a_replica_serves_once_a_probe_has_found_it() -> None:
    engine = SoughtEngine(here=False)
    async with fleet_of_one(engine) as (replica, found):
        for _ in range(2):  # the second time, the first one's answer was heard
            await engine.sought.wait()
            engine.sought.clear()
        assert replica.idle == 1
        assert not found.is_set()
        engine.here = True
        await found.wait()
        assert replica.serves
    assert engine.closed.is_set()


class SlowEngine(FakeEngine):
    """Takes three seconds to say that it is ready."""

    async def ready(self, model: str, timeout_seconds: float) -> bool:
        return timeout_seconds >= 3


async def test_a_triton_that_takes_long_to_answer_serves() -> None:
    async with fleet_of_one(SlowEngine()) as (replica, found):
        await found.wait()
        assert replica.serves


async def fleet_of_two(*, reported: bool) -> tuple[Fleet, Replica, SoughtEngine, asyncio.Event]:
    """One Triton serves, the other was asked once and does not hold the model."""
    other = SoughtEngine(here=False)
    engines = {"a:1": SoughtEngine(here=False), "b:1": other}  # nor does a new probe find the first
    fleet = Fleet(engines.__getitem__, ahead=2)
    fleet.set_addresses(engines)
    found = asyncio.Event()
    first, second = fleet.replicas("m", 1, found.set)
    first.breaker.succeed()
    models = frozenset({"m"}) if reported else frozenset[str]()
    fleet.set_reported({"a:1": frozenset({"m"}), "b:1": models}, 0.0)
    fleet.start()
    async with asyncio.timeout(60):
        await other.sought.wait()
    for _ in range(20):  # its answer is heard in a turn or two
        await asyncio.sleep(0)
    assert second.breaker.failures == 1
    return fleet, second, other, found


async def test_what_a_loader_does_not_report_is_probed_seldom_and_at_once_when_it_does() -> None:
    fleet, replica, engine, found = await fleet_of_two(reported=False)
    now = asyncio.get_running_loop().time()
    assert replica.breaker.probe_at > now + 5.0
    engine.here = True
    fleet.set_reported({"b:1": frozenset({"m"})}, now)
    async with asyncio.timeout(60):
        await found.wait()
    assert replica.serves
    await fleet.close()


async def test_what_a_loader_reports_is_probed_often() -> None:
    fleet, replica, _, _ = await fleet_of_two(reported=True)
    assert replica.breaker.probe_at < asyncio.get_running_loop().time() + 5.0
    await fleet.close()


async def test_where_nobody_serves_a_model_any_more_no_report_is_waited_for() -> None:
    fleet, replica, engine, found = await fleet_of_two(reported=False)
    engine.here = True
    fleet.lost("a:1", asyncio.get_running_loop().time())
    async with asyncio.timeout(60):
        await found.wait()
    assert replica.serves
    await fleet.close()


async def test_where_the_only_triton_that_serves_a_model_leaves_no_report_is_waited_for() -> None:
    fleet, replica, engine, found = await fleet_of_two(reported=False)
    engine.here = True
    fleet.set_addresses(["b:1"])
    async with asyncio.timeout(60):
        await found.wait()
    assert replica.serves
    await fleet.close()


_STEPS = st.tuples(
    st.sampled_from(["fail", "answer", "report", "lost", "leave", "join", "pass"]),
    st.integers(0, 2),
    st.sampled_from(["m", "n"]),
    st.sampled_from([0.0, 0.3, 3.0]),
)


@given(st.lists(_STEPS, max_size=40))
def test_whatever_happens_those_are_probed_whose_probe_is_due_and_no_others(
    steps: list[tuple[str, int, str, float]],
) -> None:
    addresses = ["a:1", "b:1", "c:1"]
    fleet, now, there = Fleet(lambda _: FakeEngine(), ahead=2), 0.0, set(addresses)
    fleet.set_addresses(there)
    on_probe: list[Replica] = []

    def replicas() -> list[Replica]:
        return [each for model in ("m", "n") for each in fleet.replicas(model, 1, lambda: None)]

    replicas()
    for what, number, model, seconds in steps:
        now += seconds
        address = addresses[number]
        if what in {"leave", "join"}:
            there = there - {address} if what == "leave" else there | {address}
            fleet.set_addresses(there)
        elif what == "report":
            fleet.set_reported({address: frozenset()}, now)
            fleet.set_reported({address: frozenset({model})}, now)
        elif what == "lost":
            fleet.lost(address, now)
        for each in [each for each in on_probe if what in {"fail", "answer"}]:
            on_probe.remove(each)
            if what == "answer":
                each.breaker.succeed()
            else:
                each.fail(now, at_least=2 * seconds)
        wanted = {
            id(each)
            for each in replicas()
            if each.breaker.state is State.OPEN and each.breaker.probe_at <= now
        }
        found = fleet.due(now)
        assert {id(each) for each in found} == wanted
        assert len(found) == len(wanted)
        on_probe += found


async def test_a_triton_that_is_lost_takes_all_its_replicas_out() -> None:
    fleet = Fleet(lambda _: FakeEngine(), ahead=2)
    fleet.set_addresses(["a:1", "b:1"])
    for model in ("m", "n"):
        for replica in fleet.replicas(model, 1, lambda: None):
            replica.breaker.succeed()
    fleet.lost("a:1", 0.0)
    for model in ("m", "n"):
        serving = [each.address for each in fleet.replicas(model, 1, lambda: None) if each.serves]
        assert serving == ["b:1"]
    await fleet.close()


async def test_tritons_come_and_go() -> None:
    fleet = Fleet(lambda _: FakeEngine(), ahead=2)
    assert fleet.set_addresses(["a:1"])
    assert not fleet.set_addresses(["a:1"])
    (first,) = fleet.replicas("m", 1, lambda: None)
    assert fleet.replicas("m", 1, lambda: None) == (first,)
    assert fleet.set_addresses(["b:1"])
    (other,) = fleet.replicas("m", 1, lambda: None)
    assert other.address == "b:1"
    await fleet.close()


async def test_a_triton_that_left_is_let_go_once_its_last_batch_is_back() -> None:
    engines = {"a:1": FakeEngine(), "b:1": FakeEngine()}
    fleet = Fleet(engines.__getitem__, ahead=2)
    fleet.set_addresses(["a:1", "b:1"])
    found = asyncio.Event()
    left, _ = fleet.replicas("m", 1, lambda: None)
    flight = left.batch_sent(0.0, 1.0, 8)
    fleet.set_addresses(["b:1"])
    fleet.replicas("m", 1, found.set)
    fleet.start()
    try:
        async with asyncio.timeout(60):
            await found.wait()  # the fleet has looked around
            assert not engines["a:1"].closed.is_set()
            left.batch_ended(flight, 1.0)
            await engines["a:1"].closed.wait()
        assert not engines["b:1"].closed.is_set()
    finally:
        await fleet.close()


def test_more_is_sent_ahead_while_the_loop_looks_up_seldom_and_never_without_end() -> None:
    replica = replica_of(instances=1, ahead=2)
    for _ in range(2):
        replica.batch_sent(0.0, 0.01, 100)
    assert replica.spare() == 0
    assert replica.spare(0.01) == 0
    sent = 0
    while replica.spare(1.0):
        replica.batch_sent(0.0, 0.01, 100)
        sent += 1
    assert sent == 6


def test_a_new_replica_is_probed_at_once_and_serves_nobody_before() -> None:
    breaker = Breaker()
    assert not breaker.closed
    assert breaker.probe_due(0.0)


def test_one_probe_at_a_time() -> None:
    breaker = Breaker()
    assert breaker.probe_due(0.0)
    assert breaker.state is State.HALF_OPEN
    assert not breaker.probe_due(100.0)
    assert not breaker.closed


def test_an_answer_closes_it_and_a_failure_opens_it_at_once() -> None:
    breaker = Breaker()
    breaker.succeed()
    assert (breaker.closed, breaker.probe_due(100.0)) == (True, False)
    breaker.fail(100.0)
    assert (breaker.closed, breaker.probe_due(100.0)) == (False, False)
    assert breaker.probe_due(100.0 + PROBE_PAUSES.first)


@given(st.integers(min_value=1, max_value=5000))
def test_the_pause_between_probes_and_their_time_are_bounded(failures: int) -> None:
    breaker = Breaker()
    for _ in range(failures):
        breaker.fail(0.0)
    assert breaker.probe_at <= PROBE_PAUSES.most
    assert PATIENCE.first < breaker.patience <= PATIENCE.most


def test_a_success_forgets_the_failures() -> None:
    breaker = Breaker()
    for _ in range(10):
        breaker.fail(0.0)
    breaker.succeed()
    breaker.fail(0.0)
    assert breaker.probe_at == PROBE_PAUSES.first
    breaker.succeed()
    assert breaker.patience == PATIENCE.first


def test_after_a_fault_that_no_probe_sees_it_waits_longer() -> None:
    breaker = Breaker()
    breaker.fail(0.0, at_least=5.0)
    assert not breaker.probe_due(4.9)
    assert breaker.probe_due(5.0)


def nothing() -> None:
    """What nobody waits for."""


def test_a_package_has_replicas_on_the_tritons_of_one_pool() -> None:
    fleet = Fleet(lambda _: FakeEngine(), ahead=2)
    pools = {"a:1": "a", "a:2": "a", "b:1": "b"}
    assert fleet.set_addresses([*pools, "other:1"], pools)
    assert not fleet.set_addresses([*pools, "other:1"], pools | {"other:1": "default"})

    def addresses(pool: str) -> list[str]:
        return sorted(replica.address for replica in fleet.replicas("m", 1, nothing, pool))

    assert (addresses("a"), addresses("b")) == (["a:1", "a:2"], ["b:1"])
    assert addresses("default") == ["other:1"]
    (before,) = fleet.replicas("m", 1, nothing, "b")
    fleet.forget("m", "a")
    assert fleet.replicas("m", 1, nothing, "b") == (before,)
    assert fleet.set_addresses([*pools, "other:1"], pools | {"b:1": "a"})
    assert (addresses("a"), addresses("b")) == (["a:1", "a:2", "b:1"], [])


async def test_a_model_that_another_pool_serves_is_looked_for_as_one_that_nobody_serves() -> None:
    sought = SoughtEngine(here=False)
    engines = {"a:1": FakeEngine(), "b:1": sought}
    fleet = Fleet(engines.__getitem__, ahead=2)
    fleet.set_addresses(engines, {"a:1": "a", "b:1": "b"})
    fleet.set_reported({"a:1": frozenset({"m"}), "b:1": frozenset()}, 0.0)
    (one,) = fleet.replicas("m", 1, nothing, "a")
    served = asyncio.Event()
    (other,) = fleet.replicas("m", 1, served.set, "b")
    one.breaker.succeed()
    fleet.start()
    async with asyncio.timeout(30):  # within 15 s of a look it would not be found
        for _ in range(3):
            sought.sought.clear()
            await sought.sought.wait()
        sought.here = True
        await served.wait()
    assert other.serves
    await fleet.close()
