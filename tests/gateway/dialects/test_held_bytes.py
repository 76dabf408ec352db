"""What a request takes of memory counts from its first byte to its answer, over HTTP and gRPC."""

import asyncio
import json
import logging
from collections.abc import Callable
from random import Random

import pytest
from front_fakes import Behind, FakeKeys, FakePredictor
from memory_of_bodies import Asking
from worst_bodies import WORST, WorstBody, endpoints

from gateway.admission.byte_budget import ByteBudget
from gateway.calls import Answer, Call
from gateway.errors import ShuttingDownError
from gateway.http.server import BODY_TIMEOUT, CLIENT_GONE

_TEXT = "x" * 200_000


class SeenPredictor(FakePredictor):
    """Looks at something while it answers."""

    look: Callable[[], None]

    async def predict(self, call: Call) -> Answer:
        self.look()
        return await super().predict(call)


def asking(held: ByteBudget, look: Callable[[], None] = lambda: None) -> Asking:
    predictor = SeenPredictor(endpoints().views)
    predictor.look = look
    return Asking(Behind(predictor, FakeKeys(None), held=held))


HTTP = WorstBody("text", "/endpoints/sentiment", lambda _: json.dumps({"inputs": _TEXT}).encode())
NAMED = WorstBody(
    "named",
    "/v1/embeddings",
    lambda _: json.dumps({"model": "minilm", "input": [_TEXT, "a"]}).encode(),
)


def message() -> bytes:
    from tritonclient.grpc import service_pb2 as pb

    made = pb.ModelInferRequest(model_name="sentiment")
    tensor = made.inputs.add(name="TEXT", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(_TEXT.encode())
    found: bytes = made.SerializeToString()
    return found


GRPC = WorstBody("grpc", "grpc", lambda _: message())
OF = {"text": "sentiment", "named": "minilm", "grpc": "sentiment"}


@pytest.mark.parametrize("one", [HTTP, NAMED, GRPC], ids=lambda one: one.name)
async def test_texts_count_for_their_endpoint_while_they_wait_and_for_nobody_after(
    one: WorstBody,
) -> None:
    held, seen = ByteBudget(10**8), list[tuple[int, int]]()
    subject = asking(held, lambda: seen.append((held.held, held.of_endpoint(OF[one.name]))))
    assert await subject.ask(one, one.make(0)) in ("200", "OK")
    ((every, mine),) = seen
    assert every == mine
    assert len(_TEXT) <= mine < len(_TEXT) + 1000
    assert held.held == 0


class CuttingPredictor(SeenPredictor):
    """Has read what it needs of the texts: they need not be kept for it."""

    async def predict(self, call: Call) -> Answer:
        if call.hold is not None:
            call.hold(0)
        return await super().predict(call)


# What is answered needs the texts as they were sent, or does not.
ANSWERED_WITH = [
    ("/endpoints/tags/beta/litellm_basic_guardrail_api", {"texts": [_TEXT]}, True),
    ("/endpoints/tags/api/v1/text/contents", {"contents": [_TEXT]}, True),
    ("/endpoints/sentiment/beta/litellm_basic_guardrail_api", {"texts": [_TEXT]}, False),
    ("/endpoints/sentiment/api/v1/text/contents", {"contents": [_TEXT]}, False),
    ("/endpoints/reranker/rerank", {"query": "a", "texts": [_TEXT], "return_text": True}, True),
    ("/endpoints/reranker/rerank", {"query": "a", "texts": [_TEXT]}, False),
    (
        "/v1/rerank",
        {"model": "reranker", "query": "a", "documents": [_TEXT], "return_documents": True},
        True,
    ),
]


@pytest.mark.parametrize(("path", "body", "with_texts"), ANSWERED_WITH)
async def test_texts_that_the_answer_needs_count_until_it_is_there(
    path: str, body: dict[str, object], with_texts: bool
) -> None:
    held, seen = ByteBudget(10**8), list[int]()
    predictor = CuttingPredictor(endpoints().views)
    predictor.look = lambda: seen.append(held.held)
    subject = Asking(Behind(predictor, FakeKeys(None), held=held))
    one = WorstBody("kept", path, lambda _: json.dumps(body).encode())
    assert await subject.ask(one, one.make(0)) == "200"
    assert seen[0] >= len(_TEXT) if with_texts else seen[0] == 0
    assert held.held == 0


@pytest.mark.parametrize("one", [HTTP, NAMED, GRPC], ids=lambda one: one.name)
async def test_a_request_without_room_is_told_to_come_back_and_the_room_comes_back(
    one: WorstBody,
) -> None:
    held = ByteBudget(40 * 1024 * 1024)  # gRPC needs room for the largest message
    subject = asking(held)
    held.add(held_by_others := 39 * 1024 * 1024 + 900_000 if one is not GRPC else 20_000_000)
    if one is GRPC:
        held.move(20_000_000, "sentiment", None)
        refused = asyncio.create_task(subject.ask(one, one.make(0)))
        await asyncio.sleep(0)
        assert not refused.done()  # it waits for room to be read in
        held.move(-20_000_000, "sentiment", None)
        held.add(-held_by_others)
        assert await refused == "OK"
    else:
        assert await subject.ask(one, one.make(0)) == "503"
        held.add(-held_by_others)
        assert await subject.ask(one, one.make(0)) == "200"
    assert held.held == 0


@pytest.mark.parametrize("worst", WORST, ids=lambda worst: worst.name)
async def test_nothing_stays_counted_whatever_was_sent(worst: WorstBody) -> None:
    held = ByteBudget(10**9)
    subject = asking(held)
    for size in (500, 100_000):
        await subject.ask(worst, worst.make(size))
    assert held.held == 0


class UnsteadyPredictor(FakePredictor):
    """Takes some turns of the loop to answer, and does not answer everything."""

    random = Random(31)

    async def predict(self, call: Call) -> Answer:
        for _ in range(self.random.randrange(30)):
            await asyncio.sleep(0)
        if self.random.random() < 0.1:
            raise self.random.choice([ValueError("a bug"), ShuttingDownError("later")])
        if call.hold is not None:
            call.hold(self.random.randrange(200_000))
        return await super().predict(call)


@pytest.mark.parametrize("most_bytes", [24 * 1024 * 1024, 10**9])
async def test_nothing_stays_counted_however_requests_end(
    most_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    random, held = Random(31), ByteBudget(most_bytes)
    subject = Asking(Behind(UnsteadyPredictor(endpoints().views), FakeKeys(None), held=held))
    of_all = [(one, one.make(size)) for one in WORST for size in (500, 100_000)]
    of_all += [(one, one.make(0)) for one in (HTTP, NAMED, GRPC) for _ in range(20)]
    ends = (CLIENT_GONE, BODY_TIMEOUT, None)
    for _ in range(25):
        tasks = [asyncio.create_task(subject.ask(*random.choice(of_all))) for _ in range(40)]
        for task in random.sample(tasks, 20):
            for _ in range(random.randrange(5)):
                await asyncio.sleep(0)
            task.cancel(random.choice(ends))
        await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(60):
        while subject.behind.front.large.waiting:  # noqa: ASYNC110 - threads tell nobody else
            await asyncio.sleep(0.001)
    assert held.held == 0
    assert [held.of_endpoint(name) for name in endpoints().views] == [0] * len(endpoints().views)
