"""Every request that an endpoint answered or refused is in the events or in the counted drops."""

import time

import httpx
import pytest
from event_log import Totals, read_all
from running_stack import EXAMPLE_ENDPOINT, RunningStack, until
from traffic import Traffic

pytestmark = pytest.mark.real


# An event waits half a second at most for its message: what has not moved for so long is at rest.
REST_SECONDS = 2.0


def quiet(stack: RunningStack) -> Totals:
    """The totals once nothing has been added to them for a while."""
    last = read_all(stack.kafka)
    changed = time.monotonic()

    def settled() -> Totals | None:
        nonlocal last, changed
        now = read_all(stack.kafka)
        if (now.by_status, now.refused) != (last.by_status, last.refused):
            last, changed = now, time.monotonic()
        return now if time.monotonic() - changed > REST_SECONDS else None

    return until("the events come to rest", 30, settled)


def test_requests_are_in_the_events_or_the_counted_drops_while_kafka_is_killed_and_restarted(
    stack: RunningStack, texts: list[str]
) -> None:
    before = quiet(stack)
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
        until(f"the events account for {asked}", 60, accounted)
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
        known = set(read_all(stack.kafka).sequences)
        dead = stack.kill("gateway")
        stack.until_restarted("gateway", dead)
        load.until("answers again", 30, lambda replies: any(r.status == 200 for r in replies))
        load.more(50)

    def successor() -> Totals | None:
        totals = read_all(stack.kafka)
        return totals if set(totals.sequences) - known else None

    totals = until("the new gateway's events", 30, successor)
    assert known - totals.last, "the killed gateway must not look as if it had ended in order"
