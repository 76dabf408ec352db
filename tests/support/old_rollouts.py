"""Rollouts that have gone on for two hours: their windows, and an endpoint's status after them."""

from collections.abc import Callable

import numpy as np
from rollout_walk import MemoryStatistics

from contracts.endpoint import Arm, ModelEndpoint
from contracts.model import ModelRef
from contracts.windows import CALLER_STRIDE, EndpointWindow, EvidenceCounts, WindowAggregate
from controller.rollouts import JoinedRollouts
from registry.reconcile.rollouts import Surroundings
from rollout.judge import WindowsJudge

WINDOW_SECONDS = 10
WINDOWS = 720  # of a rollout of two hours
HISTORY = 30  # windows of the stable version before it
SECONDS = (HISTORY + WINDOWS) * WINDOW_SECONDS
_LOOK_WINDOWS = 30  # between two looks of the controller


def age(
    current: ModelEndpoint,
    refs: tuple[ModelRef, ModelRef],
    began: int,
    *,
    labels: tuple[str, ...],
    store: Callable[[ModelEndpoint], ModelEndpoint] = lambda each: each,
    seed: int = 0,
) -> ModelEndpoint:
    """The endpoint after two hours in which its candidate was as good as its stable version.

    Args:
        current: with a candidate that is loaded.
        refs: of the stable version and the candidate.
        began: of the first window, unix seconds.
        labels: that both versions answer.
        store: takes each status, and returns the endpoint as it is stored.
        seed: of what callers ask.
    """
    stable, candidate = refs
    rng, statistics = np.random.default_rng(seed), MemoryStatistics()
    rollouts = JoinedRollouts(WindowsJudge(), statistics)
    around = Surroundings(frozenset(refs), {}, candidate.version)
    for number in range(HISTORY + WINDOWS):
        start = began + number * WINDOW_SECONDS
        arms = [(stable, Arm.STABLE, 300), (candidate, Arm.CANARY, 100)][: 1 + (number >= HISTORY)]
        aggregates = [
            WindowAggregate(
                current.name, of.version, of.package, arm, start,
                evidence=_evidence(rng, labels, requests),
            )
            for of, arm, requests in arms
        ]  # fmt: skip
        statistics.known.append(EndpointWindow(current.name, start, WINDOW_SECONDS, aggregates))
        if number < HISTORY - 1 or number % _LOOK_WINDOWS:
            continue
        current = store(rollouts.advance(current, around, float(start + WINDOW_SECONDS)))
        statistics.known.clear()
    return current


def _evidence(rng: np.random.Generator, labels: tuple[str, ...], requests: int) -> EvidenceCounts:
    who, answered = rng.integers(0, 60, requests), rng.integers(0, len(labels), requests)
    took, failed = 45 + rng.integers(0, 60, requests), rng.random(requests) < 0.01
    return EvidenceCounts(
        requests=requests,
        errors=int(failed.sum()),
        latency={16: _counted(took)},
        caller_latency={16: _counted(who * CALLER_STRIDE + took)},
        caller_requests=_counted(who),
        caller_errors=_counted(who[failed]),
        labels={labels[at]: n for at, n in _counted(answered).items()},
        group_requests=_counted(who % 32),
        group_errors=_counted(who[failed] % 32),
        group_labels={label: _counted(who[answered == at] % 32) for at, label in enumerate(labels)},
    )


def _counted(keys: np.ndarray) -> dict[int, int]:
    found, numbers = np.unique(keys, return_counts=True)
    return dict(zip(found.tolist(), numbers.tolist(), strict=True))
