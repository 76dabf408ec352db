"""Window records as fold workers would write them, made up in memory as time goes by.

Every partition has a record for each window, with all endpoints that have traffic in it. The
candidates of rollouts fail every request.
"""

import threading
import time
from collections.abc import Sequence

from contracts.endpoint import Arm
from contracts.model import ModelRef
from contracts.rollout import RolloutSpec, RolloutState, Verdict
from contracts.windows import (
    EndpointWindow,
    EvidenceCounts,
    WindowAggregate,
    WindowRecord,
    encode,
)
from measures.merging import merged
from rollout.judge import Judge
from stats.reading.published import Ends
from stats.reading.record_log import Progress

TOPIC_ID = "made-up"
PARTITIONS = 6
SECONDS = 2  # of a window: a fifth of production's, so that a run is short
_MESSAGES = 64  # of a range
_LABELS = {"no": 12, "yes": 8}
_LATENCY = dict.fromkeys(range(90, 100), 2)


class SimulatedTraffic:
    """Requests of endpoints, of both arms where a version is rolled out.

    ``shares`` are the refs of stable and candidate by endpoint. One thread reads it, others change
    ``canaries``: the endpoints whose candidates have callers.
    """

    def __init__(self, refs: dict[str, tuple[ModelRef, ModelRef]], history_windows: int) -> None:
        self.canaries: frozenset[str] = frozenset()
        self.first: dict[str, int] = {}  # start of the first window of an endpoint's candidate
        self._refs = refs
        self._lock = threading.Lock()
        self._window = int(time.time()) // SECONDS - history_windows
        self._offset = 0

    def poll(self, seconds: float) -> Sequence[bytes]:
        """See ``RecordLog``: the records of the next window that is over."""
        with self._lock:
            start = self._window * SECONDS
        if start + SECONDS > time.time():
            time.sleep(min(seconds, 0.1))
            return []
        made = [encode(self._record(number, start)) for number in range(PARTITIONS)]
        with self._lock:
            self._window += 1
            self._offset += _MESSAGES
        return made

    def whole(self) -> bool:
        """See ``RecordLog``."""
        with self._lock:
            return self._window * SECONDS + 2 * SECONDS > time.time()

    def progress(self) -> Progress:
        """See ``WindowLog``: so many records of each partition were read."""
        with self._lock:
            read = self._offset // _MESSAGES
        return Progress(TOPIC_ID, dict.fromkeys(range(PARTITIONS), read), lag=0)

    def ends(self) -> Ends:
        """See ``Published``."""
        with self._lock:
            return Ends(TOPIC_ID, dict.fromkeys(range(PARTITIONS), self._offset))

    def close(self) -> None:
        """See ``RecordLog``."""

    def _record(self, partition: int, start: int) -> WindowRecord:
        aggregates = []
        for name, (stable, candidate) in self._refs.items():
            aggregates.append(_aggregate(name, stable, Arm.STABLE, start, 0))
            if name in self.canaries:
                self.first.setdefault(name, start)
                aggregates.append(_aggregate(name, candidate, Arm.CANARY, start, 20))
        return WindowRecord(
            topic_id=TOPIC_ID,
            partition=partition,
            start=self._offset,
            end=self._offset + _MESSAGES,
            newest=start + SECONDS - 0.1,
            events=len(aggregates) * 20,
            through=time.time(),
            aggregates=aggregates,
            window_seconds=SECONDS,
        )


def deciding_windows(spec: RolloutSpec, stable: ModelRef, candidate: ModelRef) -> int:
    """How many windows of a candidate's it takes to roll it back."""
    judge, history = Judge(), 60
    state = RolloutState(id="", candidate=candidate, stable=stable, began=0, step_began=0)
    past = [_window((stable, Arm.STABLE, 0), start=number) for number in range(history)]
    state = judge.begin(spec, state, past)
    for number in range(1, history):
        both = ((stable, Arm.STABLE, 0), (candidate, Arm.CANARY, 20))
        state = judge.look(spec, state, [_window(*both, start=history + number)])
        if any(check.gate and check.verdict is Verdict.FAIL for check in state.checks):
            return number
    raise RuntimeError("the candidate is never rolled back")


def _window(*arms: tuple[ModelRef, Arm, int], start: int) -> EndpointWindow:
    parts = [
        merged([_aggregate("", ref, arm, start * SECONDS, errors)] * PARTITIONS)
        for ref, arm, errors in arms
    ]
    return EndpointWindow("", start * SECONDS, SECONDS, parts)


def _aggregate(name: str, ref: ModelRef, arm: Arm, start: int, errors: int) -> WindowAggregate:
    return WindowAggregate(
        endpoint=name,
        version=ref.version,
        package=ref.package,
        arm=arm,
        start=start,
        statuses={200: 20 - errors, 500: errors},
        answered=20 - errors,
        texts=20,
        latency={"total": dict(_LATENCY)},
        labels=dict(_LABELS),
        histograms={"tokens": dict(_LATENCY), "score": dict(_LATENCY)},
        evidence=EvidenceCounts(
            requests=20,
            errors=errors,
            latency={16: dict(_LATENCY)} if not errors else {},
            labels=dict(_LABELS) if not errors else {},
            unnamed=20,
        ),
    )
