"""Labels of tokens on their way through the pipeline: windows are rows like any other."""

import asyncio

import numpy as np
import pytest
from front_fakes import TAGS
from gateway_world import (
    WORDS,
    FakeEngine,
    call_of,
    endpoint_of,
    manifest_of,
    text_of,
    tokenizer_json,
)
from numpy.typing import NDArray
from pipeline_world import world_of

from contracts.endpoint import Arm, ModelEndpoint
from contracts.tasks import Task
from gateway.calls import Answer
from gateway.errors import ModelFailedError
from gateway.inference.answer_cache import AnswerCache
from gateway.inference.attempt import TOPICS_A_TEXT
from gateway.packages import ServedModel, open_package
from preprocess.tasks import HEADS


def labeller(version: str) -> ServedModel:
    manifest = manifest_of(version, task=Task.TOKEN_CLASSIFICATION, labels=TAGS)
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


ONE, TWO = labeller("6"), labeller("7")


def logits(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Words 10 to 12 are weather, whatever is around them; padding would be, too."""
    found = np.zeros((*ids.shape, len(TAGS)), np.float32)
    weather = ((ids >= 12) & (ids <= 14)) | (ids == 0)
    found[..., 3] = np.where(weather, 3 + ids / 100, 0)
    found[..., 0] = np.where(weather, 0, 3)
    return found


def entities(answer: Answer) -> list[list[tuple[int, int]]]:
    made = HEADS[Task.TOKEN_CLASSIFICATION].predictions(answer)
    return [[(each["start"], each["end"]) for each in found] for found in made]


def expected(text: str) -> list[tuple[int, int]]:
    """Where the weather is: runs of its words."""
    spans: list[tuple[int, int]] = []
    at = 0
    for word in text.split(" "):
        end = at + len(word)
        if word in WORDS[10:13]:
            begin = spans.pop()[0] if spans and spans[-1][1] == at - 1 else at
            spans.append((begin, end))
        at = end + 1
    return spans


def served(**options: object) -> ModelEndpoint:
    return endpoint_of(ONE.ref, **options)  # type: ignore[arg-type]


async def test_many_callers_get_the_entities_of_their_own_texts() -> None:
    texts = [text_of(1 + number % 40, number) for number in range(60)]
    async with world_of(served(), FakeEngine(answer=logits), more=(ONE,)) as world:
        calls = [call_of(*texts[at : at + 3], request_id=f"r{at}") for at in range(0, 60, 3)]
        answers = await asyncio.gather(*(world.pipeline.predict(call) for call in calls))
    assert max(rows for rows, _ in world.engine.shapes) > 3  # of several callers
    found = [each for answer in answers for each in entities(answer)]
    assert found == [expected(text) for text in texts]
    assert not any(truncated for answer in answers for truncated in answer.truncated)


async def test_a_long_text_is_one_record_whatever_its_windows() -> None:
    async with world_of(served(), FakeEngine(answer=logits), more=(ONE,)) as world:
        answer = await world.pipeline.predict(call_of(text_of(40), text_of(3)))
    assert len(answer.tokens) > 2
    (event,) = world.recorder.events
    long, short = event.texts
    assert (long.tokens, long.words, long.truncated, long.label) == (40, 40, False, None)
    assert long.entities is not None
    assert [label for label, _ in long.entities] == ["WEATHER"]
    assert (short.label, short.entities) == ("O", [])
    assert len(event.topics) <= 2 * TOPICS_A_TEXT  # of a long text as many as of another


async def test_windows_are_kept_in_the_answer_cache_one_by_one() -> None:
    async with world_of(served(), FakeEngine(answer=logits), more=(ONE,)) as world:
        world.endpoints.caches["sentiment"] = AnswerCache(100_000, shared=True)
        text = text_of(40)
        first = await world.pipeline.predict(call_of(text))
        again = await world.pipeline.predict(call_of(text_of(5), text))
        whole = await world.pipeline.predict(call_of(text))
    assert entities(first)[0] == entities(again)[1] == entities(whole)[0] == expected(text)
    assert [event.cached for event in world.recorder.events] == [0, 1, 1]


async def test_a_shadow_is_compared_entity_by_entity() -> None:
    def nothing(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.zeros((*ids.shape, len(TAGS)), np.float32)

    engine = FakeEngine(answer=logits, others={TWO.name: FakeEngine(answer=nothing)})
    endpoint = served(shadow=TWO.ref, rollout="r")
    async with world_of(endpoint, engine, more=(ONE, TWO)) as world:
        await world.pipeline.predict(call_of(f"{text_of(3)} w10 w1 w12", text_of(2)))
        async with asyncio.timeout(60):
            while len(world.recorder.events) < 2:  # noqa: ASYNC110 - the shadow's own pace
                await asyncio.sleep(0.001)
    (copy,) = [event for event in world.recorder.events if event.arm is Arm.SHADOW]
    assert copy.pairing is not None
    assert copy.pairing.equal == [False, False, True]
    assert copy.pairing.distance == [1.0, 0.0]
    assert copy.pairing.labels == []


@pytest.mark.parametrize("shape", [(2, 4), (2, 4, 3), (1, 4, 4)])
async def test_an_output_of_another_shape_fails_the_call(shape: tuple[int, ...]) -> None:
    engine = FakeEngine(answer=lambda _: np.zeros(shape, np.float32))
    async with world_of(served(), engine, more=(ONE,)) as world:
        with pytest.raises(ModelFailedError):
            await world.pipeline.predict(call_of("w1", "w2"))
    assert world.statuses == [502]
