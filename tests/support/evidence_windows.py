"""Windows of a rollout, made by hand or by a seeded generator."""

from collections.abc import Callable
from typing import Any

import numpy as np

from contracts.endpoint import Arm
from contracts.model import ModelRef
from contracts.rollout import CheckResult, Checks
from contracts.windows import EndpointWindow, EvidenceCounts, Sparse, WindowAggregate
from rollout.evidence import ComparisonStage, Evidence

NEW = ModelRef(model="Sentiment", version="2", package="b" * 64)
OLD = ModelRef(model="Sentiment", version="1", package="a" * 64)


def only(**checks: Any) -> Checks:
    """These checks alone."""
    return Checks(**{**dict.fromkeys(Checks.model_fields), "statistics": (), **checks})


def answered(positive: int, negative: int, *, errors: int = 0) -> EvidenceCounts:
    """A window of a classifier."""
    labels = {"negative": negative, "positive": positive}
    return EvidenceCounts(
        requests=positive + negative + errors,
        errors=errors,
        labels={label: count for label, count in labels.items() if count},
    )


def timed(buckets: Sparse, tokens: int = 64) -> EvidenceCounts:
    """A window of attempts that took so long."""
    return EvidenceCounts(requests=sum(buckets.values()), latency={tokens: buckets})


def drawn(
    random: np.random.Generator,
    requests: int,
    *,
    errors: float = 0.01,
    positive: float = 0.5,
    slower: float = 1.0,
) -> EvidenceCounts:
    """A window of independent requests. ``slower``: factor on all latencies."""
    latency: dict[int, Sparse] = {}
    for tokens, count in zip((16, 64), random.multinomial(requests, (0.4, 0.6)), strict=True):
        seconds = np.exp(random.normal(0.0, 0.4, count)) * slower * tokens / 4000
        buckets = np.clip(np.log(seconds / 0.0001) / np.log(1.05), 0, 270).astype(int)
        values, counts = np.unique(buckets, return_counts=True)
        latency[tokens] = dict(zip(values.tolist(), counts.tolist(), strict=True))
    good = int(random.binomial(requests, positive))
    return EvidenceCounts(
        requests=requests,
        errors=int(random.binomial(requests, errors)),
        latency=latency,
        labels={"negative": requests - good, "positive": good},
    )


def begun(checks: Checks, history: Callable[[], EvidenceCounts], windows: int = 40) -> Evidence:
    """Evidence of a canary at a tenth, after so many windows of stable alone."""
    evidence = Evidence.begin(checks, 0.05, ("a", "b"), ComparisonStage.CANARY)
    for _ in range(windows):
        evidence = evidence.with_history(history())
    return evidence.with_share(0.1)


def result_of(evidence: Evidence) -> CheckResult:
    """What it says of its only check."""
    (result,) = evidence.results()
    return result


def aggregate(of: ModelRef, arm: Arm, start: int, evidence: EvidenceCounts) -> WindowAggregate:
    """What is counted of one arm, with nothing but the evidence."""
    return WindowAggregate("sentiment", of.version, of.package, arm, start, evidence=evidence)


def window(start: int, *aggregates: WindowAggregate, seconds: int = 10) -> EndpointWindow:
    """A window of these arms."""
    return EndpointWindow("sentiment", start, seconds, list(aggregates))
