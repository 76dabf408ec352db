"""Users' own preprocessing: it changes texts and observes, and fails no request."""

import asyncio
import math
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest
from gateway_world import call_of, endpoint_of, event_of, loop_turns, text_of
from own_code import Shouting, Turning
from pipeline_world import ONE, TWO, World, world_of

from contracts.endpoint import EndpointSpec
from contracts.events import StatisticSpec, decode
from contracts.rollout import CustomStatistic as Declaration
from contracts.rollout import StatisticKind
from gateway.events.buffer import EventBuffer
from gateway.events.outbox import Outbox, declared_by
from gateway.inference.observations import GROUP, Hooks, find_hooks
from gateway.mirroring.shadow import MirrorLimits
from gateway.telemetry.metrics import Metrics
from preprocess.hooks import MOST_VALUES, State

# No copy is dropped, however slow the machine is.
EAGER = MirrorLimits(
    engine_share=1e6, texts_per_second=1e6, most_lag_seconds=60, longest_wait_seconds=60
)


class Returning:
    """Returns what it was given to return, or raises it."""

    def __init__(self, given: object) -> None:
        self._given = given

    def preprocess(self, texts: Sequence[str], state: State) -> Sequence[str] | None:
        state.observe("seen", 1)
        if isinstance(self._given, Exception):
            raise self._given
        return self._given  # type: ignore[return-value]  # what users may return in spite of us


class Answering:
    """Returns as answers what it was given to return, or raises it."""

    def __init__(self, given: object) -> None:
        self._given = given

    def postprocess(self, answers: list[Any], state: State) -> list[Any] | None:
        state.observe("seen", len(answers))
        if isinstance(self._given, Exception):
            raise self._given
        return self._given  # type: ignore[return-value]  # as above


class Swapping:
    """Observes words that both texts of a pair have, and swaps the two."""

    def preprocess(self, texts: Sequence[str], state: State) -> Sequence[str] | None:
        pairs = state.pairs
        assert pairs is not None
        for text, pair in zip(texts, pairs, strict=True):
            state.observe("shared", len(set(text.split()) & set(pair.split())))
        state.pairs = texts
        return pairs


class SettingPairs:
    """Sets second texts, whatever there was."""

    def __init__(self, given: list[str]) -> None:
        self._given = given

    def preprocess(self, texts: Sequence[str], state: State) -> Sequence[str] | None:
        state.pairs = self._given
        return ["changed"] * len(texts)


async def sent(world: World) -> None:
    """Until the mirrored request has ended."""
    async with asyncio.timeout(60):
        while world.shadows.waiting or world.shadows.out:
            await loop_turns()


def failures(world: World) -> list[str]:
    lines = world.metrics.render().decode().splitlines()
    return [line for line in lines if line.startswith("headrace_gateway_preprocessor_failures_t")]


async def test_the_model_sees_what_the_hook_leaves_and_the_event_what_it_observed() -> None:
    async with world_of(endpoint_of(ONE.ref), hook=Shouting()) as world:
        answer = await world.pipeline.predict(call_of(text_of(4), "w1"))
    assert answer.tokens == [1, 1]
    (event,) = world.recorder.events
    assert event.observations == {"words": [4.0, 1.0], "kind": ["long", "short"]}


async def test_a_second_attempt_and_a_copy_carry_the_same_observations() -> None:
    endpoint = endpoint_of(ONE.ref, canary=TWO.ref, weight=100, rollout="r")
    async with world_of(endpoint, hook=Shouting()) as world:
        world.engine.holds = {ONE.name}
        await world.pipeline.predict(call_of("w1"))
    assert [event.observations["words"] for event in world.recorder.events] == [[1.0], [1.0]]


async def test_a_hook_that_leaves_the_texts_alone_costs_nothing() -> None:
    async with world_of(endpoint_of(ONE.ref), hook=Returning(None)) as world:
        answer = await world.pipeline.predict(call_of(text_of(4)))
    assert answer.tokens == [4]
    assert failures(world) == []


async def test_the_caller_the_event_and_the_shadow_s_comparison_have_the_changed_answer() -> None:
    endpoint = endpoint_of(ONE.ref, shadow=TWO.ref, rollout="r")
    async with world_of(endpoint_of(ONE.ref)) as world:
        plain = await world.pipeline.predict(call_of(text_of(4), "w1"))
    async with world_of(endpoint, limits=EAGER, hook=Turning()) as world:
        answer = await world.pipeline.predict(call_of(text_of(4), "w1"))
        await sent(world)
    assert np.array_equal(answer.values, plain.values[:, ::-1])
    event, copied = world.recorder.events
    scores = answer.values.max(axis=1).tolist()
    assert [text.score for text in event.texts] == scores
    assert event.observations == {"before": [1.0], "after": [4.0, 1.0], "version": ["1"]}
    assert copied.observations == {"before": [1.0], "after": [4.0, 1.0], "version": ["2"]}
    assert copied.pairing is not None
    assert copied.pairing.equal == [True, True]  # both versions are the same, as long as both turn
    assert copied.pairing.scores == pytest.approx(scores, abs=1e-6)


@pytest.mark.parametrize(
    ("given", "reason"),
    [(RuntimeError("of the user"), "RuntimeError"), ([{}], "EditError"), (None, None)],
)
async def test_answers_stay_where_postprocessing_fails(given: object, reason: str | None) -> None:
    async with world_of(endpoint_of(ONE.ref)) as world:
        plain = await world.pipeline.predict(call_of(text_of(4)))
    async with world_of(endpoint_of(ONE.ref), hook=Answering(given)) as world:
        answer = await world.pipeline.predict(call_of(text_of(4)))
    assert np.array_equal(answer.values, plain.values)
    assert world.recorder.events[0].observations == {"seen": [1.0]}
    assert [reason in line for line in failures(world) if reason] == [True] * bool(reason)


def test_a_hook_sees_both_texts_of_a_pair_and_may_change_both() -> None:
    call = Hooks({"sentiment": Swapping()}, Metrics()).run(
        call_of("w1 w2", "w3", pairs=["w2", "w4"])
    )
    assert (call.texts, call.pairs) == (["w2", "w4"], ["w1 w2", "w3"])
    assert call.observed == {"shared": [1.0, 0.0]}


@pytest.mark.parametrize(
    ("pairs", "given"), [(None, ["w1"]), (["w2"], ["w3", "w4"]), (["w2"], "w")]
)
def test_second_texts_that_do_not_fit_leave_both_as_they_were(
    pairs: list[str] | None, given: list[str]
) -> None:
    metrics = Metrics()
    call = Hooks({"sentiment": SettingPairs(given)}, metrics).run(call_of("w1", pairs=pairs))
    assert (call.texts, call.pairs) == (["w1"], pairs)
    assert b'reason="ValueError"' in metrics.render()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (RuntimeError("of the user"), "RuntimeError"),
        (["one", "too many"], "ValueError"),
        ("text", "ValueError"),
        ([7], "TypeError"),
        (7, "TypeError"),
    ],
)
async def test_a_hook_that_fails_is_counted_and_its_request_answered(
    given: object, reason: str
) -> None:
    async with world_of(endpoint_of(ONE.ref), hook=Returning(given)) as world:
        answer = await world.pipeline.predict(call_of(text_of(4)))
    assert answer.tokens == [4]
    assert world.recorder.events[0].observations == {"seen": [1.0]}
    (line,) = failures(world)
    assert f'reason="{reason}"' in line
    assert line.endswith(" 1.0")


@pytest.mark.parametrize("value", [math.nan, math.inf, "x" * 101])
def test_what_can_t_be_counted_is_not_observed(value: float | str) -> None:
    state = State("e", "r")
    with pytest.raises(ValueError, match="name"):
        state.observe("name", value)
    assert state.observed == {}


def test_what_one_request_observes_is_bounded() -> None:
    state = State("e", "r")
    for number in range(MOST_VALUES):
        state.observe("n", number)
    with pytest.raises(ValueError, match="more than"):
        state.observe("n", 1)


def test_a_message_carries_the_declarations_of_what_it_holds() -> None:
    spec = EndpointSpec(
        model="m",
        statistics=(
            Declaration(name="words", kind=StatisticKind.HISTOGRAM, edges=(1.0, 10.0)),
            Declaration(name="kind", kind=StatisticKind.CATEGORY, values=("long", "short")),
        ),
    )
    endpoint = endpoint_of(ONE.ref).model_copy(update={"spec": spec})
    buffer = EventBuffer(capacity_records=100, wake_events=100)
    outbox = Outbox(buffer, gateway="g", declared=lambda _: declared_by(endpoint))
    every: list[dict[str, list[float | str]]] = [{}, {"words": [3.0]}]
    for observed in every:
        buffer.attempt(event_of(observations=observed))
        message = outbox.message()
        assert message is not None
        outbox.acknowledged()
        found = decode(message.payload).statistics
        wanted = [
            StatisticSpec("words", "histogram", [1.0, 10.0], []),
            StatisticSpec("kind", "category", [], ["long", "short"]),
        ]
        assert found == ({"sentiment": wanted} if observed else {})


def test_a_hook_that_can_t_be_loaded_is_said_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = EntryPoint("broken", "no_such_module:Nothing", GROUP)
    neither = EntryPoint("neither", "collections:Counter", GROUP)
    assert find_hooks(Metrics(), [broken, neither]) is None
    assert caplog.text.count("can't be loaded") == 2
    assert find_hooks(Metrics(), []) is None


def test_an_installed_hook_serves_the_endpoint_that_it_is_named_for() -> None:
    point = EntryPoint("sentiment", "own_code:Shouting", GROUP)
    hooks = find_hooks(Metrics(), [point])
    assert hooks is not None
    other = call_of("w1", endpoint="other")
    assert hooks.run(other) is other
