"""The whole stack is stopped and started, and each time everything is counted.

Everything: what the gateways published, by the ends of Kafka's topics, is in windows, and the
exporter has read these. ``make chaos`` does the same after random kills of every part, for hours.
"""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from counting_check import CountingCheck
from event_log import read_all
from running_stack import RunningStack
from traffic import Reply, Traffic
from waiting import until

pytestmark = pytest.mark.real

RESTARTS = 5
HANG_SECONDS = 180.0


def traffic(stack: RunningStack, texts: list[str]) -> Traffic:
    """A few callers at every gateway, who go on asking while nobody answers."""
    return Traffic(stack.ways(), texts, callers=6, pause_seconds=0.1)


def until_answered(stack: RunningStack, load: Traffic, count: int) -> None:
    """Waits until every gateway has given so many further answers."""
    names = {gateway.name for gateway in stack.gateways}

    def enough(replies: Sequence[Reply]) -> bool:
        given = Counter(reply.gateway for reply in replies if reply.status == 200)
        return all(given[name] >= count for name in names)

    load.until("answers of every gateway", HANG_SECONDS, enough)


def hold_to_account(stack: RunningStack, asked: "Counter[int]", before: "Counter[int]") -> None:
    """Every answer that callers got is in the events, or counted as dropped."""

    def accounted() -> bool:
        totals = read_all(stack.kafka)
        sent = totals.by_status + totals.dropped
        return sent[200] - before[200] >= asked[200]

    until(f"the events account for {asked}", HANG_SECONDS, accounted)


def recounted(stack: RunningStack, since: float) -> str:
    """What ``headrace recount`` says of everything published since then, where it refuses."""
    begin = datetime.fromtimestamp(since, UTC).isoformat()
    done = stack.command("recount", "--from", begin, "--to", "now")
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_after_each_of_five_restarts_everything_that_was_published_is_counted(
    stack: RunningStack, texts: list[str]
) -> None:
    counted, began = CountingCheck(stack.kafka, stack.stats), time.time()
    earlier = read_all(stack.kafka)
    with traffic(stack, texts) as load:
        for _ in range(RESTARTS):
            until_answered(stack, load, 10)
            stack.restart()
            until_answered(stack, load, 10)
            counted.until_counted(HANG_SECONDS)
    asked = load.statuses()
    hold_to_account(stack, asked, earlier.by_status + earlier.dropped)
    counted.until_counted(HANG_SECONDS)
    assert not recounted(stack, began)
