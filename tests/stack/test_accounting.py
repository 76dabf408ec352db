"""Every request that an endpoint answered or refused is in the events or in the counted drops."""

import uuid

import httpx
import pytest
from event_log import Totals, read_all, read_batches, total
from running_stack import EXAMPLE_ENDPOINT, RunningStack
from traffic import Traffic, answered_by_all
from waiting import until

pytestmark = pytest.mark.real


def marked(stack: RunningStack) -> tuple[dict[str, str], Totals]:
    """With one more request at each gateway, which is behind all before it.

    Returns:
        Each gateway's name in the events by that of its process, and the totals.
    """
    marks = {uuid.uuid4().hex: gateway for gateway in stack.gateways}
    for mark, gateway in marks.items():
        url = f"{gateway.url}/endpoints/{EXAMPLE_ENDPOINT}"
        told = {"x-request-id": mark}
        answer = httpx.post(url, json={"inputs": "mark"}, headers=told, timeout=60)
        assert answer.status_code == 200, answer.text

    def arrived() -> tuple[dict[str, str], Totals] | None:
        batches = read_batches(stack.kafka)
        totals = total(batches)
        found = {
            marks[event.request_id].name: batch
            for batch in batches
            for event in batch.events
            if event.request_id in marks
        }
        whole = all(
            set(range(batch.sequence)) <= totals.sequences[batch.gateway]
            for batch in found.values()
        )
        if len(found) < len(marks) or not whole:
            return None
        return {name: batch.gateway for name, batch in found.items()}, totals

    return until("the marks are in the events, with all before them", 180, arrived)


def test_requests_are_in_the_events_or_the_counted_drops_while_kafka_is_killed_and_restarted(
    stack: RunningStack, texts: list[str]
) -> None:
    _, before = marked(stack)
    urls = [f"{each.url}/endpoints/{EXAMPLE_ENDPOINT}" for each in stack.gateways]
    too_many = {"inputs": ["x"] * 300}
    with Traffic(stack.ways(), texts, pause_seconds=0.05) as load:
        load.more(100)
        dead = stack.kill("kafka")
        load.more(200)
        refusals = [httpx.post(url, json=too_many, timeout=60).status_code for url in urls * 4]
        stack.until_restarted("kafka", dead)
        load.more(200)
    asked = load.statuses()
    asked[413] += len(refusals)
    assert set(refusals) == {413}
    assert load.statuses()[200] == len(load.replies)
    assert len(load.answered_ways()) == len(stack.ways())

    def accounted() -> bool:
        return read_all(stack.kafka).without(before) == asked

    try:
        until(f"the events account for {asked}", 180, accounted)
    except AssertionError as error:
        raise AssertionError(f"{error}: {read_all(stack.kafka).without(before)}") from None
    after = read_all(stack.kafka)
    assert all(not after.gaps(gateway) for gateway in after.sequences)


def test_a_killed_gateway_ends_without_farewell_and_the_others_callers_notice_nothing(
    stack: RunningStack, texts: list[str]
) -> None:
    with Traffic(stack.ways(), texts, pause_seconds=0.05) as load:
        load.more(100)
        killed, _ = marked(stack)
        dead = stack.kill("gateway-2")
        load.until("one is away", 60, lambda replies: any(r.status == 0 for r in replies))
        stack.until_restarted("gateway-2", dead)
        load.until("every way answers again", 180, answered_by_all(len(stack.ways())))
    successors, totals = marked(stack)
    assert set(load.statuses("gateway")) == {200}, load.statuses("gateway")
    # Nobody answers for one that is away, and one that has just come is not asked before it can.
    assert set(load.statuses("gateway-2")) <= {200, 0, 503}, load.statuses("gateway-2")
    assert successors["gateway"] == killed["gateway"]
    assert successors["gateway-2"] != killed["gateway-2"]
    assert killed["gateway-2"] not in totals.last, "it must not look as if it had ended in order"
