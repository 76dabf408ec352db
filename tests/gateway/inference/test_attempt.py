"""What of texts is in events: unknown words where asked for, a few buckets of tokens, cells."""

import asyncio

import numpy as np
import pytest
from gateway_world import (
    FakeEngine,
    call_of,
    endpoint_of,
    loop_turns,
    manifest_of,
    text_of,
    tokenizer_json,
)
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pipeline_world import ONE, TWO, world_of

from contracts.endpoint import Arm, ModelEndpoint, UnkWords
from contracts.events import VECTOR_PARTITIONS, EventBatch, decode, encode
from contracts.tasks import Task
from gateway.engine.protocol import EngineModelError
from gateway.errors import GatewayError
from gateway.inference.answer_cache import AnswerCache
from gateway.inference.attempt import (
    MOST_TOPICS,
    TOPICS_A_TEXT,
    topics_of,
)
from gateway.packages import ServedModel, open_package
from preprocess.directions import cells_of
from preprocess.unknown import LONGEST_WORD, MOST_CHARACTERS, MOST_WORDS

SPACE = "0123456789ab"


def asking(endpoint: ModelEndpoint) -> ModelEndpoint:
    spec = endpoint.spec.model_copy(update={"unk_words": UnkWords(enabled=True)})
    return endpoint.model_copy(update={"spec": spec})


async def test_by_default_no_word_leaves_the_gateway() -> None:
    async with world_of(endpoint_of(ONE.ref)) as world:
        await world.pipeline.predict(call_of("secret w1"))
    (event,) = world.recorder.events
    assert event.texts[0].unk == 1
    assert event.unk_words == []


async def test_where_they_are_asked_for_they_are_in_the_event() -> None:
    async with world_of(asking(endpoint_of(ONE.ref))) as world:
        await world.pipeline.predict(call_of("corona w1", text_of(3), "w2 Zoom corona"))
    (event,) = world.recorder.events
    assert event.unk_words == ["corona", "Zoom", "corona"]


async def test_copies_carry_them_too() -> None:
    endpoint = asking(endpoint_of(ONE.ref, shadow=TWO.ref, rollout="r"))
    async with world_of(endpoint) as world:
        await world.pipeline.predict(call_of("corona w1"))
        async with asyncio.timeout(60):
            while world.shadows.waiting or world.shadows.out:
                await loop_turns(1)
    assert {event.arm: event.unk_words for event in world.recorder.events} == {
        Arm.STABLE: ["corona"],
        Arm.SHADOW: ["corona"],
    }


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["x" * 1000], ["x" * LONGEST_WORD]),
        (["y " * 16] * 4, ["y"] * MOST_WORDS),
        (["z w1 " * (MOST_CHARACTERS // 4), "short"], ["short"]),
        (["w1 " * MOST_CHARACTERS, "short"], ["short"]),
    ],
    ids=["long words are cut", "some words", "long texts are passed", "known words cost nothing"],
)
async def test_what_is_looked_at_is_bounded(texts: list[str], found: list[str]) -> None:
    async with world_of(asking(endpoint_of(ONE.ref))) as world:
        await world.pipeline.predict(call_of(*texts))
    assert world.recorder.events[0].unk_words == found


def test_tokens_are_taken_evenly_by_bucket_and_their_order_is_lost() -> None:
    assert topics_of([[101, 300, 5, 102]]) == bytes([5, 44])
    assert topics_of([[101, *range(1000, 1040), 102]]) == bytes(
        sorted(token % 256 for token in (1004, 1014, 1024, 1034))
    )
    assert topics_of([]) == topics_of([[101, 102]]) == topics_of([[7]]) == b""


@given(st.lists(st.lists(st.integers(0, 2**31), max_size=600), max_size=200))
def test_of_no_request_more_than_so_many_tokens_leave_the_gateway(ids: list[list[int]]) -> None:
    found = topics_of(ids)
    assert len(found) <= MOST_TOPICS
    assert len(found) <= TOPICS_A_TEXT * len(ids)
    assert list(found) == sorted(found)
    assert set(found) <= {token % 256 for row in ids for token in row[1:-1]}


def embedder() -> ServedModel:
    manifest = manifest_of("6", task=Task.TEXT_EMBEDDING, labels=())
    manifest = manifest.model_copy(update={"dimension": 3, "space": SPACE})
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


def vectors(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Directions that depend on the first words."""
    return np.stack([np.cos(ids[:, 1]), np.sin(ids[:, 1]), np.cos(ids[:, 2])], 1, dtype=np.float32)


async def test_an_event_has_the_cells_of_the_vectors_that_were_answered_and_no_vector() -> None:
    model = embedder()
    engine = FakeEngine(answer=vectors)
    async with world_of(endpoint_of(model.ref), engine, more=(model,)) as world:
        world.endpoints.caches["sentiment"] = AnswerCache(100_000, shared=True)
        first = await world.pipeline.predict(call_of(text_of(3), text_of(4, 7)))
        kept = await world.pipeline.predict(call_of(text_of(4, 7)))
        engine.error = EngineModelError("broken")
        with pytest.raises(GatewayError):
            await world.pipeline.predict(call_of(text_of(5, 9)))
    both, one, failed = world.recorder.events
    assert both.vectors == cells_of(first.values)
    assert len(both.vectors) == 2 * VECTOR_PARTITIONS
    assert (one.cached, one.vectors) == (1, cells_of(kept.values))
    assert failed.vectors == b""
    assert {both.space, one.space, failed.space} == {SPACE}
    assert decode(encode(EventBatch("g", 0, [both]))).events == [both]


async def test_what_is_no_vector_has_no_cells() -> None:
    async with world_of(endpoint_of(ONE.ref)) as world:
        await world.pipeline.predict(call_of(text_of(3)))
    (event,) = world.recorder.events
    assert event.vectors == b""
    assert event.topics
    written = encode(EventBatch("g", 0, [event]))
    assert b"vectors" not in written
    assert b"space" not in written
