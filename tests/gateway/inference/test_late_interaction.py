"""Late interaction on its way through the pipeline: a query and its documents are rows."""

import asyncio

import numpy as np
import pytest
from gateway_world import FakeEngine, call_of, endpoint_of, manifest_of, text_of, tokenizer_json
from numpy.typing import NDArray
from pipeline_world import world_of

from contracts.endpoint import ModelEndpoint
from contracts.manifest import QueryDocumentSpec
from contracts.tasks import Task
from gateway.calls import Answer
from gateway.errors import TooLargeError
from gateway.inference.answer_cache import AnswerCache
from gateway.packages import ServedModel, open_package
from preprocess.late_interaction import maxsim
from preprocess.tasks import HEADS

HEAD = HEADS[Task.MULTI_VECTOR_EMBEDDING]
FILL = 52  # behind the vocabulary
LEFT_OUT = 5


def late_model() -> ServedModel:
    plain = manifest_of("6", task=Task.MULTI_VECTOR_EMBEDDING, labels=())
    sides = QueryDocumentSpec(
        query_tokens=6, document_tokens=16, filled_to=6, fill_id=FILL, left_out=(LEFT_OUT,)
    )
    prompts = {"query": "w1 ", "document": ""}
    spec = plain.tokenizer.model_copy(
        update={"sides": sides, "prompts": prompts, "default_prompt": "document"}
    )
    manifest = plain.model_copy(update={"tokenizer": spec, "dimension": 3})
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


ONE = late_model()


def vectors(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Of each token by itself, so that neighbours and padding change nothing."""
    return np.stack([ids % 7, ids % 3, ids % 5], axis=-1).astype(np.float32)


def served() -> ModelEndpoint:
    return endpoint_of(ONE.ref)


def by_hand(query: str, document: str) -> float:
    def ids(text: str) -> list[int]:
        return [int(word[1:]) + 2 for word in text.split()]

    asked = ids(f"w1 {query}")[:6]
    asked += [FILL] * (6 - len(asked))
    read = [each for each in ids(document)[:16] if each != LEFT_OUT]
    return maxsim(vectors(np.array(asked)), vectors(np.array(read)))


def scores(answer: Answer) -> dict[int, float]:
    order, shown, _ = HEAD.ranking(answer)
    return dict(zip(order, shown, strict=True))


async def test_many_callers_get_the_scores_of_their_own_documents() -> None:
    documents = [text_of(1 + number % 20, number) for number in range(60)]
    parts = [documents[at : at + 5] for at in range(0, 60, 5)]
    queries = [text_of(1 + number, 3 * number) for number in range(len(parts))]
    async with world_of(served(), FakeEngine(answer=vectors), more=(ONE,)) as world:
        calls = [
            call_of(*[query] * len(part), pairs=list(part), request_id=query)
            for query, part in zip(queries, parts, strict=True)
        ]
        answers = await asyncio.gather(*(world.pipeline.predict(call) for call in calls))
    assert max(rows for rows, _ in world.engine.shapes) > 5  # of several callers
    for answer, query, part in zip(answers, queries, parts, strict=True):
        assert len(answer.tokens) == 1 + len(part), "the query is read once"
        wanted = {at: by_hand(query, document) for at, document in enumerate(part)}
        assert scores(answer) == pytest.approx(wanted)
        assert len(answer.truncated) == len(part)


async def test_a_document_is_one_record_with_the_tokens_of_both() -> None:
    async with world_of(served(), FakeEngine(answer=vectors), more=(ONE,)) as world:
        await world.pipeline.predict(call_of(*[text_of(3)] * 2, pairs=[text_of(2), text_of(30)]))
    (event,) = world.recorder.events
    assert [(each.tokens, each.truncated) for each in event.texts] == [(8, False), (22, True)]


async def test_rows_are_kept_in_the_answer_cache_whatever_they_are_compared_with() -> None:
    async with world_of(served(), FakeEngine(answer=vectors), more=(ONE,)) as world:
        world.endpoints.caches["sentiment"] = AnswerCache(100_000, shared=True)
        for query, documents in (
            ("w2", ["w3", "w4 w9"]),
            ("w3", ["w3", "w4 w9"]),
            ("w3", ["w4 w9", "w3"]),
            ("w3", ["w7", "w3"]),
        ):
            call = call_of(*[query] * 2, pairs=list(documents))
            answer = await world.pipeline.predict(call)
            wanted = {at: by_hand(query, each) for at, each in enumerate(documents)}
            assert scores(answer) == pytest.approx(wanted)
    assert [event.cached for event in world.recorder.events] == [0, 1, 2, 1]


async def test_a_document_that_would_be_cut_is_refused_by_its_place_if_none_may_be() -> None:
    async with world_of(served(), FakeEngine(answer=vectors), more=(ONE,)) as world:
        call = call_of("w1", "w1", pairs=["w2", text_of(30)], truncate=False)
        with pytest.raises(TooLargeError, match="Text 1 has more than"):
            await world.pipeline.predict(call)
