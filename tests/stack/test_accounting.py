"""Every request that an endpoint answered or refused is in the events or in the counted drops."""

import uuid

import httpx
import pytest
from event_log import Totals, read_all, read_batches, total
from running_stack import EXAMPLE_ENDPOINT, RunningStack, until
from traffic import Traffic

pytestmark = pytest.mark.real


def marked(stack: RunningStack) -> tuple[str, Totals]:
    """Which gateway runs, and the totals with one more request, which is behind all before it."""
    url = f"{stack.gateway}/endpoints/{EXAMPLE_ENDPOINT}"
    mark = uuid.uuid4().hex
    answer = httpx.post(url, json={"inputs": "mark"}, headers={"x-request-id": mark}, timeout=30)
    assert answer.status_code == 200, answer.text

    def arrived() -> tuple[str, Totals] | None:
        batches = read_batches(stack.kafka)
        for batch in batches:
            if any(event.request_id == mark for event in batch.events):
                totals = total(batches)
                whole = set(range(batch.sequence)) <= totals.sequences[batch.gateway]
                return (batch.gateway, totals) if whole else None
        return None

    return until("the mark is in the events, with all before it", 180, arrived)


def test_requests_are_in_the_events_or_the_counted_drops_while_kafka_is_killed_and_restarted(
    stack: RunningStack, texts: list[str]
) -> None:
    _, before = marked(stack)
    url = f"{stack.gateway}/endpoints/{EXAMPLE_ENDPOINT}"
    too_many = {"inputs": ["x"] * 300}
    with Traffic(url, texts) as load:
        load.more(100)
        dead = stack.kill("kafka")
        load.more(200)
        refusals = [httpx.post(url, json=too_many).status_code for _ in range(7)]
        stack.until_restarted("kafka", dead)
        load.more(200)
    asked = load.statuses()
    asked[413] += 7
    assert refusals == [413] * 7
    assert load.statuses()[200] == len(load.replies)

    def accounted() -> bool:
        return read_all(stack.kafka).without(before) == asked

    try:
        until(f"the events account for {asked}", 180, accounted)
    except AssertionError as error:
        raise AssertionError(f"{error}: {read_all(stack.kafka).without(before)}") from None
    after = read_all(stack.kafka)
    assert all(not after.gaps(gateway) for gateway in after.sequences)


def test_a_killed_gateways_loss_shows_as_an_end_without_farewell(
    stack: RunningStack, texts: list[str]
) -> None:
    url = f"{stack.gateway}/endpoints/{EXAMPLE_ENDPOINT}"
    with Traffic(url, texts) as load:
        load.more(100)
        killed, _ = marked(stack)
        dead = stack.kill("gateway")
        stack.until_restarted("gateway", dead)
        load.until("answers again", 180, lambda replies: any(r.status == 200 for r in replies))
        load.more(50)
    successor, totals = marked(stack)
    assert successor != killed
    assert killed not in totals.last, "it must not look as if it had ended in order"
