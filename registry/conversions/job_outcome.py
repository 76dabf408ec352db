"""What a conversion's Job, pod and log say of it. Pure.

The result is the termination message of the container that converts, which nobody else can write.
The log is for people: progress, and the last line of one that ended without a result.
What the version caused by itself, such as needing more memory than its limit, is its fault. What
the cluster did, such as taking the node away, is not, and is tried again. An end without a result
and without such a limit may be either: it blames nobody, and is tried again a few times.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from contracts.endpoint import Phase
from registry.conversions.messages import (
    ConversionFailure,
    ConversionProgress,
    PublishedPackage,
    progress_of,
    result_of,
)

Object = Mapping[str, Any]

_SIGTERM, _SIGKILL = 143, 137
_MOST_REASON = 500


@dataclass(frozen=True, slots=True)
class ConversionLimits:
    """The limits of a conversion, for sentences, and the name of its container."""

    memory: str
    timeout_seconds: float
    container: str = ""


@dataclass(frozen=True, slots=True)
class PendingPod:
    """Nothing has run yet, and why."""

    reason: str


JobState = ConversionProgress | PublishedPackage | ConversionFailure | PendingPod


def state_of(job: Object, pod: Object | None, log: str, limits: ConversionLimits) -> JobState:
    """How a conversion is now."""
    status = _part(pod, "status")
    ended = _find_terminated(status, limits.container)
    result = result_of(str(ended.get("message") or ""))
    if result is not None:
        return result
    progress, last_line = _parse_log(log.splitlines())
    if pod is None or _part(pod, "metadata").get("deletionTimestamp"):
        return _without_pod(job, limits) or PendingPod("its pod is not there yet")
    phase = status.get("phase")
    if phase in {"Failed", "Succeeded"}:
        return _explain_end(status, ended, last_line, limits)
    if phase == "Pending":
        return PendingPod(_why_pending(status))
    return progress or ConversionProgress(phase=Phase.CONVERTING, message="runs")


def _parse_log(lines: Iterable[str]) -> tuple[ConversionProgress | None, str]:
    """The last progress, and the last line that is none."""
    progress, last_line = None, ""
    for line in lines:
        if message := progress_of(line):
            progress = message
        else:
            last_line = line.strip() or last_line
    return progress, last_line


def _without_pod(job: Object, limits: ConversionLimits) -> ConversionFailure | None:
    """What the Job itself says, if its pod can't be asked."""
    for condition in _part(job, "status").get("conditions") or ():
        if condition.get("type") != "Failed" or condition.get("status") != "True":
            continue
        if condition.get("reason") == "DeadlineExceeded":
            return _explain_timeout(limits)
        reason_text = condition.get("message") or condition.get("reason") or "no reason was given"
        return ConversionFailure(
            reason=f"its conversion was ended by the cluster: {reason_text}", by_version=False
        )
    return None


def _explain_end(
    status: Object, ended: Object, last_line: str, limits: ConversionLimits
) -> ConversionFailure:
    """A pod that ended without a result."""
    reason, message = str(status.get("reason", "")), str(status.get("message", ""))
    code = int(ended.get("exitCode", 0))
    if reason == "DeadlineExceeded":
        return _explain_timeout(limits)
    if ended.get("reason") == "OOMKilled":
        most = f"its limit of {limits.memory}" if limits.memory else "there was"
        reason_text = f"its conversion needed more memory than {most} and was ended"
        # The kernel says the same of a node whose memory is full.
        return ConversionFailure(reason=reason_text, by_version=False, crashed=True)
    if reason == "Evicted" and "exceeds the" in message:  # its own limit of disk
        reason_text = f"its conversion used more than it may: {message}"
        return ConversionFailure(reason=reason_text[:_MOST_REASON], by_version=True)
    if reason or _is_disrupted(status) or code == _SIGTERM:
        reason_text = message or reason or "the node is drained, or made room for another pod"
        return ConversionFailure(
            reason=f"its conversion was ended by the cluster: {reason_text}"[:_MOST_REASON],
            by_version=False,
        )
    if code == 0:  # it writes its result before it ends so
        reason_text = "its conversion ended and left no result"
        return ConversionFailure(reason=reason_text, by_version=False, crashed=True)
    how = f"ended with status {code}"
    if code == _SIGKILL:
        how = "was killed, most likely because the machine ran out of memory"
    reason_text = f"its conversion {how}: {last_line or 'it said nothing'}"
    return ConversionFailure(reason=reason_text[:_MOST_REASON], by_version=False, crashed=True)


def _explain_timeout(limits: ConversionLimits) -> ConversionFailure:
    reason = f"its conversion took more than {limits.timeout_seconds:g} s"
    return ConversionFailure(reason=reason, by_version=False, crashed=True)


def _why_pending(status: Object) -> str:
    """What keeps a pod from starting, in the cluster's words."""
    for container in status.get("containerStatuses") or ():
        waiting = _part(_part(container, "state"), "waiting")
        if waiting.get("message") or waiting.get("reason"):
            return f"{waiting.get('reason', '')} {waiting.get('message', '')}".strip()
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"no node takes it: {condition.get('message', '')}"
    return "its pod starts"


def _is_disrupted(status: Object) -> bool:
    return any(
        condition.get("type") == "DisruptionTarget" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def _find_terminated(status: Object, name: str) -> Object:
    """How the container that converts has ended; a cluster may have put others beside it."""
    for container in status.get("containerStatuses") or ():
        if container.get("name", name) == name:
            return _part(_part(container, "state"), "terminated")
    return {}


def _part(item: Object | None, name: str) -> Object:
    part: Object = (item or {}).get(name) or {}
    return part
