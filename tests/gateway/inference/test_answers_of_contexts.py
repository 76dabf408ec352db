"""Questions on their way through the pipeline: windows of contexts are rows like any other."""

import asyncio

import numpy as np
from gateway_world import FakeEngine, call_of, endpoint_of, manifest_of, text_of, tokenizer_json
from numpy.typing import NDArray
from pipeline_world import world_of

from contracts.endpoint import Arm
from contracts.tasks import Task
from gateway.calls import Answer
from gateway.inference.answer_cache import AnswerCache
from gateway.packages import ServedModel, open_package
from preprocess.tasks import HEADS
from preprocess.tasks.question_answering import NO_ANSWER

HEAD = HEADS[Task.QUESTION_ANSWERING]


def reader(version: str) -> ServedModel:
    manifest = manifest_of(version, task=Task.QUESTION_ANSWERING, labels=("start", "end"))
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


ONE, TWO = reader("6"), reader("7")


def logits(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Word 40 is the answer, whatever is around it; padding would be a better one."""
    sure = np.where(ids == 42, 9, np.where(ids == 0, 20, 0)).astype(np.float32)
    return np.stack([sure, sure], axis=-1)


def places(answer: Answer) -> list[tuple[int, int]]:
    return [(found[0]["start"], found[0]["end"]) for found in HEAD.predictions(answer)]


def context(number: int) -> tuple[str, tuple[int, int]]:
    """A context of up to 30 words with the answer in it, and where that is."""
    before, after = text_of(1 + number % 20), text_of(number % 10)
    return f"{before} w40 {after}", (len(before) + 1, len(before) + 4)


async def test_many_callers_get_the_answers_of_their_own_contexts() -> None:
    asked = [context(number) for number in range(60)]
    async with world_of(endpoint_of(ONE.ref), FakeEngine(answer=logits), more=(ONE,)) as world:
        calls = [
            call_of(
                *["w1 w2"] * 3,
                pairs=[text for text, _ in asked[at : at + 3]],
                request_id=f"r{at}",
            )
            for at in range(0, 60, 3)
        ]
        answers = await asyncio.gather(*(world.pipeline.predict(call) for call in calls))
    assert max(rows for rows, _ in world.engine.shapes) > 3  # of several callers
    assert [each for answer in answers for each in places(answer)] == [at for _, at in asked]
    assert not any(truncated for answer in answers for truncated in answer.truncated)


async def test_a_long_context_is_one_record_whatever_its_windows() -> None:
    async with world_of(endpoint_of(ONE.ref), FakeEngine(answer=logits), more=(ONE,)) as world:
        answer = await world.pipeline.predict(
            call_of("w1 w2", "w1 w2", pairs=[f"{text_of(30)} w40", "w3"])
        )
    assert len(answer.tokens) > 2
    (event,) = world.recorder.events
    long, short = event.texts
    assert (long.tokens, long.words, long.truncated) == (33, 33, False)
    assert long.entities is not None
    assert [kind for kind, _ in long.entities] == ["1-8 characters"]
    assert (short.label, short.score) == (None, None)


async def test_windows_are_kept_in_the_answer_cache_one_by_one() -> None:
    async with world_of(endpoint_of(ONE.ref), FakeEngine(answer=logits), more=(ONE,)) as world:
        world.endpoints.caches["sentiment"] = AnswerCache(100_000, shared=True)
        text, place = context(19)
        first = await world.pipeline.predict(call_of("w1", pairs=[text]))
        again = await world.pipeline.predict(call_of("w1", "w1", pairs=["w5", text]))
        other = await world.pipeline.predict(call_of("w2", pairs=[text]))
    assert places(first)[0] == places(again)[1] == places(other)[0] == place
    assert [event.cached for event in world.recorder.events] == [0, 1, 0]


async def test_a_shadow_is_compared_answer_by_answer() -> None:
    def nothing(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.zeros((*ids.shape, 2), np.float32)

    engine = FakeEngine(answer=logits, others={TWO.name: FakeEngine(answer=nothing)})
    endpoint = endpoint_of(ONE.ref, shadow=TWO.ref, rollout="r")
    async with world_of(endpoint, engine, more=(ONE, TWO)) as world:
        text, _ = context(3)
        await world.pipeline.predict(call_of("w1", pairs=[text]))
        async with asyncio.timeout(60):
            while len(world.recorder.events) < 2:  # noqa: ASYNC110 - the shadow's own pace
                await asyncio.sleep(0.001)
    (copy,) = [event for event in world.recorder.events if event.arm is Arm.SHADOW]
    assert copy.pairing is not None
    assert copy.pairing.equal == [False]
    assert 0 < copy.pairing.distance[0] <= 1
    assert copy.pairing.labels == []
    (record,) = copy.texts
    assert record.entities is not None
    assert record.entities[0][0] != NO_ANSWER  # this tokeniser has no first token to say so
