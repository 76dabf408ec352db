"""Vectors that change are found from events on: two gateways' cells, folded, merged and told."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from prediction_batches import record_of
from registry_fakes import endpoint, manifest, ref

from contracts import metrics
from contracts.endpoint import Arm, EndpointStatus, Route
from contracts.events import EventBatch, Latency, PredictionEvent, TextRecord, decode, encode
from measures.counting import CountingStatus
from measures.losses import MessageLosses
from preprocess.directions import cells_of
from stats.evaluation.drift import DriftSettings
from stats.evaluation.evaluation import Evaluation, WindowTiming
from stats.evaluation.exposition import ExpositionSnapshot, RoleHealth, families
from stats.evaluation.references import StoredPackage

STEP = 900  # seconds of a window; few, so that days are quick
REQUESTS, TEXTS, DIMENSION = 24, 16, 32
MONDAY = 4 * 86_400
PACKAGE = ref("1", "a")
ROUTES = EndpointStatus(routes=(Route(arm=Arm.STABLE, ref=PACKAGE, weight=100),))
DRIFT = DriftSettings(window_seconds=STEP, window_texts=100, calibration_seconds=6000)


class Shelf:
    """Knows every package."""

    def of(self, package: str) -> StoredPackage:
        return StoredPackage(manifest())


def vectors_at(rng: np.random.Generator, at: int, other: float) -> NDArray[np.float32]:
    """Of one request. By night they lie elsewhere; a part are others, in one direction."""
    found = rng.normal(size=(TEXTS, DIMENSION))
    found[:, 0] += 1 + np.cos(2 * np.pi * (at % 86_400) / 86_400)
    found[rng.random(TEXTS) < other, 1:4] += 3
    return found.astype(np.float32)


def batch(rng: np.random.Generator, gateway: str, number: int, at: int, other: float) -> EventBatch:
    text = TextRecord(9, 7, 0, truncated=False, norm=1.0)
    events = [
        PredictionEvent(
            f"{gateway}-{at}-{request}",
            at + request * STEP / REQUESTS,
            "e",
            PACKAGE.version,
            PACKAGE.package,
            Arm.STABLE,
            200,
            answered=True,
            latency=Latency(0.0, 0.001, 0.001, 0.01, 0.02),
            texts=[text] * TEXTS,
            vectors=cells_of(vectors_at(rng, at, other)),
        )
        for request in range(REQUESTS // 2)
    ]
    return decode(encode(EventBatch(gateway, number, events)))


def levels(
    one: Evaluation, other: float, *, first: int, windows: int
) -> Iterator[dict[str, float]]:
    """Level of drift by statistic after each window, as Prometheus reads it."""
    rng = np.random.default_rng(first + 1)
    for number in range(first, first + windows):
        at = MONDAY + number * STEP
        now = float(at + STEP + 10)
        for partition, gateway in enumerate(("one", "two")):
            made = [batch(rng, gateway, number, at, other)]
            told = record_of(
                made, partition=partition, start=64 * number, through=now, seconds=STEP
            )
            one.take([told], now)
        one.begin(now)
        board = one.look([endpoint(ROUTES)], now, connected=True)
        exposed = ExpositionSnapshot(
            totals=one.totals,
            arms=one.arms(now),
            refusals={},
            board=board,
            health=RoleHealth(),
            counting=CountingStatus(),
            false_alarm_seconds=86_400.0,
            lost=MessageLosses(),
        )
        yield {
            sample.labels["statistic"]: sample.value
            for family in families(exposed)
            for sample in family.samples
            if sample.name == metrics.DRIFT_LEVEL.name
        }


@pytest.mark.slow
def test_vectors_that_change_are_told_to_prometheus_and_a_rhythm_of_the_day_is_not() -> None:
    one = Evaluation(Shelf(), DRIFT, WindowTiming())
    day = 86_400 // STEP
    quiet = [found.get("vectors", 0) for found in levels(one, 0.0, first=0, windows=3 * day)]
    assert max(quiet) == 0
    (*_, last) = levels(one, 0.4, first=3 * day, windows=8)
    assert last["vectors"] >= 1
    assert last["week:vector_norm"] == last["week:tokens"] == 0
