"""The statistics of requests and answers, with the fixed edges that make any two of them add.

A statistic's edges are part of the contract: reference profiles, windows and dashboards of any two
gateways, versions or days can be added and compared only because the edges never differ.
"""

import math
from dataclasses import dataclass
from enum import StrEnum


class Statistic(StrEnum):
    """What is counted for each text."""

    TOKENS = "tokens"
    WORDS = "words"
    UNK_TOKENS = "unk_tokens"
    UNK_SHARE = "unk_share"
    TOKENS_PER_WORD = "tokens_per_word"
    SCORE = "score"
    VECTOR_NORM = "vector_norm"
    NON_ZEROS = "non_zeros"
    GENERATED_TOKENS = "generated_tokens"


class LatencyStage(StrEnum):
    """The stages of an attempt whose latency is recorded."""

    QUEUE = "queue"
    TOKENISE = "tokenise"
    WAIT = "wait"
    INFER = "infer"
    TOTAL = "total"


@dataclass(frozen=True)
class Edges:
    """Upper edges of a histogram's buckets, inclusive; a last bucket to infinity is implied."""

    upper: tuple[float, ...]
    unit: str

    def __post_init__(self) -> None:
        """Refuses edges that do not grow."""
        if not self.upper or any(a >= b for a, b in zip(self.upper, self.upper[1:], strict=False)):
            raise ValueError("edges must be non-empty and strictly increasing")


def _log_edges(low: float, high: float, ratio: float) -> tuple[float, ...]:
    steps = math.ceil(math.log(high / low) / math.log(ratio))
    return tuple(float(f"{low * ratio**i:.6g}") for i in range(steps + 1))


_COUNTS = (0.0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 4096)

EDGES: dict[Statistic, Edges] = {
    Statistic.TOKENS: Edges(_COUNTS, "tokens"),
    Statistic.WORDS: Edges(_COUNTS, "words"),
    Statistic.UNK_TOKENS: Edges(_COUNTS, "tokens"),
    Statistic.UNK_SHARE: Edges(
        (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0), "ratio"
    ),
    Statistic.TOKENS_PER_WORD: Edges(
        (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0), "ratio"
    ),
    Statistic.SCORE: Edges(tuple(i / 20 for i in range(1, 21)), "ratio"),
    Statistic.VECTOR_NORM: Edges(_log_edges(0.01, 1000.0, 1.5), "ratio"),
    Statistic.NON_ZEROS: Edges(_COUNTS, "weights"),
    Statistic.GENERATED_TOKENS: Edges(_COUNTS, "tokens"),
}

# A ratio of 1.05 between edges keeps any quantile within 5 % of its true value.
LATENCY_EDGES = Edges(_log_edges(0.0001, 60.0, 1.05), "seconds")
