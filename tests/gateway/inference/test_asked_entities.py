"""Entities by callers' own labels on their way through the pipeline, many callers in a batch."""

import asyncio

import numpy as np
from gateway_world import FakeEngine, call_of, endpoint_of, manifest_of, text_of, tokenizer_json
from numpy.typing import NDArray
from pipeline_world import world_of

from contracts.endpoint import UnkWords
from contracts.manifest import SpanSpec
from contracts.tasks import Task
from contracts.tensors import Datatype, TensorSpec
from gateway.calls import Answer, Call
from gateway.engine.protocol import Work
from gateway.inference.answer_cache import AnswerCache
from gateway.packages import ServedModel, open_package
from preprocess.labelled_words import LENGTH_BASE
from preprocess.tasks import HEADS
from preprocess.tasks.head import NAMED

HEAD = HEADS[Task.ENTITY_RECOGNITION]
WIDEST, MOST_LABELS = 2, 3


def served() -> ServedModel:
    plain = manifest_of("6", task=Task.ENTITY_RECOGNITION, labels=(), buckets=(16, 64))
    types = TensorSpec(name="token_type_ids", datatype=Datatype.INT64, shape=(-1, -1))
    spans = SpanSpec(widest=WIDEST, most_labels=MOST_LABELS)
    manifest = plain.model_copy(
        update={
            "dimension": WIDEST * MOST_LABELS,
            "inputs": (*plain.inputs, types),
            "tokenizer": plain.tokenizer.model_copy(update={"spans": spans}),
        }
    )
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


MODEL = served()


class Finder(FakeEngine):
    """Finds each word that is a label, by what rows say of themselves."""

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        await super().infer(work, timeout_seconds)
        ids, types = work.tensors["input_ids"], work.tensors["token_type_ids"]
        found = np.full((*ids.shape, WIDEST, MOST_LABELS), -9, np.float32)
        for row, laid in enumerate(types):
            for label in range(MOST_LABELS):
                for mark in np.flatnonzero(laid == -1 - label):
                    same = laid[(ids[row] == ids[row, mark + 1]) & (laid > 0)]
                    found[row, same - 1, 0, label] = 3
            assert laid.min() == -LENGTH_BASE - laid.max()
        return found.reshape(*ids.shape, -1)


def asking(labels: list[str], *texts: str, named: tuple[str, ...] = ()) -> Call:
    rows, pairs = HEAD.rows(list(texts), None, {"labels": labels, NAMED: named})
    return call_of(*rows, pairs=pairs, request_id="-".join(labels))


def words_of(answer: Answer) -> list[list[tuple[str, str]]]:
    return [
        [(each["entity_group"], each["word"]) for each in found]
        for found in HEAD.predictions(answer)
    ]


def expected(labels: list[str], text: str) -> list[tuple[str, str]]:
    return [(word, word) for word in text.split() if word in labels]


async def test_each_caller_gets_the_entities_of_its_own_labels() -> None:
    asked = [
        (
            [f"w{at % 9}", f"w{3 + at % 20}", f"w{30 + at % 7}"][: 1 + at % 3],
            text_of(1 + at % 40, at),
        )
        for at in range(40)
    ]
    async with world_of(endpoint_of(MODEL.ref), Finder(), more=(MODEL,)) as world:
        calls = [asking(list(dict.fromkeys(labels)), text) for labels, text in asked]
        answers = await asyncio.gather(*(world.pipeline.predict(call) for call in calls))
    assert max(rows for rows, _ in world.engine.shapes) > 1  # of several callers
    found = [words_of(answer)[0] for answer in answers]
    assert found == [expected(labels, text) for labels, text in asked]
    assert any(found)


async def test_events_have_the_labels_that_the_endpoint_names_and_no_others() -> None:
    async with world_of(endpoint_of(MODEL.ref), Finder(), more=(MODEL,)) as world:
        await world.pipeline.predict(asking(["w1", "w2"], "w1 w2 w3", named=("w2",)))
    (event,) = world.recorder.events
    assert [label for label, _ in event.texts[0].entities or ()] == ["another label", "w2"]


async def test_no_event_has_a_callers_label_among_the_unknown_words() -> None:
    endpoint = endpoint_of(MODEL.ref)
    spec = endpoint.spec.model_copy(update={"unk_words": UnkWords(enabled=True)})
    endpoint = endpoint.model_copy(update={"spec": spec})
    async with world_of(endpoint, Finder(), more=(MODEL,)) as world:
        await world.pipeline.predict(asking(["w1", "codename"], "w1 corona"))
    (event,) = world.recorder.events
    assert event.unk_words == ["corona"]


async def test_the_answer_cache_tells_labels_apart() -> None:
    async with world_of(endpoint_of(MODEL.ref), Finder(), more=(MODEL,)) as world:
        world.endpoints.caches["sentiment"] = AnswerCache(100_000, shared=True)
        answers = [
            words_of(await world.pipeline.predict(asking(labels, "w1 w2")))
            for labels in (["w1"], ["w2"], ["w1"])
        ]
    assert answers == [[[("w1", "w1")]], [[("w2", "w2")]], [[("w1", "w1")]]]
    assert [event.cached for event in world.recorder.events] == [0, 0, 1]
