"""Kept answers are the right ones, are bounded, and never cross a version or a key."""

import asyncio
from dataclasses import dataclass, field
from time import monotonic

import numpy as np
import pytest
from gateway_world import FakeEngine, call_of, endpoint_of, loop_turns, text_of
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pipeline_world import ONE, TWO, world_of

from contracts.endpoint import AnswerCacheOptions as Asked
from contracts.endpoint import ModelEndpoint
from gateway.errors import DeadlineExceededError, ModelFailedError
from gateway.inference.answer_cache import AnswerCache
from preprocess.encoder import EncodedTexts

Values = NDArray[np.float32]


def encoded(*texts: tuple[int, ...]) -> EncodedTexts:
    return EncodedTexts(
        ids=[list(ids) for ids in texts],
        type_ids=None,
        tokens=[len(ids) for ids in texts],
        words=[1] * len(texts),
        unk=[0] * len(texts),
        truncated=[False] * len(texts),
    )


def answers(texts: EncodedTexts) -> Values:
    return np.array([[sum(ids), len(ids)] for ids in texts.ids], np.float32)


def answers_of_tokens(texts: EncodedTexts) -> Values:
    return np.array([[token, len(ids)] for ids in texts.ids for token in ids], np.float32)


@dataclass
class Model:
    """Answers by token ids; counts texts; holds its answers or fails where it is told to."""

    texts: int = 0
    held: asyncio.Event | None = None
    error: Exception | None = None
    began: asyncio.Event = field(default_factory=asyncio.Event)
    by_token: bool = False

    async def infer(self, texts: EncodedTexts) -> Values:
        self.texts += len(texts)
        self.began.set()
        if self.held is not None:
            await self.held.wait()
        if self.error is not None:
            raise self.error
        return self.answers(texts)

    def answers(self, texts: EncodedTexts) -> Values:
        return answers_of_tokens(texts) if self.by_token else answers(texts)

    async def ask(
        self,
        cache: AnswerCache,
        texts: EncodedTexts,
        *,
        package: str = "p",
        caller: str | None = None,
        seconds: float = 60.0,
    ) -> int:
        """Asks through a cache, and returns how many texts were not inferred for it."""
        values, cached = await cache.answer(
            package,
            caller,
            texts,
            self.infer,
            monotonic() + seconds,
            sizes=lambda tokens: tokens if self.by_token else [1] * len(tokens),
        )
        np.testing.assert_array_equal(values, self.answers(texts))
        return cached


async def test_rows_with_values_for_each_token_are_kept_whole() -> None:
    cache, model = AnswerCache(10_000, shared=False), Model(by_token=True)
    assert await model.ask(cache, encoded((1, 2, 3), (4, 5))) == 0
    assert await model.ask(cache, encoded((6,), (4, 5), (1, 2, 3), (7, 8))) == 2
    assert model.texts == 4


async def test_a_text_that_comes_again_is_not_inferred_again() -> None:
    cache, model = AnswerCache(10_000, shared=False), Model()
    assert await model.ask(cache, encoded((1, 2), (3,))) == 0
    assert await model.ask(cache, encoded((3,), (4,), (1, 2), (3,))) == 3
    assert model.texts == 3
    assert (cache.hits, cache.joined, cache.misses) == (3, 0, 3)


async def test_a_text_that_comes_twice_in_a_request_is_inferred_once() -> None:
    cache, model = AnswerCache(10_000, shared=False), Model()
    assert await model.ask(cache, encoded((1,), (2,), (1,))) == 1
    assert model.texts == 2


@pytest.mark.parametrize(
    ("other", "shared", "inferred"),
    [
        ({"package": "q"}, True, 2),
        ({"caller": "b"}, False, 2),
        ({"caller": "b"}, True, 1),
        ({"caller": "a"}, False, 1),
    ],
    ids=str,
)
async def test_answers_cross_no_version_and_keys_only_where_they_may(
    other: dict[str, str], shared: bool, inferred: int
) -> None:
    cache, model = AnswerCache(10_000, shared=shared), Model()
    await model.ask(cache, encoded((1,)), caller="a")
    await model.ask(cache, encoded((1,)), **({"caller": "a"} | other))  # type: ignore[arg-type]
    assert model.texts == inferred


async def test_token_types_are_part_of_a_text() -> None:
    cache, model = AnswerCache(10_000, shared=False), Model()
    for types in ([0, 0], [0, 1]):
        text = encoded((1, 2))
        pair = EncodedTexts(text.ids, [types], text.tokens, text.words, text.unk, text.truncated)
        await model.ask(cache, pair)
    assert model.texts == 2


async def test_requests_for_the_same_text_at_once_share_one_inference() -> None:
    cache, model = AnswerCache(10_000, shared=False), Model(held=asyncio.Event())
    asking = [asyncio.create_task(model.ask(cache, encoded((1,), (2,)))) for _ in range(3)]
    await model.began.wait()
    assert model.held is not None
    model.held.set()
    assert sorted(await asyncio.gather(*asking)) == [0, 2, 2]
    assert model.texts == 2
    assert (cache.joined, cache.misses) == (4, 2)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_those_who_waited_for_what_failed_ask_for_themselves(cancelled: bool) -> None:
    cache = AnswerCache(10_000, shared=False)
    failing, good = Model(held=asyncio.Event(), error=ModelFailedError("no")), Model()
    first = asyncio.create_task(failing.ask(cache, encoded((1,))))
    await failing.began.wait()
    second = asyncio.create_task(good.ask(cache, encoded((1,), (2,))))
    await good.began.wait()  # for (2,): it waits for (1,)
    assert good.texts == 1
    assert failing.held is not None
    if cancelled:
        first.cancel()
    failing.held.set()
    with pytest.raises(asyncio.CancelledError if cancelled else ModelFailedError):
        await first
    assert await second == 0
    assert good.texts == 2
    assert await good.ask(cache, encoded((2,))) == 1


async def test_who_waits_for_another_is_told_at_its_own_deadline() -> None:
    cache, model = AnswerCache(10_000, shared=False), Model(held=asyncio.Event())
    first = asyncio.create_task(model.ask(cache, encoded((1,))))
    await model.began.wait()
    with pytest.raises(DeadlineExceededError):
        await model.ask(cache, encoded((1,)), seconds=0.01)
    assert model.held is not None
    model.held.set()
    assert await first == 0


texts = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), min_size=1)


@given(st.lists(texts, max_size=20), st.integers(0, 5_000))
async def test_whatever_is_asked_answers_are_right_and_memory_is_bounded(
    requests: list[list[tuple[int, ...]]], most: int
) -> None:
    cache, model = AnswerCache(most, shared=False), Model()
    for request in requests:
        await model.ask(cache, encoded(*request))
        assert cache.bytes <= most
    cache.limit(0, shared=False)
    assert cache.bytes == 0


async def test_what_was_used_last_stays() -> None:
    cache, model = AnswerCache(1_000, shared=False), Model()  # two entries
    for text in ((1,), (2,), (1,), (3,)):
        await model.ask(cache, encoded(text))
    assert await model.ask(cache, encoded((1,))) == 1
    assert await model.ask(cache, encoded((2,))) == 0


def with_cache(endpoint: ModelEndpoint) -> ModelEndpoint:
    serving = endpoint.spec.serving.model_copy(update={"cache": Asked(megabytes=1)})
    spec = endpoint.spec.model_copy(update={"serving": serving})
    return endpoint.model_copy(update={"spec": spec})


async def test_a_request_that_was_answered_from_the_cache_is_an_event_that_says_so() -> None:
    engine = FakeEngine()
    async with world_of(with_cache(endpoint_of(ONE.ref)), engine) as world:
        first = await world.pipeline.predict(call_of(text_of(3), text_of(4)))
        again = await world.pipeline.predict(call_of(text_of(4), text_of(3)))
        mixed = await world.pipeline.predict(call_of(text_of(3), text_of(5)))
    assert again.values.tolist() == first.values[::-1].tolist()
    assert mixed.values[0].tolist() == first.values[0].tolist()
    assert [event.cached for event in world.recorder.events] == [0, 2, 1]
    assert [event.answered for event in world.recorder.events] == [True] * 3
    assert world.recorder.events[1].latency.infer == 0


async def test_the_copy_of_a_cached_answer_would_compare_nothing_and_is_not_sent() -> None:
    endpoint = with_cache(endpoint_of(ONE.ref, shadow=TWO.ref))
    async with world_of(endpoint) as world:
        for _ in range(3):
            await world.pipeline.predict(call_of(text_of(3)))
        async with asyncio.timeout(60):
            while world.shadows.waiting or world.shadows.out:
                await loop_turns(1)
    assert [event.version for event in world.recorder.events].count("2") == 1


async def test_a_change_of_the_endpoint_keeps_the_cache_and_turning_it_off_frees_it() -> None:
    engine = FakeEngine()
    endpoint = with_cache(endpoint_of(ONE.ref))
    async with world_of(endpoint, engine) as world:
        await world.pipeline.predict(call_of(text_of(3)))
        world.serve(endpoint)
        await world.pipeline.predict(call_of(text_of(3)))
        assert len(engine.works) == 1
        world.serve(endpoint_of(ONE.ref))
        world.serve(endpoint)
        await world.pipeline.predict(call_of(text_of(3)))
    assert len(engine.works) == 2
