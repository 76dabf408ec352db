"""Those let in together are counted before they begin, and what is refused costs no more."""

import asyncio

from front_fakes import FakeKeys, FakeMetrics, FakePredictor, FakeRecorder

from gateway.admission.front import Front
from gateway.admission.shedding import Shedding
from gateway.calls import Arrival
from gateway.dialects.openai import endpoint_in
from gateway.errors import OverloadedError
from gateway.http.messages import Reply, Request
from gateway.http.router import Route, Router

PATH = "/endpoints/sentiment"


class SmallPredictor(FakePredictor):
    """Has room for three requests that are not begun."""

    def check_room(self, endpoint: str, arrival: Arrival) -> None:
        """Refuses the fourth."""
        if arrival.ahead >= 3:
            raise OverloadedError("Full.", retry_after_seconds=1)


async def handle(_: Request) -> Reply:
    return Reply(b"{}")


ROUTE = Route("POST", "/endpoints/{endpoint}", handle, "huggingface", predicts=True)
EMBEDDINGS = Route(
    "POST", "/v1/embeddings", handle, "openai", predicts=True, endpoint_in=endpoint_in
)


def shedding_with(predictor: FakePredictor) -> Shedding:
    front = Front(predictor, FakeKeys(), FakeRecorder(), FakeMetrics())
    return Shedding(Router([ROUTE, EMBEDDINGS]), front)


async def test_requests_read_in_one_turn_of_the_loop_do_not_find_the_same_room() -> None:
    shedding = shedding_with(SmallPredictor(FakePredictor.with_endpoints().views))
    answers = [shedding.refusal("POST", PATH, {}) for _ in range(5)]
    assert [answer is None for answer in answers] == [True, True, True, False, False]
    other = shedding.refusal("POST", "/endpoints/minilm", {})
    assert other is None
    await asyncio.sleep(0)  # the tasks of those that were let in begin
    assert shedding.refusal("POST", PATH, {}) is None


async def test_it_watches_after_a_refusal_and_not_before() -> None:
    shedding = shedding_with(FakePredictor.with_endpoints())
    assert not shedding.watching
    shedding.said_no()
    assert shedding.watching


async def test_the_endpoint_is_read_from_a_body_that_lies_there_whole() -> None:
    shedding = shedding_with(SmallPredictor(FakePredictor.with_endpoints().views))
    path, body = "/v1/embeddings", b'{"input": ["a", "b"], "model": "minilm"}'
    answers = [shedding.refusal("POST", path, {}, body) for _ in range(5)]
    assert [answer is None for answer in answers] == [True, True, True, False, False]
    assert shedding.refusal("POST", PATH, {}) is None  # each endpoint has room of its own
    # What can't be told from the headers is the handler's to say.
    assert shedding.refusal("POST", path, {}) is None
    for unreadable in (b"{}", b"\xff", b'{"model": 3}', b'{"model": "minilm"', b"[" * 5000):
        assert shedding.refusal("POST", path, {}, unreadable) is None
