"""A prompt goes before the texts that the version which answers tokenises, and nowhere else."""

import asyncio

import numpy as np
import pytest
from gateway_world import WORDS, FakeEngine, call_of, endpoint_of, manifest_of, tokenizer_json
from msgspec import structs
from numpy.typing import NDArray
from pipeline_world import world_of

from contracts.endpoint import Arm
from contracts.tasks import Task
from gateway.calls import Call
from gateway.errors import InvalidInputError
from gateway.inference.answer_cache import AnswerCache
from gateway.inference.encoding import INLINE_CHARACTERS
from gateway.packages import ServedModel, open_package

TEXT = " ".join(WORDS[:3])


def embedder(version: str, prompts: dict[str, str], default: str | None = None) -> ServedModel:
    plain = manifest_of(version, task=Task.TEXT_EMBEDDING, labels=())
    tokenizer = plain.tokenizer.model_copy(update={"prompts": prompts, "default_prompt": default})
    manifest = plain.model_copy(update={"tokenizer": tokenizer, "dimension": 2})
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


QUERY = f"{WORDS[9]} {WORDS[8]} "
ONE = embedder("6", {"query": QUERY, "passage": ""}, "query")
TWO = embedder("7", {"query": f"{WORDS[7]} "})


def vectors(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """How many tokens, and their sum: padding is 0."""
    return np.stack([(ids > 0).sum(axis=1), ids.sum(axis=1)], axis=1).astype(np.float32)


def seen(model: ServedModel, text: str) -> list[float]:
    ids = model.encoder.encode([text]).ids[0]
    return [float(len(ids)), float(sum(ids))]


def call(text: str = TEXT, prompt: str | None = None) -> Call:
    return structs.replace(call_of(text), prompt_name=prompt)


@pytest.mark.parametrize(("prompt", "before"), [(None, QUERY), ("query", QUERY), ("passage", "")])
async def test_the_named_prompt_or_the_usual_one_is_read_by_the_model(
    prompt: str | None, before: str
) -> None:
    async with world_of(endpoint_of(ONE.ref), FakeEngine(answer=vectors), more=(ONE,)) as world:
        answer = await world.pipeline.predict(call(prompt=prompt))
    assert answer.values.tolist() == [seen(ONE, before + TEXT)]


async def test_a_long_text_gets_its_prompt_in_the_thread() -> None:
    text = f"{TEXT} " * (INLINE_CHARACTERS // len(TEXT) + 1)
    async with world_of(endpoint_of(ONE.ref), FakeEngine(answer=vectors), more=(ONE,)) as world:
        answer = await world.pipeline.predict(call(text, "query"))
        with pytest.raises(InvalidInputError, match="no prompt 'nobody'"):
            await world.pipeline.predict(call(text, "nobody"))
    assert answer.values.tolist() == [seen(ONE, QUERY + text)]


async def test_a_prompt_that_the_version_lacks_is_the_callers_mistake() -> None:
    async with world_of(endpoint_of(TWO.ref), FakeEngine(answer=vectors), more=(TWO,)) as world:
        with pytest.raises(InvalidInputError, match="no prompt 'passage': there are query"):
            await world.pipeline.predict(call(prompt="passage"))


async def test_answers_with_another_prompt_are_not_taken_from_the_cache() -> None:
    async with world_of(endpoint_of(ONE.ref), FakeEngine(answer=vectors), more=(ONE,)) as world:
        world.endpoints.caches["sentiment"] = AnswerCache(100_000, shared=True)
        plain = await world.pipeline.predict(call(prompt="passage"))
        asked = await world.pipeline.predict(call(prompt="query"))
        again = await world.pipeline.predict(call())
    assert plain.values.tolist() != asked.values.tolist() == again.values.tolist()
    assert [event.cached for event in world.recorder.events] == [0, 0, 1]


async def test_a_shadow_reads_its_own_prompt() -> None:
    read: list[list[int]] = []

    def remembered(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        read.extend(ids.tolist())
        return vectors(ids)

    engine = FakeEngine(answer=vectors, others={TWO.name: FakeEngine(answer=remembered)})
    endpoint = endpoint_of(ONE.ref, shadow=TWO.ref, rollout="r")
    async with world_of(endpoint, engine, more=(ONE, TWO)) as world:
        await world.pipeline.predict(call(prompt="query"))
        await world.pipeline.predict(call(prompt="passage"))
        async with asyncio.timeout(60):
            while len(world.recorder.events) < 4:  # noqa: ASYNC110 - the shadow's own pace
                await asyncio.sleep(0.001)
    copies = {event.status for event in world.recorder.events if event.arm is Arm.SHADOW}
    assert copies == {200, 422}  # it has no prompt for passages
    (ids,) = read
    assert [each for each in ids if each] == TWO.encoder.encode([f"{WORDS[7]} {TEXT}"]).ids[0]
