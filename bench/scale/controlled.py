"""The controller of a run, in a process of its own: real but for MLflow, Kafka and conversions.

``python -P -m bench.scale.controlled FOLDER ENDPOINTS ROLLOUTS SECONDS STORE`` prints one JSON.
"""

import asyncio
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY

from bench.scale.population import (
    INDEX_KEYS,
    Population,
    SimulatedRegistry,
    refs_of,
    store_url,
)
from bench.scale.traffic import SECONDS, SimulatedTraffic, deciding_windows
from contracts.endpoint import ModelEndpoint
from controller.rollouts import JoinedRollouts, PackageProfiles
from registry.conversions.index import ConversionIndex
from registry.conversions.messages import ConversionRequest, Failed, Progress
from registry.conversions.running import ConversionJobs
from registry.mlflow.projection import EvidenceOf
from registry.mlflow.watch import SourceWatch
from registry.mlflow.write_back import WriteBack
from registry.packages.store import PackageStore
from registry.reconcile.controller import Controller, ControllerOptions
from registry.reconcile.heartbeats import HeartbeatWriter
from registry.stores import opening
from registry.stores.endpoints import EndpointStore
from rollout.judge import Judge
from stats.reading.reader import WindowsReader

HISTORY_WINDOWS = 60


class MeteredEndpoints:
    """An endpoint store that notes what is written, and who has a canary."""

    def __init__(self, store: EndpointStore, traffic: SimulatedTraffic) -> None:
        self._store = store
        self._traffic = traffic
        self._lock = threading.Lock()
        self.bytes = self.writes = self.largest = 0
        self.unreadable: frozenset[str] = frozenset()

    def list(self) -> tuple[ModelEndpoint, ...]:
        """See ``EndpointStore``."""
        return self._store.list()

    def get(self, name: str) -> ModelEndpoint | None:
        """See ``EndpointStore``."""
        return self._store.get(name)

    def put(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        """See ``EndpointStore``."""
        written = self._store.put(endpoint)
        size = len(written.model_dump_json(by_alias=True))
        with self._lock:
            self.bytes += size
            self.writes += 1
            self.largest = max(self.largest, size)
            if endpoint.status.rollout is not None:
                self._traffic.canaries |= {endpoint.name}
            else:
                self._traffic.canaries -= {endpoint.name}
        return written

    def delete(self, name: str) -> None:
        """See ``EndpointStore``."""
        self._store.delete(name)


class NoConversions:
    """A launcher that is never needed."""

    async def run(
        self,
        request: ConversionRequest,
        progress: Callable[[Progress], None],
        *,
        python_path: tuple[Path, ...] = (),
    ) -> Failed:
        """See ``ConversionLauncher``."""
        del progress, python_path
        return Failed(reason=f"{request.model} should be converted already", by_version=False)


async def run(folder: Path, population: Population, seconds: float, place: str) -> dict[str, Any]:
    """Reconciles for so long; the figures."""
    store = PackageStore(store_url(folder))
    # All that roll out, and four times as many, have traffic.
    active = range(min(population.endpoints, 5 * population.rollouts))
    refs = refs_of(folder, population, active)
    traffic = SimulatedTraffic(refs, HISTORY_WINDOWS)
    statistics = WindowsReader(lambda _: traffic, traffic)
    rollouts = JoinedRollouts(Judge(PackageProfiles(store)), statistics)
    changed, stop = asyncio.Event(), asyncio.Event()
    registry = SimulatedRegistry(population.models)

    async def render(evidence: EvidenceOf) -> Mapping[str, bytes]:
        return await asyncio.to_thread(rollouts.evidence, evidence.endpoint, evidence.state)

    endpoints = MeteredEndpoints(opening.endpoints(_of(place, "endpoints"), os.environ), traffic)
    source = SourceWatch(
        registry, WriteBack(registry, registry, render), poll_seconds=1.0, changed=changed
    )
    controller = Controller(
        ControllerOptions(tracking_uri="", store_url=store_url(folder)),
        endpoints=endpoints,
        source=source,
        index=ConversionIndex(store_url(folder), store, INDEX_KEYS),
        reports=opening.reports(_of(place, "reports"), os.environ, costs=False),
        jobs=ConversionJobs(NoConversions(), most=1, changed=changed),
        rollouts=rollouts,
        changed=changed,
    )
    ends: list[float] = []
    began = time.monotonic()

    def passed() -> None:
        ends.append(time.monotonic() - began)

    statistics.start()
    heartbeat = HeartbeatWriter(opening.heartbeats(_of(place, "endpoints"), os.environ))
    running = asyncio.create_task(controller.run(stop, heartbeat, after_pass=passed))
    await asyncio.sleep(seconds)
    stop.set()
    await running
    statistics.close()
    reconciles = {
        what: REGISTRY.get_sample_value(f"headrace_registry_reconcile_seconds_{what}") or 0.0
        for what in ("count", "sum")
    }
    used = resource.getrusage(resource.RUSAGE_SELF)
    between = sorted(b - a for a, b in pairwise(ends))
    name = population.rolling[0]
    windows = deciding_windows(population.spec(0).rollout, *refs[name])
    return {
        # When the window that decides is over, by endpoint.
        "decided_at": {name: start + windows * SECONDS for name, start in traffic.first.items()},
        "deciding_windows": windows,
        "first_pass_seconds": ends[0] if ends else None,
        "passes": len(ends),
        "pass_seconds_median": between[len(between) // 2] if between else None,
        "pass_seconds_p99": between[int(len(between) * 0.99)] if between else None,
        "cpu_share": (used.ru_utime + used.ru_stime) / seconds,
        "memory_megabytes": used.ru_maxrss / 1024,
        "reconciles_a_second": reconciles["count"] / seconds,
        "reconcile_seconds_mean": reconciles["sum"] / max(1.0, reconciles["count"]),
        "status_writes": endpoints.writes,
        "status_bytes_a_second": endpoints.bytes / seconds,
        "largest_status_bytes": endpoints.largest,
        "mlflow_calls_a_second": registry.calls / seconds,
    }


def _of(place: str, what: str) -> str:
    return place if "://" in place else f"{place}/{what}"


def main() -> None:
    """Runs, and prints the figures as JSON."""
    folder, endpoints, rollouts, seconds, place = sys.argv[1:]
    population = Population(int(endpoints), int(rollouts))
    figures = asyncio.run(run(Path(folder), population, float(seconds), place))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
