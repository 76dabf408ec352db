"""What requests a step has had, and what follows if the candidate's arm had none. Pure.

Callers stay on their arm. Of ``n`` callers with a name none is assigned to an arm of the share
``p`` with probability ``(1 - p)^n``: 60 % for 10 callers at 5 %. Such an arm never gets a request,
however long a rollout waits. The next step then begins.

Everything here follows from counts of requests, never from what was answered or how fast. So an
e-value of the next step stays one: the rule is the same for a good and a bad version. It widens an
arm and never promotes.
"""

import math
from collections.abc import Iterable

from contracts.durations import humanise
from contracts.endpoint import Arm
from contracts.model import ModelRef
from contracts.rollout import CheckResult, RolloutState, StepTraffic
from contracts.windows import CALLER_GROUPS, EndpointWindow, WindowAggregate

# An arm that should have had this number of requests and had none is empty for a reason: by chance
# that has a probability of exp(-5), less than 1 %.
EXPECTED_REQUESTS = 5.0
WAIT_OF_DEADLINE = 1 / 24  # an hour of a day


def begin_step(at: float) -> StepTraffic:
    """Of a step that begins at this unix time."""
    return StepTraffic(since=at)


def after(
    state: RolloutState,
    windows: Iterable[EndpointWindow],
    through: float,
    arm: Arm,
    *,
    longest_seconds: float,
    is_routed: bool,
) -> StepTraffic | None:
    """With the windows that start in this step and end after ``through``.

    Args:
        state: the rollout.
        windows: closed ones, in any order.
        through: event time up to which windows were counted before, unix seconds.
        arm: the candidate's in this step.
        longest_seconds: windows that span more than this came while the controller was away, and
            gateways then withhold the candidate. Stable's requests count from their end on.
        is_routed: whether callers could reach the candidate. If they could not, that it has no
            requests says nothing.
    """
    traffic = state.traffic
    new = [
        window
        for window in windows
        if window.start >= state.step_began and window.start + window.seconds > through
    ]
    if traffic is None or not new:
        return traffic
    first = min(window.start for window in new)
    last = max(float(window.start + window.seconds) for window in new)
    counted = _of(new, state.candidate, arm)
    candidate = traffic.candidate + sum(map(_attempts, counted))
    if not is_routed or last - first > longest_seconds:
        return StepTraffic(candidate=candidate, since=last)
    stable = [found.evidence for found in _of(new, state.stable, Arm.STABLE)]
    groups = {group for found in stable for group in found.group_requests}
    return traffic.model_copy(
        update={
            "candidate": candidate,
            "stable": traffic.stable + sum(found.requests for found in stable),
            "named": traffic.named + sum(sum(found.group_requests.values()) for found in stable),
            "groups": traffic.groups | sum(1 << group for group in groups),
        }
    )


def is_missed(traffic: StepTraffic) -> bool:
    """Whether callers with a name are seen in this step, and none in the candidate's arm."""
    return traffic.candidate == 0 and traffic.named > 0


def is_empty(traffic: StepTraffic, share: float, through: float, wait: float) -> bool:
    """Whether to take it that no caller is assigned to the candidate's arm.

    Args:
        traffic: of the step.
        share: of callers that the arm has, 0 to 1.
        through: event time up to which windows are counted, unix seconds.
        wait: seconds for which the arm must have been empty.

    Requests without a caller's name are spread one by one. If the arm should have had some of
    those and has none, it is not for want of callers: gateways pass the candidate over, and more
    callers would not help.
    """
    if not is_missed(traffic):
        return False
    unnamed = (traffic.stable - traffic.named) * share
    return (
        through - traffic.since >= wait
        and traffic.named * share >= EXPECTED_REQUESTS
        and unnamed < EXPECTED_REQUESTS
    )


def callers(traffic: StepTraffic) -> str:
    """How many callers with a name stable had, in words.

    By linear counting: windows tell which of 32 groups have callers (Whang, Vander-Zanden and
    Taylor, ACM Transactions on Database Systems 15, 1990).
    """
    found = estimated_callers(traffic.groups.bit_count())
    return "more than 100 callers" if math.isinf(found) else f"about {found:.0f} callers"


def estimated_callers(groups: int) -> float:
    """How many callers this number of the 32 groups probably holds; infinite if all are seen."""
    if groups >= CALLER_GROUPS:
        return math.inf
    return round(math.log1p(-groups / CALLER_GROUPS) / math.log1p(-1 / CALLER_GROUPS))


def explain_missed(traffic: StepTraffic, share: float) -> str:
    """That no caller is assigned to the candidate's arm, as a sentence."""
    if traffic.groups.bit_count() == 1:
        return f"the only caller is not assigned to the {100 * share:g} % of this step"
    return f"none of {callers(traffic)} is assigned to the {100 * share:g} % of this step"


def describe_lack(state: RolloutState, open_checks: Iterable[CheckResult], now: float) -> str:
    """What requests a step had and what its checks still need, in one line.

    Empty if the candidate had none, which is said already, or if nobody counted.
    """
    traffic, seconds = state.traffic, max(1.0, now - state.step_began)
    if traffic is None or not traffic.candidate:
        return ""
    version = state.candidate.version
    rate = traffic.candidate / seconds
    had = (
        f"this step had {_requests(traffic.candidate)} of version {version} in "
        f"{humanise(seconds)}, {_pace(rate)}"
    )
    return "; ".join((had, *(_needs(check, rate) for check in open_checks)))


def _of(windows: Iterable[EndpointWindow], ref: ModelRef, arm: Arm) -> list[WindowAggregate]:
    return [
        found
        for window in windows
        for found in window.aggregates
        if found.package == ref.package and found.arm is arm
    ]


def _attempts(counted: WindowAggregate) -> int:
    """All requests that came, also those whose callers hung up: a version may make them."""
    return max(sum(counted.statuses.values()), counted.evidence.requests)


def _needs(check: CheckResult, rate: float) -> str:
    seen = check.figures.get("candidate_requests")
    judged = "" if seen is None else f" judged {seen:,.0f} and"
    if check.needs is None:
        return f"{check.name}{judged} needs more"
    return (
        f"{check.name}{judged} needs about {check.needs:,} more, {humanise(check.needs / rate)} at "
        "this rate"
    )


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count:,} requests"


def _pace(rate: float) -> str:
    """Requests a second, in a unit that leaves at least one if there is such a one."""
    for seconds, unit in ((1.0, "a second"), (60.0, "a minute"), (3600.0, "an hour")):
        if rate * seconds >= 1:
            return f"{rate * seconds:.3g} {unit}"
    return f"{rate * 86400:.2g} a day"
