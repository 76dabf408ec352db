"""Rollouts on the real stack, with its parts killed or away on the way.

The checks are so loose that a minute decides. CI kills five times, the soak (``make soak``, in
parts) fifty.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from outages import Outage, first_answer, unexcused
from rolling_stack import (
    LONG,
    UNDECIDED,
    register,
    spec,
    tags,
    traffic,
    until_mlflow_answers,
    until_told,
    watched,
)
from rollout_watch import RolloutWatch
from running_stack import EXAMPLE_ENDPOINT, RunningStack
from soak_record import record_part
from traffic import Traffic, answered_by_all
from waiting import until

from contracts.endpoint import Arm, EndpointStatus, Phase
from contracts.rollout import Outcome

pytestmark = pytest.mark.real

KILLS = 5
SOAK_PARTS = 10
SOAK_KILLS = int(os.environ.get("HEADRACE_SOAK_KILLS", "50"))
AA_SECONDS = float(os.environ.get("HEADRACE_SOAK_AA_SECONDS", "150"))
ENOUGH = "enough was seen"
GOOD, BAD = "better", "collapsed"
# The plural is all of them at once.
PARTS = (
    "controller", "controller", "loader", "loader-2", "gateway", "gateway-2", "gateways",
    "triton", "triton-2", "tritons", "fold", "kafka", "mlflow",
)  # fmt: skip


@dataclass
class Killer:
    """``kill -9`` of parts of a stack at random instants of rollouts, and what callers saw of it.

    Callers may fail only while what answers them is away: their own gateway, or every Triton, until
    the first good answer after the restart. Whatever else fails, one Triton of two among it, the
    stable version would have answered.
    """

    stack: RunningStack
    load: Traffic
    watch: RolloutWatch
    order: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    phases: Counter[str] = field(default_factory=Counter)  # of the version, when it was killed
    outages: list[Outage] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)  # version -> how it ended

    def roll_out(
        self, variant: str, kills: int, parts: Sequence[str] = PARTS, *, early: int = 1
    ) -> str:
        """Registers a version, and kills parts until it has ended or so many were killed.

        ``early`` of the kills come while the version is prepared, all others in its rollout. It
        must end as it should, after one rollout. Tritons die at most once under one version: a
        second time would be blamed on it, and rightly.

        Returns:
            The version's number.
        """
        until_mlflow_answers(self.stack)
        number = register(self.stack, variant)
        left = list(parts)
        for count in range(kills):
            if count == early:
                self.watch.until("the rollout began", 300, lambda _: number in self.watch.rollouts)
            if self._is_over(number):
                break
            part = self.order.choice(left)
            self.kill(part)
            if part.startswith("triton"):
                left = [item for item in left if not item.startswith("triton")]
        self._hold_to_its_end(number, variant)
        return number

    def kill(self, part: str) -> None:
        """Kills a part at a random instant, every other time that of a write, and lets it come."""
        self.load.more(self.order.randrange(1, 400), 300)
        if self.kills.total() % 2:
            self.watch.until_stored(10)
        where = self._phase()
        killed = time.monotonic()
        dead = {name: self.stack.kill(name) for name in self._processes(part)}
        for name, pid in dead.items():
            self.stack.until_restarted(name, pid)
        self.kills[part] += 1
        self.phases[where] += 1
        restarted = time.monotonic()
        if part.startswith(("gateway", "triton")):
            # What is killed next may be the one that answers now.
            self.stack.until_all_serve()
            everyone = answered_by_all(len(self.load.ways), restarted)
            self.load.until("all answer again", 180, everyone)
        cut_off = self._cut_off(dead)
        for gateway, dialect in {(way.gateway.name, way.dialect) for way in self.load.ways}:
            if gateway in cut_off:
                back = first_answer(self.load.replies, gateway, dialect, restarted)
                self.outages.append(Outage(killed, back, frozenset({gateway}), dialect))

    def _processes(self, part: str) -> list[str]:
        several = {
            "gateways": [each.name for each in self.stack.gateways],
            "tritons": [each.name for each in self.stack.tritons],
        }
        return several.get(part, [part])

    def _cut_off(self, dead: Collection[str]) -> list[str]:
        """The gateways whose callers nobody can answer without these processes."""
        if {each.name for each in self.stack.tritons} <= set(dead):
            return [each.name for each in self.stack.gateways]
        return [each.name for each in self.stack.gateways if each.name in dead]

    def tell(self) -> dict[str, object]:
        """Holds callers and MLflow to what must be true at the end; figures for the record."""
        failed = unexcused(self.load.replies, self.outages)
        assert not failed, (len(failed), failed[:5])
        stable = self.watch.status.stable
        assert stable is not None
        until_mlflow_answers(self.stack)
        for number, outcome in self.ends.items():
            verdict = "Promoted" if outcome == Outcome.SETTLED.value else outcome
            until_told(self.stack, number, verdict, stable.version)
        return {
            "kills": dict(sorted(self.kills.items())),
            "in_phase": dict(sorted(self.phases.items())),
            "ends": dict(Counter(self.ends.values())),
            "requests": len(self.load.replies),
            "failed_while_their_gateway_or_all_tritons_were_away": sum(
                reply.status != 200 for reply in self.load.replies
            ),
            "failed_otherwise": len(failed),
            "states_stored": self.watch.stored,
            "wrong_states": len(self.watch.faults),
        }

    def _is_over(self, number: str) -> bool:
        last = self.watch.status.last_rollout
        return last is not None and last.candidate.version == number

    def _phase(self) -> str:
        candidate = self.watch.status.candidate
        return candidate.phase.value if candidate else "none on its way"

    def _hold_to_its_end(self, number: str, variant: str) -> None:
        ended = self.watch.until_ended(number, 300)
        expected = Outcome.SETTLED if variant == GOOD else Outcome.ROLLED_BACK
        assert ended.outcome is expected, (variant, ended.outcome, ended.reason)
        assert len(self.watch.rollouts[number]) == 1, self.watch.rollouts
        rejected = [item for item in self.watch.status.rejected if item.version == number]
        assert len(rejected) == (0 if variant == GOOD else 1), rejected
        self.ends[number] = expected.value


@pytest.fixture
def rolling(stack: RunningStack) -> RunningStack:
    """The stack, with the endpoint as these tests have it, whatever was done to it before."""
    stack.apply(spec())
    return stack


def has_begun(status: EndpointStatus) -> bool:
    return status.rollout is not None


def pairs_of(stack: RunningStack) -> list[dict[str, Any]]:
    """The pairs of the last rollout's shadow; none before gateways have told them."""
    done = stack.command("label", "next", EXAMPLE_ENDPOINT, "--count", "5", "--json")
    found: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
    return found


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
    pairs = until(
        "pairs of its shadow can be labelled", 120, lambda: pairs_of(rolling), every_seconds=2
    )
    assert any(pair["text"] in texts for pair in pairs)
    told = rolling.command("label", "answer", EXAMPLE_ENDPOINT, pairs[0]["id"], "positive")
    assert told.returncode == 0, told.stderr
    shown = json.loads(rolling.command("label", "verdict", EXAMPLE_ENDPOINT, "--json").stdout)
    assert (shown["labels"], shown["not_worse"]) == (1, False)
    assert shown["pairs"] >= shown["disagree"] >= len(pairs)


# The soak, in parts that can be run one at a time (``-k``)


@pytest.mark.soak
def test_a_rollout_holds_without_statistics_goes_on_with_them_and_expires_at_its_deadline(
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
    assert ended.outcome is Outcome.EXPIRED
    assert ended.reason.startswith(f"no verdict within {seconds // 60}m" if seconds >= 60 else "no")
    assert ended.promoted_at is None
    assert watch.status.stable == held.stable


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
    assert ended.outcome is Outcome.EXPIRED
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
