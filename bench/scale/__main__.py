"""``python -P -m bench.scale``: ever more endpoints, and what work they make.

Loaders and gateways are coroutines of this process; controller and evaluate are processes of their
own. With
``KUBECONFIG`` set, endpoints and reports lie in a namespace of that cluster, which is made and
removed; else they are JSON files in folders.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from bench import machine, studies
from bench.scale import document
from bench.scale.population import TIMEOUT_SECONDS, Population, loaded
from contracts.endpoint import ModelEndpoint
from contracts.loading import LoaderReport
from contracts.model import ModelRef
from contracts.rollout import Outcome
from gateway.settings import Settings
from gateway.state.sources import endpoint_source
from registry.loading.reporter import Reporter
from registry.stores import opening

LATENESS_SECONDS = TIMEOUT_SECONDS + 3.0  # as ``controller/rollouts.py`` waits for a window
_HEARTBEAT_SECONDS = 2.0
_SETTLE_SECONDS = 30.0


def main() -> int:
    """Reads the command line, runs every size, prints and writes."""
    parser = argparse.ArgumentParser(prog="python -P -m bench.scale", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--rollouts", type=int, default=20, help="at once")
    parser.add_argument("--tritons", type=int, default=10)
    parser.add_argument("--gateways", type=int, default=2, help="that watch the endpoints")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each size")
    parser.add_argument("--json", type=Path, help="file to write the results to")
    parser.add_argument("--document", type=Path, help="markdown whose table and picture are made")
    arguments = parser.parse_args()
    results: dict[str, Any] = {
        "machine": machine.describe(),
        "arguments": {
            key: getattr(arguments, key) for key in ("rollouts", "tritons", "gateways", "seconds")
        },
        "stores": "API server" if os.environ.get("KUBECONFIG") else "folders",
        "sizes": [],
    }
    for size in arguments.sizes:
        population = Population(size, arguments.rollouts)
        with tempfile.TemporaryDirectory(prefix="headrace-scale-") as folder:
            found = asyncio.run(_run(Path(folder), population, arguments))
        results["sizes"].append({"endpoints": size, **found})
        print(json.dumps(results["sizes"][-1], indent=1), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if arguments.document is not None:
        show(results, arguments.document)
    return 0


def show(results: dict[str, Any], path: Path) -> None:
    """Writes the table and the picture of a document."""
    text = path.read_text(encoding="utf-8")
    tables = {"scale": document.table(results["sizes"])}
    path.write_text(studies.written(text, tables, "measured"), encoding="utf-8")
    document.draw(results["sizes"], path.parent / "images" / "scale.svg")


async def _run(folder: Path, population: Population, options: argparse.Namespace) -> dict[str, Any]:
    refs = population.publish(folder)
    known = [(model, version, ref.model_dump()) for (model, version), ref in refs.items()]
    (folder / "refs.json").write_text(json.dumps(known))
    with _Place(folder) as place:
        store = opening.endpoints(place.endpoints, os.environ, watch=False)
        for endpoint in population.stored(refs):
            _store(store, endpoint)
        # Before the controller: reports of all that endpoints may need.
        metered = [_Loader(place.reports, number, refs) for number in range(options.tritons)]
        for loader in metered:
            await loader.report()
        children = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", f"bench.scale.{module}",
                str(folder), str(population.endpoints), str(population.rollouts),
                str(options.seconds), place.flag,
                stdout=asyncio.subprocess.PIPE,
            )
            for module in ("controlled", "evaluated")
        ]  # fmt: skip
        back = _Gateways(place, population, options.gateways)
        beside = [
            *(asyncio.create_task(loader.run()) for loader in metered),
            *(asyncio.create_task(watch) for watch in back.watches()),
        ]
        settled = asyncio.create_task(_settled(metered))
        told = await asyncio.gather(*(child.communicate() for child in children))
        took = time.monotonic() - await settled
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        figures: dict[str, Any] = json.loads(told[0][0])
        evaluate: dict[str, Any] = json.loads(told[1][0])
        figures |= {f"evaluate_{name}": value for name, value in evaluate.items()}
        figures |= {
            "report_bytes_a_second": sum(loader.bytes for loader in metered) / took,
            "largest_report_bytes": max(loader.largest for loader in metered),
            **back.figures(figures.pop("decided_at")),
        }
        return figures


async def _settled(loaders: "list[_Loader]") -> float:
    """Waits until loaders know that the controller follows heartbeats, and counts from then on."""
    await asyncio.sleep(_SETTLE_SECONDS)
    for loader in loaders:
        loader.count_anew()
    return time.monotonic()


def _store(store: Any, endpoint: ModelEndpoint) -> None:  # noqa: ANN401 - an EndpointStore
    written = store.put(endpoint.model_copy(update={"status": type(endpoint.status)()}))
    store.put(written.model_copy(update={"status": endpoint.status}))


class _Place:
    """Where endpoints and reports lie: a folder, or a namespace that is made for the run."""

    def __init__(self, folder: Path) -> None:
        self._cluster = bool(os.environ.get("KUBECONFIG"))
        self._name = f"headrace-scale-{uuid.uuid4().hex[:8]}"
        self.flag = f"kubernetes://{self._name}" if self._cluster else str(folder)
        self.endpoints = self.flag if self._cluster else f"{folder}/endpoints"
        self.reports = self.flag if self._cluster else f"{folder}/reports"

    def __enter__(self) -> "_Place":
        if self._cluster:
            self._core().create_namespace({"metadata": {"name": self._name}})
        else:
            for folder in (self.endpoints, self.reports):
                Path(folder).mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        if self._cluster:
            self._core().delete_namespace(self._name)

    def _core(self) -> Any:  # noqa: ANN401 - kubernetes.client.CoreV1Api
        import kubernetes  # noqa: PLC0415

        api = kubernetes.config.new_client_from_config(os.environ["KUBECONFIG"])
        return kubernetes.client.CoreV1Api(api)


class _Metered:
    """Counts what a loader's reports cost: bytes of the objects that are written."""

    def __init__(self, reports: Any) -> None:  # noqa: ANN401 - Reports
        self._reports = reports
        self.bytes = self.largest = 0
        client = getattr(reports, "_client", None)
        if client is not None:
            for name in ("create", "merge"):
                setattr(client, name, self._counted(getattr(client, name)))

    def _counted(self, call: Any) -> Any:  # noqa: ANN401 - a method of ClusterClient
        def counting(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            answer = call(*arguments, **options)
            self.note(len(json.dumps(answer)))
            return answer

        return counting

    def note(self, size: int) -> None:
        self.bytes += size
        self.largest = max(self.largest, size)


class _Loader:
    """A loader whose Triton holds every package."""

    def __init__(self, flag: str, number: int, refs: dict[tuple[str, str], ModelRef]) -> None:
        self._name = f"triton-{number}"
        reports = opening.reports(flag, os.environ)
        self._metered = _Metered(reports)
        self._reporter = Reporter(reports, self._name, _HEARTBEAT_SECONDS, time.time)
        self._loaded = tuple(loaded(ref, number + at) for at, ref in enumerate(refs.values()))
        self._number = number

    @property
    def bytes(self) -> int:
        """Written so far."""
        return self._metered.bytes

    @property
    def largest(self) -> int:
        """The largest object."""
        return self._metered.largest

    async def report(self) -> None:
        """Reports what it holds."""
        await self._reporter.report(
            LoaderReport(
                loader=self._name,
                triton_grpc=f"10.0.{self._number // 250}.{self._number % 250}:8001",
                at=time.time(),
                ready=True,
                loaded=self._loaded,
            )
        )

    async def run(self) -> None:
        """Heartbeats until it is cancelled."""
        await self._reporter.run()

    def count_anew(self) -> None:
        """Counts what is written from now on."""
        self._metered.bytes = 0


class _Gateways:
    """Gateways that see rollouts end."""

    def __init__(self, place: _Place, population: Population, number: int) -> None:
        self._settings = Settings(endpoints=place.endpoints)
        self._rolling = frozenset(population.rolling)
        self._number = number
        self._seconds: dict[tuple[int, str], float] = {}  # unix time

    def watches(self) -> list[Any]:
        """One endless watch for each gateway."""
        return [self._watch(number) for number in range(self._number)]

    async def _watch(self, number: int) -> None:
        async for endpoints in endpoint_source(self._settings, os.environ).watch():
            now = time.time()
            for endpoint in endpoints:
                last = endpoint.status.last_rollout
                key = (number, endpoint.name)
                if last is None or endpoint.name not in self._rolling or key in self._seconds:
                    continue
                if last.outcome is Outcome.ROLLED_BACK:
                    self._seconds[key] = now

    def figures(self, decided_at: dict[str, float]) -> dict[str, Any]:
        """From the time that the deciding window is closed to changed routes."""
        found = sorted(
            at - decided_at[name] - LATENESS_SECONDS for (_, name), at in self._seconds.items()
        )
        return {
            "rolled_back": len({name for _, name in self._seconds}),
            "rollback_seconds_median": found[len(found) // 2] if found else None,
            "rollback_seconds_p99": found[int(len(found) * 0.99)] if found else None,
        }


if __name__ == "__main__":
    sys.exit(main())
