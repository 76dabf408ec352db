"""A synthetic board for the page: windows of traffic and drift, without a stack.

Everything follows from a seed and a time, so that two runs draw the same picture.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from contracts.endpoint import (
    Arm,
)
from contracts.events import StatisticSpec
from contracts.model import ModelRef
from contracts.statistics import EDGES, LATENCY_EDGES, Edges, LatencyStage, Statistic
from contracts.windows import (
    MICRO,
    EvidenceCounts,
    OwnCounts,
    Sparse,
    UnkWordCounts,
    WindowAggregate,
)
from measures.trust import Trust
from stats.evaluation.board import (
    Accuracy,
    Board,
    DriftPoint,
    DriftReference,
    EndpointBoard,
    Monitor,
    Origin,
    Series,
    StatisticDrift,
    VersionDrift,
    Window,
)

WINDOW = 10
Level = Literal[0, 1, 2]


@dataclass(frozen=True)
class Traffic:
    """What one version gets in one arm.

    Attributes:
        begin: seconds before now.
        end: seconds before now.
    """

    version: str
    arm: Arm
    rate: float = 40.0
    begin: float = 1200.0
    end: float = 0.0
    errors: float = 0.002
    slow: float = 1.0
    unk: float = 0.01
    changed_from: float = 0.0  # seconds before now since when texts are other ones
    labels: Mapping[str, float] = field(
        default_factory=lambda: {"negative": 0.42, "positive": 0.58}
    )
    embedding: bool = False
    own: bool = False  # statistics of the users' own, and the words that became UNK


def ref(version: str, model: str = "sentiment") -> ModelRef:
    package = hashlib.sha256(f"{model}/{version}".encode()).hexdigest()
    return ModelRef(model=model, version=version, package=package)


def aggregate(
    endpoint: str, traffic: Traffic, start: int, rng: np.random.Generator, *, changed: bool = False
) -> WindowAggregate:
    """One window of one version in one arm."""
    rhythm = 1 + 0.25 * np.sin(start / 240)
    requests = int(rng.poisson(traffic.rate * WINDOW * rhythm))
    errors = int(rng.binomial(requests, traffic.errors))
    texts = requests - errors
    words = np.clip(rng.lognormal(3.4 if changed else 2.6, 0.6, texts), 1, 300).round()
    tokens_per_word = np.clip(rng.normal(1.9 if changed else 1.25, 0.12, texts), 1, 8)
    tokens = np.ceil(words * tokens_per_word) + 2
    unk = rng.binomial(tokens.astype(int), min(1.0, traffic.unk * (8 if changed else 1)))
    total = rng.lognormal(-4.6, 0.35, texts) * traffic.slow * (1 + tokens / 120)
    total = np.where(rng.random(texts) < 0.01, total * 6, total)
    samples: dict[Statistic, NDArray[Any]] = {
        Statistic.TOKENS: tokens,
        Statistic.WORDS: words,
        Statistic.UNK_TOKENS: unk,
        Statistic.UNK_SHARE: unk / tokens,
        Statistic.TOKENS_PER_WORD: tokens_per_word,
    }
    labels: dict[str, int] = {}
    scores: dict[str, Sparse] = {}
    if traffic.embedding:
        samples[Statistic.VECTOR_NORM] = rng.lognormal(0.7, 0.2, texts)
    else:
        shares = np.array(list(traffic.labels.values()))
        counts = rng.multinomial(texts, shares / shares.sum())
        for label, count in zip(traffic.labels, counts.tolist(), strict=True):
            if count:
                labels[label] = count
                values = 1 - rng.beta(1.2, 3.0 if changed else 7.0, count) * 0.5
                scores[label] = sparse(values, EDGES[Statistic.SCORE])
    known = int(rng.binomial(texts, 0.2))
    right = int(rng.binomial(known, 0.86))
    names = list(labels)
    feedback = {names[0]: {names[0]: right, names[-1]: known - right}} if len(names) > 1 else {}
    stages = {
        LatencyStage.TOKENISE: 0.04,
        LatencyStage.WAIT: 0.25,
        LatencyStage.INFER: 0.68,
        LatencyStage.QUEUE: 0.03,
    }
    latency = {stage.value: total * share for stage, share in stages.items()} | {"total": total}
    statuses = {200: texts, 504: errors}
    return WindowAggregate(
        endpoint=endpoint,
        version=traffic.version,
        package=ref(traffic.version).package,
        arm=traffic.arm,
        start=start,
        statuses={status: count for status, count in statuses.items() if count},
        answered=texts,
        texts=texts,
        truncated=int((tokens > 128).sum()),
        histograms={name.value: sparse(values, EDGES[name]) for name, values in samples.items()},
        sums={name.value: int(values.sum() * MICRO) for name, values in samples.items()},
        latency={stage: sparse(values, LATENCY_EDGES) for stage, values in latency.items()},
        latency_sums={stage: int(values.sum() * MICRO) for stage, values in latency.items()},
        labels=labels,
        label_scores=scores,
        own=own(texts, rng) if traffic.own else [],
        undeclared={"colour": 3} if traffic.own else {},
        unk_words=UnkWordCounts(int(unk.sum()), {"übergrößenträger": 5, "😀": 3}, 1)
        if traffic.own
        else UnkWordCounts(),
        feedback={} if traffic.arm is Arm.SHADOW else feedback,
        evidence=EvidenceCounts(
            requests=requests,
            pairs=texts if traffic.arm is Arm.SHADOW else 0,
            pairs_equal=int(texts * 0.97) if traffic.arm is Arm.SHADOW else 0,
        ),
    )


def own(texts: int, rng: np.random.Generator) -> list[OwnCounts]:
    """One statistic of each kind that users can declare."""
    edges = Edges((1.0, 2, 3, 5, 8), "sentences")
    sentences = {str(k): n for k, n in sparse(rng.poisson(2.5, texts), edges).items()}
    languages = rng.multinomial(texts, [0.8, 0.15, 0.05]).tolist()
    names = ["en", "de", "fr"]
    return [
        OwnCounts(StatisticSpec("sentences", "histogram", list(edges.upper)), sentences),
        OwnCounts(
            StatisticSpec("language", "category", [], names),
            dict(zip(names, languages, strict=True)),
            unfit=1,
        ),
        OwnCounts(StatisticSpec("links", "counter"), {}, 3 * texts * MICRO),
    ]


def sparse(values: NDArray[Any], edges: Edges) -> Sparse:
    """Values as counts of buckets."""
    buckets = np.searchsorted(edges.upper, values, side="left")
    found, counts = np.unique(buckets, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def series(endpoint: str, traffic: Traffic, now: float, seed: int = 0) -> Series:
    """One arm's windows."""
    rng = np.random.default_rng([seed, *endpoint.encode(), *traffic.version.encode()])
    first = int((now - traffic.begin) // WINDOW) * WINDOW
    last = int((now - traffic.end) // WINDOW) * WINDOW - WINDOW
    windows = []
    for start in range(first, last, WINDOW):
        changed = bool(traffic.changed_from) and start >= now - traffic.changed_from
        made = aggregate(endpoint, traffic, start, rng, changed=changed)
        windows.append(Window.of(made, WINDOW))
    package = ref(traffic.version).package
    return Series(endpoint, traffic.version, package, traffic.arm, tuple(windows), ())


DRIFTING = {"tokens": 0.6, "words": 0.7, "unk_tokens": 0.5, "unk_share": 0.4,
            "tokens_per_word": 0.8, "score": 0.5, "labels": 0.45, "truncated": 0.2}  # fmt: skip


def drift(
    version: str,
    now: float,
    *,
    factor: Mapping[str, float] | None = None,
    calibration: float = 1.0,
    kind: Literal["profile", "traffic", "none"] = "profile",
) -> VersionDrift:
    """A version's drift; ``factor`` says how far beyond quiet a statistic is."""
    factor = factor or {}
    found = []
    for name, base in sorted(DRIFTING.items()):
        ratio = base * factor.get(name, 1.0)
        psi = 0.02 * ratio**1.5
        level: Level = 0 if ratio < 1 or psi < 0.1 else 1 if psi < 0.2 else 2
        rng = np.random.default_rng([7, *name.encode()])
        history = tuple(
            DriftPoint(
                at=now - 1200 + 60 * i,
                psi=psi * (0.2 + 0.8 * min(1, i / 18)),
                ratio=float(
                    (base if i < 8 else base + (ratio - base) * min(1, (i - 8) / 8))
                    * rng.uniform(0.85, 1.1)
                ),
            )
            for i in range(20)
        )
        bins = (*(f"<= {edge}" for edge in (4, 8, 16, 32, 64, 128)), "> 128")
        base_shares = np.array([0.05, 0.15, 0.3, 0.25, 0.15, 0.07, 0.03])
        now_shares = np.roll(base_shares, 1 if ratio > 2 else 0)
        found.append(
            StatisticDrift(
                statistic=name,
                monitors=tuple(
                    Monitor(weight, psi * share, 30.0 * ratio * share, 30.0, calibration >= 1)
                    for weight, share in ((1.0, 0.7), (0.2, 1.0), (0.05, 0.9), (0.01, 0.6))
                ),
                level=level,
                bins=bins,
                reference=tuple(base_shares.tolist()),
                now=tuple(now_shares.tolist()),
                history=history,
            )
        )
    return VersionDrift(
        version=version,
        package=ref(version).package,
        reference=DriftReference(kind, 2000, "evaluation texts of the run"),
        calibration=calibration,
        at=now - 12,
        texts=2400,
        statistics=tuple(found),
    )


def board(
    known: Mapping[str, Sequence[Traffic]],
    now: float,
    *,
    drifts: Mapping[str, Sequence[VersionDrift]] | None = None,
    seed: int = 0,
) -> Board:
    """A board of endpoints with traffic."""
    drifts = drifts or {}
    made = {}
    for name, parts in known.items():
        versions = dict.fromkeys(part.version for part in parts)
        made[name] = EndpointBoard(
            name=name,
            series=tuple(series(name, part, now, seed) for part in parts),
            drift=tuple(drifts.get(name, [drift(version, now) for version in versions])),
            accuracy=tuple(
                Accuracy(
                    part.version,
                    part.arm,
                    0.883,
                    41_000,
                    0.861,
                    8_200,
                    mean_score=0.883,
                    trust=Trust.HELD,
                    low=0.871,
                    high=0.895,
                )
                for part in parts
                if part.arm is not Arm.SHADOW
            ),
            origins=tuple(
                Origin(
                    version=version,
                    package=ref(version).package,
                    model="sentiment",
                    run_id=hashlib.md5(version.encode()).hexdigest(),
                    data_sets=("reviews-2026-09",),
                    precision="int8",
                )
                for version in versions
            ),
            refusals={"503 overloaded": 12, "429 rate": 3},
        )
    return Board(now, now - 1500, now - 8, connected=True, by_endpoint=made)
