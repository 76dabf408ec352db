"""Rollouts on the real stack, with its parts killed or away on the way.

On the stack whose windows last a second, with checks so loose that a minute decides. CI kills five
times, the soak (``make soak``, in parts) fifty.
"""

import os
import random
import signal
import time

import pytest
from rolling_stack import (
    LONG,
    SHORT,
    UNDECIDED,
    register,
    spec,
    tags,
    traffic,
    until_mlflow_answers,
    until_told,
    watched,
)
from rollout_kills import BAD, GOOD, PARTS, Killer
from running_stack import EXAMPLE_ENDPOINT, RunningStack
from soak_record import record_part
from waiting import until

from contracts.endpoint import Arm, EndpointStatus, Phase
from contracts.rollout import Outcome

pytestmark = pytest.mark.real

KILLS = 5
SOAK_PARTS = 10
SOAK_KILLS = int(os.environ.get("HEADRACE_SOAK_KILLS", "50"))
AA_SECONDS = float(os.environ.get("HEADRACE_SOAK_AA_SECONDS", "150"))
ENOUGH = "enough was seen"


def has_begun(status: EndpointStatus) -> bool:
    return status.rollout is not None


def waits_for_statistics(status: EndpointStatus) -> bool:
    reason = "" if status.candidate is None else status.candidate.reason
    return reason.startswith("waits for statistics")


def test_a_good_version_is_promoted_through_five_kills(
    rolling: RunningStack, texts: list[str]
) -> None:
    with traffic(rolling, texts) as load, watched(rolling) as watch:
        load.more(50)
        # Of this seed: controller, triton-2, gateway, loader-2, controller.
        killer = Killer(rolling, load, watch, random.Random(78))
        parts = ("controller", "controller", "triton-2", "gateway", "loader-2")
        number = killer.roll_out(GOOD, KILLS, parts)
        load.until(
            "all callers have it",
            180,
            lambda replies: [reply.version for reply in replies[-50:]] == [number] * 50,
        )
        killer.tell()
    assert killer.kills.keys() >= {"triton-2", "gateway"}, killer.kills
    phases = [line.phase for line in watch.status.history if line.version == number]
    assert phases[-2:] == [Phase.PROMOTED, Phase.SETTLED]
    assert phases.index(Phase.SHADOW) < phases.index(Phase.CANARY)


def test_a_collapsed_version_goes_back_while_mlflow_is_away_and_is_told_about_later(
    rolling: RunningStack, texts: list[str]
) -> None:
    with traffic(rolling, texts) as load, watched(rolling) as watch:
        load.more(50)
        stable = watch.status.stable
        assert stable is not None
        number = register(rolling, BAD)
        watch.until("the rollout began", 300, has_begun)
        with rolling.without("mlflow"):
            ended = watch.until_ended(number)
            load.more(50)
    assert ended.outcome is Outcome.ROLLED_BACK
    assert "classShare" in ended.reason or "outputShift" in ended.reason
    assert watch.status.stable == stable
    assert set(load.statuses()) == {200}, load.statuses()
    until_mlflow_answers(rolling)
    until_told(rolling, number, "RolledBack", stable.version)
    assert tags(rolling, number)["reason"] == ended.reason[:500]


def test_a_rollout_holds_without_statistics_goes_on_with_them_and_back_at_its_deadline(
    rolling: RunningStack, texts: list[str]
) -> None:
    with traffic(rolling, texts) as load, watched(rolling) as watch:
        load.more(50)
        rolling.apply(spec(checks=UNDECIDED))
        number = register(rolling, GOOD)
        began = watch.until("the rollout began", 300, has_begun).rollout
        assert began is not None
        with rolling.without("kafka"):
            held = watch.until("it says that it can't know", 180, waits_for_statistics)
            load.more(200)
            assert watch.status.routes == held.routes
            assert watch.status.rollout == held.rollout
        assert held.rollout is not None
        seen = held.rollout.looked_through
        watch.until(
            "new windows are judged",
            180,
            lambda status: status.rollout is not None and status.rollout.looked_through > seen + 1,
        )
    assert set(load.statuses()) == {200}, load.statuses()
    with watched(rolling) as watch:
        seconds = int(time.time() - began.began) + 5
        rolling.apply(spec(deadline=f"{seconds}s", checks=UNDECIDED))
        ended = watch.until_ended(number)
        rolling.apply(spec())
    assert ended.outcome is Outcome.ROLLED_BACK
    assert ended.reason.startswith(f"no verdict within {seconds // 60}m" if seconds >= 60 else "no")
    assert ended.promoted_at is None
    assert watch.status.stable == held.stable


# The soak, in parts that can be run one at a time (``-k``)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(1, SOAK_PARTS + 1))
def test_fifty_kills_of_all_parts_lose_nothing(
    rolling: RunningStack, texts: list[str], part: int
) -> None:
    order = random.Random(20261121 + part)
    kills = SOAK_KILLS // SOAK_PARTS
    rolling.apply(spec(LONG))
    with traffic(rolling, texts) as load, watched(rolling) as watch:
        load.more(50)
        killer = Killer(rolling, load, watch, order)
        while (left := kills - killer.kills.total()) > 0:
            killer.roll_out(
                order.choice((GOOD, GOOD, BAD)), min(left, 8), PARTS, early=order.choice((0, 1))
            )
        figures = killer.tell()
    rolling.apply(spec(SHORT))
    record_part("rollout-kills", str(part), figures)


@pytest.mark.soak
@pytest.mark.parametrize("service", ["mlflow", "kafka"])
def test_a_part_that_hangs_holds_up_no_caller(
    rolling: RunningStack, texts: list[str], service: str
) -> None:
    with traffic(rolling, texts) as load, watched(rolling) as watch:
        load.more(50)
        number = register(rolling, GOOD)
        watch.until("the rollout began", 300, has_begun)
        rolling.signal(service, signal.SIGSTOP)
        try:
            if service == "kafka":
                watch.until("it says that it can't know", 180, waits_for_statistics)
            else:
                watch.until_ended(number)
            load.more(100)
        finally:
            rolling.signal(service, signal.SIGCONT)
        assert watch.until_ended(number).outcome is Outcome.SETTLED
    assert set(load.statuses()) == {200}, load.statuses()
    until_told(rolling, number, "Promoted", number)


@pytest.mark.soak
def test_a_version_that_nobody_asks_stays_in_shadow_until_its_deadline(
    rolling: RunningStack,
) -> None:
    rolling.apply(spec(deadline="30s"))
    with watched(rolling) as watch:
        number = register(rolling, GOOD)
        held = watch.until("the rollout began", 300, has_begun)
        ended = watch.until_ended(number, 60)
        rolling.apply(spec())
    assert ended.outcome is Outcome.ROLLED_BACK
    assert ended.reason.startswith("no verdict within 30s: ")
    assert {line.phase for line in watch.status.history if line.version == number}.isdisjoint(
        {Phase.CANARY, Phase.PROMOTED, Phase.SETTLED}
    )
    assert watch.status.stable == held.stable


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(1, 4))
def test_the_same_version_again_is_not_rolled_back_at_five_percent(
    rolling: RunningStack, texts: list[str], part: int
) -> None:
    """A/A in small: the checks as they are by default, a look after every window of a second."""
    with traffic(rolling, texts) as load, watched(rolling) as watch:
        load.more(50)
        stable = register(rolling, GOOD)
        assert watch.until_ended(stable, 300).outcome is Outcome.SETTLED
        rolling.apply(spec("{weight: 5}", checks=" {}"))
        number = register(rolling, GOOD)
        began = watch.until(
            "callers are split",
            300,
            lambda status: any(route.arm is Arm.CANARY for route in status.routes),
        )
        ends = time.monotonic() + AA_SECONDS
        until("it was looked at for long", AA_SECONDS + 5, lambda: time.monotonic() > ends)
        assert began.rollout is not None
        last = watch.status
        rolling.command("rollout", "abort", EXAMPLE_ENDPOINT, "--reason", ENOUGH)
        ended = watch.until_ended(number)
        rolling.apply(spec())
    state = last.rollout or last.last_rollout
    assert state is not None
    rolled_back = "" if ENOUGH in ended.reason or ended.outcome is Outcome.SETTLED else ended.reason
    record_part(
        "identical-versions",
        str(part),
        {
            "windows_looked_at": state.looked_through - began.rollout.looked_through,
            "stable_requests": sum(point.stable_requests for point in state.series),
            "canary_requests": sum(point.candidate_requests for point in state.series),
            "checks": {check.name: check.verdict.value for check in state.checks},
            "rolled_back": rolled_back,
        },
    )
    assert not rolled_back
    assert set(load.statuses()) == {200}, load.statuses()
