"""The whole stack is stopped and started, or a part killed, and each time everything is counted.

Everything: what the gateways published, by the ends of Kafka's topics, is in windows, and the
exporter has read these. CI restarts five times; the soak (``make soak``) restarts fifty times and
kills every part that counts fifty times, on one home.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from counting_check import CountingCheck
from event_log import read_all
from running_stack import EXAMPLE_ENDPOINT, RunningStack, running_stack
from soak_record import record
from traffic import Reply, Traffic
from waiting import until

pytestmark = pytest.mark.real

RESTARTS = 2
SOAK_TIMES = int(os.environ.get("HEADRACE_SOAK_TIMES", "50"))
SEED = 20261122
RESTART = "restart"
PARTS = ("kafka", "fold", "stats", "controller", "loader")
HANG_SECONDS = 180.0
COUNTED_WITHIN_SECONDS = 30.0  # of Kafka's first answer, on a machine that has the time


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


def strike(stack: RunningStack, what: str, order: random.Random) -> None:
    """A restart of all, or a kill of one process of a part, until it is started anew."""
    if what == RESTART:
        stack.restart()
        return
    running = stack.record()
    assert running is not None
    replicas = [name for name in sorted(running.services) if name.partition("-")[0] == what]
    service = order.choice(replicas)
    stack.until_restarted(service, stack.kill(service))


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


def test_after_each_of_two_restarts_everything_that_was_published_is_counted(
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


@pytest.mark.soak
@pytest.mark.timeout(14_400)
def test_fifty_restarts_and_fifty_kills_of_each_part_leave_nothing_uncounted(
    tmp_path: Path, texts: list[str]
) -> None:
    order = random.Random(SEED)
    strikes = [RESTART, *PARTS] * SOAK_TIMES
    order.shuffle(strikes)
    took: dict[str, list[float]] = {what: [] for what in (RESTART, *PARTS)}
    with running_stack(tmp_path / "home", gateways=2, tritons=2) as stack:
        stack.until_answers(EXAMPLE_ENDPOINT)
        counted = CountingCheck(stack.kafka, stack.stats)
        with traffic(stack, texts) as load:
            for what in strikes:
                until_answered(stack, load, order.randrange(5, 60))
                strike(stack, what, order)
                took[what].append(counted.until_counted(HANG_SECONDS))
        asked = load.statuses()
        hold_to_account(stack, asked, Counter())
        counted.until_counted(HANG_SECONDS)
        said = recounted(stack, 0.0)
        assert stack.stop() == 0
    figures: dict[str, object] = {
        "seed": SEED,
        "strikes": {what: len(seconds) for what, seconds in took.items()},
        "requests": asked.total(),
        "by_status": {str(status): count for status, count in sorted(asked.items())},
        "seconds_until_counted": {
            what: {"median": round(sorted(s)[len(s) // 2], 1), "longest": round(max(s), 1)}
            for what, s in took.items()
        },
        "recount_agrees": not said,
    }
    record("restarts", figures)
    assert not said
    assert max(max(seconds) for seconds in took.values()) < COUNTED_WITHIN_SECONDS, figures
