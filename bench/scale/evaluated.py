"""An evaluate process of a run: real but for Kafka, and one of as many as the endpoints need.

``python -P -m bench.scale.evaluated FOLDER ENDPOINTS ROLLOUTS SECONDS STORE`` prints one JSON. All
endpoints have traffic, those of the other shards too, which this one reads and leaves.
"""

import json
import logging
import math
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from bench.scale.population import Population, refs_of, store_url
from bench.scale.traffic import SECONDS, SimulatedTraffic
from contracts.endpoint import ModelEndpoint
from service.families import FamilyCollector
from stats.evaluation.calibration_store import NoCalibrationStore
from stats.evaluation.drift import DriftSettings
from stats.evaluation.evaluation import Evaluation, Pace
from stats.evaluation.evaluator import Evaluator
from stats.evaluation.references import StoredReferences
from stats.evaluation.sharding import Shard
from stats.evaluation.totals import Most
from stats.reading.endpoints import opened

ENDPOINTS_OF_A_SHARD = 125
HISTORY_WINDOWS = 60
_SCRAPE_SECONDS = 5.0


def run(folder: Path, population: Population, seconds: float, place: str) -> dict[str, Any]:
    """Evaluates for so long; the figures."""
    shard = Shard(0, math.ceil(population.endpoints / ENDPOINTS_OF_A_SHARD))
    traffic = SimulatedTraffic(
        refs_of(folder, population, range(population.endpoints)), HISTORY_WINDOWS
    )
    asked = opened(place if "://" in place else f"{place}/endpoints", os.environ)

    def endpoints() -> tuple[ModelEndpoint, ...]:
        found = tuple(asked())
        traffic.canaries = frozenset(each.name for each in found if each.status.rollout is not None)
        return found

    references = StoredReferences(store_url(folder))
    evaluator = Evaluator(
        Evaluation(
            references, DriftSettings(), Pace(), most=Most(versions=2 * ENDPOINTS_OF_A_SHARD)
        ),
        lambda _: traffic,
        traffic,
        endpoints,
        NoCalibrationStore(),
        false_alarm_seconds=DriftSettings().false_alarm_seconds,
        shard=shard,
    )
    registry = CollectorRegistry()
    registry.register(FamilyCollector(evaluator.families))
    broken = threading.Event()
    references.start()
    evaluator.start(on_fault=broken.set)
    scrapes: list[float] = []
    behind: list[float] = []
    body = b""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not broken.wait(_SCRAPE_SECONDS):
        began = time.monotonic()
        body = generate_latest(registry)
        scrapes.append(time.monotonic() - began)
        behind.append(time.time() - evaluator.board().through)
    used = resource.getrusage(resource.RUSAGE_SELF)
    board = evaluator.board()
    evaluator.close()
    references.close()
    if broken.is_set():
        raise RuntimeError("evaluate broke; its log says why")
    late = behind[len(behind) // 2 :]  # when the past is read
    return {
        "shards": shard.of,
        "endpoints": len(board.endpoints()),
        "versions_in_drift": sum(len(board.of(name).drift) for name in board.endpoints()),
        "series": sum(not line.startswith(b"#") for line in body.splitlines()),
        "overflow": sum(evaluator.counters()["overflow"].values()),
        "cpu_share": (used.ru_utime + used.ru_stime) / seconds,
        "memory_megabytes": used.ru_maxrss / 1024,
        "scrape_seconds_median": sorted(scrapes)[len(scrapes) // 2],
        "behind_seconds_max": max(late) - SECONDS,
    }


def main() -> None:
    """Runs, and prints the figures as JSON."""
    logging.disable(logging.WARNING)  # of packages without a tokeniser, each by itself
    folder, endpoints, rollouts, seconds, place = sys.argv[1:]
    population = Population(int(endpoints), int(rollouts))
    print(json.dumps(run(Path(folder), population, float(seconds), place)))


if __name__ == "__main__":
    main()
