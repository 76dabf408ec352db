"""The rollouts as Prometheus sees them: weights, phase, verdict of each check.

Everything is read from the stored endpoints at that moment, so that a controller that was just
started says the same as the one before. An endpoint that is gone has no series. It never decides
and never writes.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from contracts import metrics
from contracts.endpoint import ModelEndpoint, Phase
from contracts.rollout import RolloutState, Verdict
from contracts.status_events import identify_line
from service.families import Labels, numbers

log = logging.getLogger(__name__)

_VERDICTS = {Verdict.FAIL: -1.0, Verdict.UNKNOWN: 0.0, Verdict.PASS: 1.0}
_Numbers = Iterator[tuple[Labels, float]]


class RolloutCollector(Collector):
    """The collector; ``endpoints`` gives all that are stored now."""

    def __init__(self, endpoints: Callable[[], Sequence[ModelEndpoint]]) -> None:
        self._endpoints = endpoints
        self._transitions: TransitionCounts | None = None
        self._read_endpoints()

    def collect(self) -> Iterable[Family]:
        """All families as they are now; none while the endpoints can't be read."""
        endpoints = self._read_endpoints()
        if endpoints is None or self._transitions is None:
            return
        self._transitions.see(endpoints)
        yield numbers(metrics.ROUTE_WEIGHT, _weights(endpoints))
        yield numbers(metrics.ENDPOINT_STABLE, _stable(endpoints))
        yield numbers(metrics.ROLLOUT_PHASE, _phases(endpoints))
        yield numbers(metrics.ROLLOUT_STEP, _steps(endpoints))
        yield numbers(metrics.ROLLOUT_PAUSED, _collect_paused(endpoints))
        yield from _collect_waiting(endpoints)
        yield numbers(metrics.CHECK_VERDICT, _verdicts(endpoints))
        yield numbers(metrics.ROLLOUT_TRANSITIONS, self._transitions.counts(endpoints))

    def _read_endpoints(self) -> Sequence[ModelEndpoint] | None:
        """The endpoints; what they went through before the first look is not counted."""
        try:
            endpoints = self._endpoints()
        except OSError as error:
            log.warning("the endpoints can't be read for their metrics: %s", error)
            return None
        if self._transitions is None:
            self._transitions = TransitionCounts(endpoints)
        return endpoints


class TransitionCounts:
    """How often each phase was entered since the start; from the history, which has a bound.

    Between two looks a history may take in as many transitions as it holds, and none is missed.
    """

    def __init__(self, endpoints: Iterable[ModelEndpoint]) -> None:
        self._seen = {one.name: _phases_by_line(one).keys() for one in endpoints}
        self._counts: dict[tuple[str, Phase], int] = {}

    def see(self, endpoints: Iterable[ModelEndpoint]) -> None:
        """Counts what is new."""
        for one in endpoints:
            lines = _phases_by_line(one)
            for line in lines.keys() - self._seen.get(one.name, frozenset()):
                key = (one.name, lines[line])
                self._counts[key] = self._counts.get(key, 0) + 1
            self._seen[one.name] = lines.keys()

    def counts(self, endpoints: Iterable[ModelEndpoint]) -> _Numbers:
        """One number for each endpoint and phase, from 0."""
        for one in endpoints:
            for phase in Phase:
                yield (one.name, phase.value), self._counts.get((one.name, phase), 0)


def _phases_by_line(endpoint: ModelEndpoint) -> dict[tuple[object, ...], Phase]:
    return {identify_line(line): line.phase for line in endpoint.status.history}


def _weights(endpoints: Iterable[ModelEndpoint]) -> _Numbers:
    for one in endpoints:
        sums: dict[tuple[str, str], float] = {}  # two packages of one version may share an arm
        for route in one.status.routes:
            key = (route.ref.version, route.arm.value)
            sums[key] = sums.get(key, 0.0) + route.weight / 100
        for (version, arm), weight in sums.items():
            yield (one.name, version, arm), weight


def _stable(endpoints: Iterable[ModelEndpoint]) -> _Numbers:
    for one in endpoints:
        yield (one.name,), float(one.status.stable is not None)


def _phases(endpoints: Iterable[ModelEndpoint]) -> _Numbers:
    for one in endpoints:
        newest = _newest(one)
        if newest is None:
            continue
        version, current = newest
        for phase in Phase:
            yield (one.name, version, phase.value), float(phase is current)


def _newest(endpoint: ModelEndpoint) -> tuple[str, Phase] | None:
    """The version that is on its way, or the stable one; none before the first was seen."""
    status = endpoint.status
    if status.candidate is not None:
        return status.candidate.version, status.candidate.phase
    if status.stable is not None:
        return status.stable.version, Phase.SERVING
    return None


def _rollouts(endpoints: Iterable[ModelEndpoint]) -> Iterator[tuple[str, RolloutState]]:
    for one in endpoints:
        if one.status.rollout is not None:
            yield one.name, one.status.rollout


def _steps(endpoints: Iterable[ModelEndpoint]) -> _Numbers:
    for name, state in _rollouts(endpoints):
        yield (name, state.candidate.version), state.step


def _collect_paused(endpoints: Iterable[ModelEndpoint]) -> _Numbers:
    for name, state in _rollouts(endpoints):
        yield (name, state.candidate.version), float(state.paused_at is not None)


def _collect_waiting(endpoints: Iterable[ModelEndpoint]) -> Iterator[Family]:
    """Of rollouts that wait for a verdict: neither a person nor the bake has stopped the clock."""
    found: list[tuple[Labels, RolloutState, float]] = []
    for one in endpoints:
        state = one.status.rollout
        if state is None or state.passed_at is not None:
            continue
        if state.paused_at is None and state.promoted_at is None:
            deadline = state.began + state.paused_seconds + one.spec.rollout.deadline
            found.append(((one.name, state.candidate.version), state, deadline))
    yield numbers(metrics.ROLLOUT_BEGAN, ((labels, state.began) for labels, state, _ in found))
    yield numbers(metrics.ROLLOUT_DEADLINE, ((labels, deadline) for labels, _, deadline in found))
    judged = ((labels, max(state.began, state.looked_through)) for labels, state, _ in found)
    yield numbers(metrics.ROLLOUT_JUDGED, judged)
    counted = (
        (labels, state.traffic.candidate) for labels, state, _ in found if state.traffic is not None
    )
    yield numbers(metrics.ROLLOUT_REQUESTS, counted)


def _verdicts(endpoints: Iterable[ModelEndpoint]) -> _Numbers:
    """Of the rollout that goes on, or of the last one: why a version was rolled back stays seen."""
    for one in endpoints:
        state = one.status.rollout or one.status.last_rollout
        if state is None:
            continue
        for check in state.checks:
            yield (one.name, state.candidate.version, check.name), _VERDICTS[check.verdict]
