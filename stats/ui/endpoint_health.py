"""An endpoint's health in a few words, the most urgent first. Pure."""

from collections.abc import Iterable

from contracts.endpoint import Arm, Candidate, EndpointStatus, Phase
from contracts.rollout import LOST, Outcome, RolloutState
from stats.evaluation.board import VersionDrift
from stats.ui import rollout_view
from stats.ui.document import Tone

EndpointHealth = tuple[Tone, str]

_AT_REST = frozenset(
    {
        Phase.SERVING,
        Phase.SETTLED,
        Phase.PROMOTED,
        Phase.ROLLED_BACK,
        Phase.REJECTED,
        Phase.SUPERSEDED,
        Phase.EXPIRED,
    }
)


def endpoint_health(status: EndpointStatus, drift: Iterable[VersionDrift]) -> EndpointHealth:
    """How much attention an endpoint asks for, and why."""
    changed = [item.statistic for found in drift for item in found.statistics if item.alarm]
    if changed:
        named = ", ".join(dict.fromkeys(_words(name) for name in changed))
        return Tone.BAD, f"texts or answers changed: {named}"
    candidate = status.candidate
    if candidate is not None and candidate.phase is Phase.BLOCKED:
        return Tone.WARN, f"version {candidate.version} is blocked"
    if status.rollout is not None:
        return rollout_view.tone(status.rollout), _on_its_way(status, status.rollout)
    if candidate is not None and candidate.phase not in _AT_REST:
        return Tone.BUSY, f"version {candidate.version}: {candidate.phase.value.lower()}"
    stable = status.stable
    return _judge_unserved(candidate) if stable is None else _at_rest(status, stable.version)


def _words(statistic: str) -> str:
    """A statistic's name as words; one that a user named stays as it is."""
    own = statistic.startswith("own:")
    return statistic.removeprefix("own:") if own else statistic.replace("_", " ")


def _on_its_way(status: EndpointStatus, rollout: RolloutState) -> str:
    version = rollout.candidate.version
    mine = next((route for route in status.routes if route.ref == rollout.candidate), None)
    if rollout.promoted_at is not None:
        words = f"version {version} is promoted, and watched"
    elif mine is None:
        words = f"version {version} waits"
    elif mine.arm is Arm.SHADOW:
        words = f"version {version} in shadow"
    else:
        words = f"version {version} at {mine.weight:g} %"
    return words if rollout.paused_at is None else f"{words}, paused"


def _judge_unserved(candidate: Candidate | None) -> EndpointHealth:
    if candidate is None:
        return Tone.IDLE, "waits for a version"
    return Tone.BAD, f"version {candidate.version} was rejected, nothing serves"


def _at_rest(status: EndpointStatus, stable: str) -> EndpointHealth:
    serving = f"serving version {stable}"
    last = status.history[-1] if status.history else None
    if last is not None and last.phase is Phase.REJECTED:
        return Tone.WARN, f"{serving}; version {last.version} was rejected"
    ended = status.last_rollout
    if ended is not None and ended.outcome in LOST:
        return Tone.WARN, f"{serving}; version {ended.candidate.version} was rolled back"
    if ended is not None and ended.outcome is Outcome.EXPIRED:
        return Tone.WARN, f"{serving}; version {ended.candidate.version} expired without a verdict"
    if status.asleep is not None:
        return Tone.QUIET, f"version {stable} is asleep, and comes back with the next caller"
    return Tone.QUIET, serving
