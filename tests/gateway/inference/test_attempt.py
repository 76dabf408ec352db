"""What of words is in events: unknown ones where asked for, and a few buckets of tokens."""

import asyncio

import pytest
from gateway_world import call_of, endpoint_of, loop_turns, text_of
from hypothesis import given
from hypothesis import strategies as st
from pipeline_world import ONE, TWO, world_of

from contracts.endpoint import Arm, ModelEndpoint, UnkWords
from gateway.inference.attempt import (
    LONGEST_WORD,
    MOST_CHARACTERS,
    MOST_TOPICS,
    MOST_WORDS,
    TOPICS_A_TEXT,
    topics_of,
)


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
