"""Those let in together are counted before they begin, and a turn is waited for or refused."""

import asyncio
from time import monotonic

import pytest
from front_fakes import FakeKeys, FakeMetrics, FakePredictor, FakeRecorder

from gateway.errors import OverloadedError
from gateway.front import Front
from gateway.http.messages import Reply, Request
from gateway.http.router import Route, Router
from gateway.request_context import RequestContext
from gateway.shedding import Shedding

PATH = "/endpoints/sentiment"


class SmallPredictor(FakePredictor):
    """Has room for three requests that are not begun."""

    def check_room(self, endpoint: str, ahead: int = 0) -> None:
        """Refuses the fourth."""
        if ahead >= 3:
            raise OverloadedError("Full.", retry_after_seconds=1)


async def handle(_: Request) -> Reply:
    return Reply(b"{}")


ROUTE = Route("POST", "/endpoints/{endpoint}", handle, "huggingface", predicts=True)


def shedding_with(predictor: FakePredictor) -> Shedding:
    front = Front(predictor, FakeKeys(), FakeRecorder(), FakeMetrics())
    return Shedding(Router([ROUTE]), front)


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


async def test_what_would_find_no_room_is_refused_before_it_waits() -> None:
    predictor = FakePredictor.with_endpoints()
    shedding = shedding_with(predictor)
    first, second = (RequestContext(str(number), 0.0, 0.0) for number in range(2))
    params = {"endpoint": "sentiment"}
    await shedding.turn(first, ROUTE, params)
    busy_until = monotonic() + 0.02
    while monotonic() < busy_until:  # this turn of the loop is used up
        pass
    predictor.full = OverloadedError("Full.", retry_after_seconds=1)
    with pytest.raises(OverloadedError):
        await shedding.turn(second, ROUTE, params)
