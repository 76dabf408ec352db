"""The controller of a run, in a process of its own: real but for MLflow and conversions.

``python -P -m scale.controlled FOLDER POPULATION SECONDS STORE KAFKA`` prints one JSON.
"""

import asyncio
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY

from contracts.endpoint import ModelEndpoint
from contracts.rollout import RolloutSpec, RolloutState
from contracts.windows import EndpointWindow
from controller.rollouts import JoinedRollouts, PackageProfiles
from registry.conversions.index import ConversionIndex
from registry.conversions.messages import ConversionFailure, ConversionProgress, ConversionRequest
from registry.conversions.running import ConversionJobs
from registry.mlflow.projection import ShownRollout
from registry.mlflow.watch import SourceWatch
from registry.mlflow.workspaces import WorkspaceWatches
from registry.mlflow.write_back import WriteBack
from registry.packages.store import PackageStore
from registry.reconcile.controller import Controller, ControllerOptions
from registry.reconcile.heartbeats import HeartbeatWriter
from registry.stores import opening
from registry.stores.endpoints import EndpointStore
from registry.stores.whole_endpoints import WholeEndpoints
from rollout.gates import list_failing
from rollout.judge import WindowsJudge
from scale.memory import most_resident_megabytes
from scale.population import (
    INDEX_KEYS,
    Population,
    SimulatedRegistry,
    refs_of,
    store_url,
)
from service.kafka import KafkaAddress
from stats.reading.published import KafkaEventLogEnds
from stats.reading.reader import WindowsReader
from stats.reading.record_log import KafkaRecordLog

_THREADS = 32  # as ``controller/main.py`` has


class NotingJudge(WindowsJudge):
    """Notes the first window with which a candidate had to go.

    A late look judges several windows at once: the first of them that fails is found by itself, so
    that lateness counts.

    Attributes:
        decided: package of the candidate -> the end of that window, unix seconds.
        looked: package of the candidate -> when that was found, unix seconds.
        judged: package of the candidate -> how many windows it took.
    """

    def __init__(self, profiles: PackageProfiles) -> None:
        super().__init__(profiles)
        self.__dict__["decided"] = {}
        self.__dict__["looked"] = {}
        self.__dict__["judged"] = {}

    def look(
        self, spec: RolloutSpec, state: RolloutState, windows: Sequence[EndpointWindow]
    ) -> RolloutState:
        """See ``WindowsJudge``."""
        looked = super().look(spec, state, windows)
        package = looked.candidate.package
        if list_failing(looked):
            self.__dict__["looked"].setdefault(package, time.time())
        new = sorted(
            (each for each in windows if each.start + each.seconds > state.looked_through),
            key=lambda each: each.start,
        )
        decided: dict[str, float] = self.__dict__["decided"]
        judged: dict[str, int] = self.__dict__["judged"]
        if package not in decided and list_failing(looked) and len(new) == 1:
            judged[package] = judged.get(package, 0) + 1
            decided[package] = new[0].start + new[0].seconds
        elif package not in decided and list_failing(looked):
            one = state
            for window in new:
                judged[package] = judged.get(package, 0) + 1
                one = super().look(spec, one, [window])
                if list_failing(one):
                    decided[package] = window.start + window.seconds
                    break
        elif package not in decided:
            judged[package] = judged.get(package, 0) + len(new)
        return looked


class MeteredEndpoints:
    """A store of summaries that notes what is written: all of it goes to every gateway."""

    def __init__(self, store: EndpointStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.bytes = self.writes = self.largest = 0
        self.back: dict[str, float] = {}  # when a rollout's end was written, unix seconds
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
            if endpoint.status.last_rollout is not None:
                self.back.setdefault(endpoint.name, time.time())
            self.bytes += size
            self.writes += 1
            self.largest = max(self.largest, size)
        return written

    def delete(self, name: str) -> None:
        """See ``EndpointStore``."""
        self._store.delete(name)

    def tell_refused(self) -> None:
        """See ``EndpointStore``."""
        self._store.tell_refused()


class NoConversions:
    """A launcher that is never needed."""

    async def run(
        self,
        request: ConversionRequest,
        progress: Callable[[ConversionProgress], None],
        *,
        python_path: tuple[Path, ...] = (),
    ) -> ConversionFailure:
        """See ``ConversionLauncher``."""
        del progress, python_path
        return ConversionFailure(
            reason=f"{request.model} should be converted already", by_version=False
        )


async def run(
    folder: Path, population: Population, seconds: float, place: str, broker: str
) -> dict[str, Any]:
    """Reconciles for so long; the figures."""
    store = PackageStore(store_url(folder))
    kafka = KafkaAddress.of(broker)
    statistics = WindowsReader(lambda: KafkaRecordLog(kafka, None), KafkaEventLogEnds(kafka))
    judge = NotingJudge(PackageProfiles(store))
    rollouts = JoinedRollouts(judge, statistics)
    changed, stop = asyncio.Event(), asyncio.Event()
    registry = SimulatedRegistry(population.models)

    async def render(evidence: ShownRollout) -> Mapping[str, bytes]:
        return await asyncio.to_thread(rollouts.evidence, evidence.endpoint, evidence.state)

    metered = MeteredEndpoints(opening.endpoints(place, os.environ))
    endpoints = WholeEndpoints(metered, opening.records(place, os.environ))
    source = SourceWatch(
        registry, WriteBack(registry, registry, render), poll_seconds=1.0, changed=changed
    )
    controller = Controller(
        ControllerOptions(tracking_uri="", store_url=store_url(folder)),
        endpoints=endpoints,
        source=WorkspaceWatches({"": source}),
        index=ConversionIndex(store_url(folder), store, INDEX_KEYS),
        reports=opening.reports(place, os.environ, costs=False),
        jobs=ConversionJobs(NoConversions(), most=1, changed=changed),
        rollouts=rollouts,
        changed=changed,
    )
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS))
    ends: list[float] = []
    began = time.monotonic()

    def passed() -> None:
        ends.append(time.monotonic() - began)

    statistics.start()
    heartbeat = HeartbeatWriter(opening.heartbeats(place, os.environ))
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
    rolling = refs_of(folder, population, range(len(population.rolling)))
    decided: dict[str, float] = judge.__dict__["decided"]
    looked: dict[str, float] = judge.__dict__["looked"]
    return {
        # When that was found, and when the rollout's end was written, likewise.
        "looked_at": {
            name: looked[candidate.package]
            for name, (_, candidate) in rolling.items()
            if candidate.package in looked
        },
        "written_at": metered.back,
        # When the window that decides is over, by endpoint.
        "decided_at": {
            name: decided[candidate.package]
            for name, (_, candidate) in rolling.items()
            if candidate.package in decided
        },
        "unfinished": _unfinished(metered, population),
        "deciding_windows": max(judge.__dict__["judged"].values(), default=None),
        "first_pass_seconds": ends[0] if ends else None,
        "passes": len(ends),
        "pass_seconds_median": between[len(between) // 2] if between else None,
        "pass_seconds_p99": between[int(len(between) * 0.99)] if between else None,
        "cpu_share": (used.ru_utime + used.ru_stime) / seconds,
        "memory_megabytes": most_resident_megabytes(),
        "reconciles_a_second": reconciles["count"] / seconds,
        "reconcile_seconds_mean": reconciles["sum"] / max(1.0, reconciles["count"]),
        "status_writes": metered.writes,
        "status_bytes_a_second": metered.bytes / seconds,
        "largest_status_bytes": metered.largest,
        "mlflow_calls_a_second": registry.calls / seconds,
    }


def _unfinished(endpoints: EndpointStore, population: Population) -> dict[str, int]:
    """Why versions are still on their way, and how many."""
    found: dict[str, int] = {}
    for name in population.rolling:
        endpoint = endpoints.get(name)
        if endpoint is None or endpoint.status.last_rollout is not None:
            continue
        candidate = endpoint.status.candidate
        why = f"{candidate.phase.value}: {candidate.reason}" if candidate else "no candidate"
        found[why] = found.get(why, 0) + 1
    return found


def main() -> None:
    """Runs, and prints the figures as JSON."""
    folder, population, seconds, place, broker = sys.argv[1:]
    asked = Population(**json.loads(population))
    figures = asyncio.run(run(Path(folder), asked, float(seconds), place, broker))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
