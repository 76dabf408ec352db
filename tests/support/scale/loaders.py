"""Loaders whose Tritons hold all of their pool: the real reporter, and what it writes."""

import json
import time
from collections.abc import Mapping
from typing import Any

from contracts.loading import LoaderReport
from contracts.model import ModelRef
from registry.loading.reporter import Reporter
from registry.stores import opening
from scale.population import TENANTS, Population, loaded

_HEARTBEAT_SECONDS = 2.0


class Loader:
    """A loader, as coroutines of this process."""

    def __init__(
        self,
        flag: str,
        environment: Mapping[str, str],
        number: int,
        population: Population,
        refs: Mapping[tuple[str, str], ModelRef],
    ) -> None:
        self._name = f"triton-{number}"
        reports = opening.reports(flag, environment)
        self.metered = _ReportMeter(reports)
        self._reporter = Reporter(reports, self._name, _HEARTBEAT_SECONDS, time.time)
        self._pool = population.pool(number % population.pools * TENANTS // population.pools)
        held = population.packages(self._pool, refs)
        self._loaded = tuple(loaded(ref, number + at) for at, ref in enumerate(held))
        self._number = number

    async def report(self) -> None:
        """Reports what it holds."""
        await self._reporter.report(await self._look())

    async def _look(self) -> LoaderReport:
        return LoaderReport(
            loader=self._name,
            triton_grpc=f"10.0.{self._number // 250}.{self._number % 250}:8001",
            at=time.time(),
            ready=True,
            loaded=self._loaded,
            pool=self._pool,
        )

    async def run(self) -> None:
        """Heartbeats until it is cancelled."""
        await self._reporter.run(self._look)


class _ReportMeter:
    """Counts what a loader's reports cost: bytes of the objects that are written."""

    def __init__(self, reports: Any) -> None:
        self.bytes = self.largest = 0
        client = reports._client
        for name in ("create", "merge"):
            setattr(client, name, self._counted(getattr(client, name)))

    def _counted(self, call: Any) -> Any:
        def counting(*arguments: Any, **options: Any) -> Any:
            answer = call(*arguments, **options)
            size = len(json.dumps(answer))
            self.bytes += size
            self.largest = max(self.largest, size)
            return answer

        return counting
