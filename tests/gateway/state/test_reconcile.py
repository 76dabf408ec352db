"""What is served follows what is asked for, through every outage on the way there."""

import asyncio
from time import monotonic

import numpy as np
import pytest
from gateway_world import FakeEngine, call_of, endpoint_of, model_of, text_of
from numpy.typing import NDArray
from reconciler_world import FakePackages, report_of, world_of

from contracts.ceilings import Ceilings
from contracts.endpoint import Guardrail, ModelEndpoint
from contracts.loading import CostPoint, LoaderReport
from contracts.model import DEFAULT_POOL, ModelRef
from gateway.batching.batcher import Batcher
from gateway.engine.protocol import Work
from gateway.errors import ModelUnavailableError
from gateway.inference.serving import Serving

pytestmark = pytest.mark.slow

ONE, TWO = model_of("1"), model_of("2")


class Timed(FakeEngine):
    """Takes the time of a small model; what that is, no test asks."""

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        await asyncio.sleep(0.02)
        return await super().infer(work, timeout_seconds)


class Unhurried(FakeEngine):
    """Says nothing of what it holds before it may, and at once that it is ``without`` a model."""

    def __init__(self, without: str = "") -> None:
        super().__init__()
        self.without = without
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def ready(self, model: str, timeout_seconds: float) -> bool:
        if model == self.without:
            return False
        self.asked.set()
        await self.may_answer.wait()
        return await super().ready(model, timeout_seconds)


class Busy(FakeEngine):
    """Has no time for the first two questions."""

    asked = 0

    async def ready(self, model: str, timeout_seconds: float) -> bool:
        self.asked += 1
        return self.asked > 2 and await super().ready(model, timeout_seconds)


async def answer_two(batcher: Batcher) -> None:
    """A text for each of two idle Tritons."""
    texts = [batcher.model.encoder.encode([text_of(3)]) for _ in range(2)]
    jobs = [batcher.submit(text, "sentiment", monotonic() + 30) for text in texts]
    await asyncio.gather(*(job.future for job in jobs))


async def test_an_endpoint_gets_no_more_than_the_operators_ceilings() -> None:
    ceilings = Ceilings({"timeoutSeconds": 3, "maxTextsPerRequest": 8})
    async with world_of(FakePackages(ONE), endpoint_of(ONE.ref), ceilings=ceilings) as world:
        state = await world.until_stable(ONE)
        view = state.views["sentiment"]
        assert (view.timeout_seconds, view.max_texts) == (3, 8)
        assert state.table.endpoints["sentiment"].endpoint.spec.limits.timeout_seconds == 3


async def test_an_endpoint_is_served_with_what_it_promises() -> None:
    async with world_of(FakePackages(ONE), endpoint_of(ONE.ref)) as world:
        await world.until_stable(ONE)
        state = await world.until(lambda state: state.complete)
        view = state.views["sentiment"]
        assert view.refs == (ONE.ref,)
        assert view.labels == ("negative", "positive")
        assert (view.max_tokens, view.rows) == (16, ONE.manifest.max_batch_size)


async def test_an_endpoint_is_seen_with_its_guardrail_and_a_new_one_at_once() -> None:
    endpoint = endpoint_of(ONE.ref)

    def guarded(threshold: float) -> ModelEndpoint:
        rules = Guardrail(labels={"negative": threshold})
        spec = endpoint.spec.model_copy(update={"guardrail": rules})
        return endpoint.model_copy(update={"spec": spec})

    async with world_of(FakePackages(ONE), guarded(0.5)) as world:
        state = await world.until_stable(ONE)
        assert state.views["sentiment"].guardrail == guarded(0.5).spec.guardrail
        world.endpoints.say(guarded(0.9))
        await world.until(
            lambda state: state.views["sentiment"].guardrail == guarded(0.9).spec.guardrail
        )


async def test_an_endpoint_without_a_version_is_known_and_empty() -> None:
    async with world_of(FakePackages(), endpoint_of(None)) as world:
        state = await world.until(lambda state: bool(state.views))
        assert state.views["sentiment"].refs == ()
        assert not state.views["sentiment"].ready
        assert state.complete


async def test_it_is_complete_once_tritons_were_asked_for_what_it_serves() -> None:
    """Else the callers of a new gateway are refused though a Triton serves what they ask for."""
    async with world_of(FakePackages(ONE), static=False, silent=True) as world:
        engines = [Unhurried(), Unhurried()]
        world.engines.update(zip(("a:1", "b:1"), engines, strict=True))
        world.endpoints.say(endpoint_of(ONE.ref))
        await world.until(lambda state: bool(state.batchers.get(DEFAULT_POOL, {})))
        world.reports.say(report_of("a:1", ONE.ref), report_of("b:1", ONE.ref))
        for engine in engines:
            await engine.asked.wait()
        seen = len(world.states)
        await world.until(lambda _: len(world.states) > seen + 1)
        assert not any(state.complete for state in world.states)
        engines[0].may_answer.set()  # one that serves it is enough
        state = await world.until(lambda state: state.complete)
        assert state.batchers[DEFAULT_POOL][ONE.ref.package].serves


async def test_tritons_that_are_away_or_asleep_keep_no_gateway_from_being_complete() -> None:
    asleep = endpoint_of(TWO.ref, name="other")
    status = asleep.status.model_copy(update={"asleep": 1.0})
    asleep = asleep.model_copy(update={"status": status})
    async with world_of(
        FakePackages(ONE, TWO), endpoint_of(ONE.ref), asleep, static=False
    ) as world:
        away, slow = FakeEngine(here=False), Unhurried(without=ONE.name)
        world.engines.update({"a:1": away, "b:1": slow})
        world.reports.say(report_of("a:1", ONE.ref), report_of("b:1"))
        state = await world.until(lambda state: state.complete)
        assert not any(batcher.serves for batcher in state.batchers[DEFAULT_POOL].values())
    async with world_of(FakePackages(ONE), endpoint_of(ONE.ref), static=False) as world:
        world.reports.say()  # there is none at all
        await world.until(lambda state: state.complete)


async def test_a_triton_that_should_serve_a_version_may_be_busy_when_it_is_first_asked() -> None:
    async with world_of(FakePackages(ONE), static=False, silent=True) as world:
        busy = world.engines["a:1"] = Busy()
        world.endpoints.say(endpoint_of(ONE.ref))
        world.reports.say(report_of("a:1", ONE.ref))
        state = await world.until(lambda state: state.complete)
        assert state.batchers[DEFAULT_POOL][ONE.ref.package].serves
        assert busy.asked == 3


async def test_tritons_of_both_pools_are_asked_while_an_endpoint_moves() -> None:
    moving = in_pool(endpoint_of(ONE.ref), "a", "b")
    async with world_of(FakePackages(ONE), static=False, silent=True) as world:
        new = world.engines["b:1"] = Unhurried()
        world.endpoints.say(moving)
        world.reports.say(report_in("b", "b:1", ONE.ref))  # the old pool's are gone
        await new.asked.wait()
        seen = len(world.states)
        await world.until(lambda _: len(world.states) > seen + 1)
        assert not any(state.complete for state in world.states)
        new.may_answer.set()
        await world.until(lambda state: state.complete)


async def test_addresses_of_tritons_do_not_make_up_for_reports_before_it_has_waited() -> None:
    async with world_of(FakePackages(ONE), silent=True) as world:  # one address is known
        world.engines["static:1"] = FakeEngine(holds=set())
        world.endpoints.say(endpoint_of(ONE.ref))
        state = await world.until(lambda state: bool(state.batchers))
        assert "reports" in state.notes[0]
        state = await world.until(lambda state: state.complete)
        assert state.notes == ()
        assert world.reconciler._inputs.waited


async def test_a_store_that_comes_back_is_found() -> None:
    shelf = FakePackages()
    async with world_of(shelf, endpoint_of(ONE.ref)) as world:
        await world.until(lambda _: shelf.tries >= 2)
        # An old gateway may serve yet, and would be ended once this one were complete.
        world.ahead = 60
        tries = shelf.tries
        await world.until(lambda _: shelf.tries > tries)
        assert not any(state.complete for state in world.states)
        shelf.models[ONE.ref.package] = ONE
        await world.until_stable(ONE)
        await world.until(lambda state: state.complete)


async def test_a_store_that_stays_away_keeps_others_unserved_for_a_while_only() -> None:
    shelf = FakePackages(ONE)
    away = endpoint_of(TWO.ref, name="other")
    async with world_of(shelf, endpoint_of(ONE.ref), away) as world:
        await world.until_stable(ONE)
        await world.until(lambda _: shelf.tries >= 3)
        assert not world.states[-1].complete
        world.ahead = 60
        await world.until(lambda state: state.complete)
        shelf.models[TWO.ref.package] = TWO
        await world.until(lambda state: TWO.ref.package in state.batchers.get(DEFAULT_POOL, {}))
        await world.until(lambda state: state.complete)


async def test_a_mistake_in_opening_a_package_is_tried_again_and_keeps_no_other_unserved(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shelf = FakePackages(ONE)
    shelf.bugs[TWO.ref.package] = KeyError("a mistake")
    broken = endpoint_of(TWO.ref, name="other")
    async with world_of(shelf, broken, endpoint_of(ONE.ref)) as world:
        await world.until_stable(ONE)
        await world.until(lambda _: shelf.tries >= 3)
        shelf.models[TWO.ref.package] = TWO
        del shelf.bugs[TWO.ref.package]
        await world.until(lambda state: TWO.ref.package in state.batchers.get(DEFAULT_POOL, {}))
    assert shelf.tries < 10  # with a pause between two tries
    assert "a mistake" in caplog.text


async def test_a_store_that_hangs_takes_no_thread_from_what_reads_large_bodies() -> None:
    shelf = FakePackages()
    shelf.hangs.clear()
    asked = tuple(endpoint_of(model_of(str(n)).ref, name=f"e{n}") for n in range(10, 50))
    async with world_of(shelf, *asked) as world:
        await world.until(lambda _: shelf.tries > 0)
        assert await asyncio.to_thread(lambda: "read") == "read"
        shelf.hangs.set()


async def test_a_package_whose_endpoint_went_while_it_was_opened_is_let_go() -> None:
    shelf = FakePackages(ONE, TWO)
    shelf.hangs.clear()
    async with world_of(shelf, endpoint_of(ONE.ref)) as world:
        await world.until(lambda _: shelf.tries == 1)
        world.endpoints.say(endpoint_of(TWO.ref))
        await world.until(lambda _: world.endpoints.queue.empty())
        shelf.hangs.set()
        await world.until_stable(TWO)
        world.endpoints.say(endpoint_of(ONE.ref))
        await world.until_stable(ONE)
    assert shelf.tries == 3  # once more for the one that was let go


async def test_the_old_version_answers_while_the_new_one_can_not_be_opened() -> None:
    shelf = FakePackages(ONE)
    async with world_of(shelf, endpoint_of(ONE.ref)) as world:
        await world.until_stable(ONE)
        world.endpoints.say(endpoint_of(TWO.ref, packages=[ONE.ref, TWO.ref]))
        seen = len(world.states)
        await world.until(lambda _: shelf.tries >= 3)
        assert {state.table["sentiment"].choose("x").model for state in world.states[seen:]} == {
            ONE
        }
        shelf.models[TWO.ref.package] = TWO
        await world.until_stable(TWO)


async def test_the_old_version_answers_until_a_triton_holds_the_new_one() -> None:
    async with world_of(FakePackages(ONE, TWO), endpoint_of(ONE.ref)) as world:
        engine = world.engines.setdefault("static:1", FakeEngine())
        engine.holds = {ONE.name}
        await world.until_stable(ONE)
        world.endpoints.say(endpoint_of(TWO.ref, packages=[ONE.ref, TWO.ref]))
        await world.until(lambda state: TWO.ref.package in state.batchers.get(DEFAULT_POOL, {}))
        assert world.states[-1].table["sentiment"].choose("x").model is ONE
        engine.holds.add(TWO.name)
        await world.until_stable(TWO)


def counts(state: Serving) -> list[int]:
    """Batches that each Triton runs at once of the first version, the fewest first."""
    batcher = state.batchers.get(DEFAULT_POOL, {}).get(ONE.ref.package)
    return sorted(replica.instances for replica in batcher.replicas) if batcher is not None else []


async def test_tritons_are_those_that_loaders_report_and_their_costs_are_taken() -> None:
    points = (CostPoint(bucket=8, batch=4, milliseconds=250),)
    async with world_of(FakePackages(ONE), endpoint_of(ONE.ref), static=False) as world:
        await world.until(lambda state: bool(state.batchers.get(DEFAULT_POOL, {})))
        assert world.engines == {}
        world.reports.say(report_of("a:1", ONE.ref, costs=points), report_of("b:1"))
        state = await world.until_stable(ONE)
        assert set(world.engines) == {"a:1", "b:1"}
        assert state.batchers.get(DEFAULT_POOL, {})[ONE.ref.package].cost.seconds(
            8, 4
        ) == pytest.approx(0.25)


async def test_each_triton_runs_as_many_batches_as_its_loader_reports() -> None:
    async with world_of(FakePackages(ONE, TWO), endpoint_of(ONE.ref), static=False) as world:
        world.reports.say(
            report_of("a:1", ONE.ref, TWO.ref, instances=3), report_of("b:1", ONE.ref)
        )
        await world.until(lambda state: counts(state) == [1, 3])
        world.reports.say(
            report_of("a:1", ONE.ref, instances=2), report_of("b:1", ONE.ref, instances=4)
        )
        await world.until(lambda state: counts(state) == [2, 4])


async def test_what_was_learnt_of_two_tritons_stays_though_their_loaders_measured_differently() -> (
    None
):
    measured = {"a:1": 1000, "b:1": 2000}
    async with world_of(FakePackages(ONE), endpoint_of(ONE.ref), static=False) as world:
        world.engines = {address: Timed() for address in measured}
        reports = [
            report_of(
                address, ONE.ref, costs=(CostPoint(bucket=4, batch=1, milliseconds=milliseconds),)
            )
            for address, milliseconds in measured.items()
        ]
        world.reports.say(*reports)
        batcher = (await world.until_stable(ONE)).batchers[DEFAULT_POOL][ONE.ref.package]
        await world.until(lambda _: all(replica.serves for replica in batcher.replicas))
        while batcher.cost.seconds(4, 1) > 0.3:  # both were measured at more than three times that
            await answer_two(batcher)
        learnt = batcher.cost.seconds(4, 1)
        world.reports.say(*reports)
        await world.until(lambda _: world.reports.queue.empty())
        world.reconciler.reconcile()
        assert batcher.cost.seconds(4, 1) == learnt


async def test_a_triton_that_came_back_costs_what_its_loader_measured_anew() -> None:
    async def say(milliseconds: float) -> Batcher:
        point = CostPoint(bucket=4, batch=1, milliseconds=milliseconds)
        world.reports.say(report_of("a:1", ONE.ref, costs=(point,)))
        state = await world.until(
            lambda state: any(
                batcher.replicas for batcher in state.batchers.get(DEFAULT_POOL, {}).values()
            )
        )
        return state.batchers.get(DEFAULT_POOL, {})[ONE.ref.package]

    async with world_of(FakePackages(ONE), endpoint_of(ONE.ref), static=False) as world:
        batcher = await say(250)
        assert batcher.cost.seconds(4, 1) == pytest.approx(0.25)
        world.reports.say()
        await world.until(lambda _: not batcher.replicas)
        assert await say(500) is batcher
        assert batcher.cost.seconds(4, 1) == pytest.approx(0.5)


async def test_a_package_that_nobody_names_is_let_go() -> None:
    async with world_of(FakePackages(ONE, TWO), endpoint_of(ONE.ref)) as world:
        await world.until_stable(ONE)
        world.endpoints.say(endpoint_of(TWO.ref))
        await world.until_stable(TWO)
        await world.until(lambda _: len(world.reconciler.batchers) == 1)
        assert [batcher.model for batcher in world.reconciler.batchers] == [TWO]
        assert await asyncio.to_thread(world.shelf.forgotten.get, timeout=60) == ONE.ref
        assert world.shelf.forgotten.empty()


async def test_a_mistake_in_a_source_leaves_no_gateway_deaf(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with world_of(FakePackages(ONE, TWO), endpoint_of(ONE.ref)) as world:
        await world.until_stable(ONE)
        world.endpoints.bugs.append(KeyError("a mistake"))
        world.endpoints.say(endpoint_of(ONE.ref))
        world.endpoints.say(endpoint_of(TWO.ref))
        await world.until_stable(TWO)
    assert "a mistake" in caplog.text


async def test_an_endpoint_that_is_deleted_is_served_no_more() -> None:
    async with world_of(FakePackages(ONE), endpoint_of(ONE.ref)) as world:
        await world.until_stable(ONE)
        world.endpoints.say()
        await world.until(lambda state: not state.views)
        assert call_of("w1").endpoint not in world.states[-1].table.endpoints


def in_pool(endpoint: ModelEndpoint, pool: str, coming: str = "") -> ModelEndpoint:
    status = endpoint.status.model_copy(update={"pool": pool, "next_pool": coming})
    return endpoint.model_copy(update={"status": status})


def report_in(pool: str, address: str, *refs: ModelRef) -> LoaderReport:
    return report_of(address, *refs).model_copy(update={"pool": pool, "loader": address})


def pool_of(state: Serving, endpoint: str) -> tuple[str, set[str]]:
    """Which pool answers an endpoint, and on which Tritons."""
    routes = state.table.endpoints.get(endpoint)
    if routes is None or routes.stable is None:
        return "", set()
    batcher = state.batchers_of(routes).get(routes.stable.model.ref.package)
    found = () if batcher is None else batcher.replicas
    return routes.pool, {replica.address for replica in found if replica.serves}


async def test_two_endpoints_of_one_package_are_answered_by_their_own_pools_tritons() -> None:
    one, other = endpoint_of(ONE.ref), endpoint_of(ONE.ref, name="other")
    said = in_pool(one, "a"), in_pool(other, "b")
    async with world_of(FakePackages(ONE), *said, static=False) as world:
        world.reports.say(
            report_in("a", "a:1", ONE.ref),
            report_in("a", "a:2", ONE.ref),
            report_in("b", "b:1", ONE.ref),
        )
        await world.until(
            lambda state: (
                pool_of(state, "sentiment") == ("a", {"a:1", "a:2"})
                and pool_of(state, "other") == ("b", {"b:1"})
            )
        )
        for engine in ("a:1", "a:2"):
            world.engines[engine].here = False
        state = world.states[-1]
        lost = state.batchers["a"][ONE.ref.package]
        with pytest.raises(ModelUnavailableError):
            await answer_two(lost)
        await answer_two(state.batchers["b"][ONE.ref.package])
        assert not lost.serves
        assert pool_of(world.states[-1], "sentiment") == ("a", set())


async def test_a_triton_out_of_service_gets_no_batch_until_it_is_well_again() -> None:
    endpoint = endpoint_of(ONE.ref)
    async with world_of(FakePackages(ONE), in_pool(endpoint, "a"), static=False) as world:
        sick, well = report_in("a", "a:1", ONE.ref), report_in("a", "a:2", ONE.ref)
        world.reports.say(sick, well)
        await world.until(lambda state: pool_of(state, "sentiment") == ("a", {"a:1", "a:2"}))
        world.reports.say(sick.model_copy(update={"cordoned": True}), well)
        await world.until(lambda state: pool_of(state, "sentiment") == ("a", {"a:2"}))
        world.reports.say(sick, well)
        await world.until(lambda state: pool_of(state, "sentiment") == ("a", {"a:1", "a:2"}))


async def test_an_endpoint_moves_to_another_pool_and_is_served_all_the_way() -> None:
    endpoint = endpoint_of(ONE.ref)
    async with world_of(FakePackages(ONE), in_pool(endpoint, "a"), static=False) as world:
        new = world.engines.setdefault("b:1", FakeEngine(holds=set()))
        tritons = report_in("a", "a:1", ONE.ref), report_in("b", "b:1")
        world.reports.say(*tritons)
        await world.until(lambda state: pool_of(state, "sentiment") == ("a", {"a:1"}))
        seen = len(world.states)
        world.endpoints.say(in_pool(endpoint, "a", "b"))
        await world.until(lambda state: "b" in state.batchers)
        world.endpoints.say(in_pool(endpoint, "b"))
        await world.until(lambda state: "a" in state.batchers and len(world.states) > seen + 3)
        new.holds = None
        await world.until(lambda state: pool_of(state, "sentiment") == ("b", {"b:1"}))
        await world.until(lambda state: "a" not in state.batchers)
        routed = [pool_of(state, "sentiment") for state in world.states[seen:]]
        assert {pool for pool, _ in routed} == {"a", "b"}
        assert all(served for _, served in routed)


async def test_an_endpoint_that_moves_with_another_package_is_served_all_the_way() -> None:
    """Its version was converted for the other pool's devices; it is the old one's until then."""
    before, after = endpoint_of(ONE.ref), endpoint_of(TWO.ref)
    async with world_of(FakePackages(ONE, TWO), in_pool(before, "a"), static=False) as world:
        new = world.engines.setdefault("b:1", FakeEngine(holds=set()))
        world.reports.say(report_in("a", "a:1", ONE.ref), report_in("b", "b:1"))
        await world.until(lambda state: pool_of(state, "sentiment") == ("a", {"a:1"}))
        seen = len(world.states)
        moving = in_pool(before, "a", "b")
        status = moving.status.model_copy(update={"next_packages": (TWO.ref,)})
        world.endpoints.say(moving.model_copy(update={"status": status}))
        state = await world.until(lambda state: "b" in state.batchers)
        assert state.batchers["b"].keys() == {TWO.ref.package}  # opened before callers come
        assert state.batchers["a"].keys() == {ONE.ref.package}
        world.endpoints.say(in_pool(after, "b"))
        new.holds = None
        world.reports.say(report_in("a", "a:1", ONE.ref), report_in("b", "b:1", TWO.ref))
        await world.until(lambda state: pool_of(state, "sentiment") == ("b", {"b:1"}))
        routed = [pool_of(state, "sentiment") for state in world.states[seen:]]
        assert {pool for pool, _ in routed} == {"a", "b"}
        assert all(served for _, served in routed)
