"""``python -P -m scale``: ever more endpoints, and what work they make.

For each size, etcd, kube-apiserver and Kafka are started anew, then two fold workers, one shard of
evaluate, two processes that read as gateways do, and the controller. Loaders are coroutines of this
process, and gateways of two others.
"""

import argparse
import asyncio
import json
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from bench import documents, machine, processes
from bench.processes import free_port
from contracts.controller import ControllerBeat
from contracts.model import ModelRef
from contracts.windows import ON_THE_WAY_SECONDS
from registry.stores import opening
from registry.stores.whole_endpoints import WholeEndpoints
from scale import document, servers
from scale.gateways import figures, since_closed
from scale.loaders import Loader
from scale.population import TIMEOUT_SECONDS, Population, store_url
from scale.servers import ApiServer, Usage

NAMESPACE = "bench"
PLACE = f"kubernetes://{NAMESPACE}"
LATENESS_SECONDS = TIMEOUT_SECONDS + ON_THE_WAY_SECONDS
ENDPOINTS_OF_A_SHARD = 125
FOLD_WORKERS = 2
READERS = 2
HISTORY_SECONDS = 15.0  # of traffic before the controller comes
_STORING = 4  # endpoints at a time


def main() -> int:
    """Reads the command line, runs every size, prints and writes."""
    parser = argparse.ArgumentParser(prog="python -P -m scale", description=__doc__)
    parser.add_argument("--binaries", default="", help="folder of etcd and kube-apiserver")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--rollouts", type=int, default=20, help="at once")
    parser.add_argument("--tritons", type=int, default=50)
    parser.add_argument("--pools", type=int, default=10, help="of Tritons")
    parser.add_argument("--gateways", type=int, default=100)
    parser.add_argument(
        "--seconds", type=float, nargs="+", default=[75.0, 140.0], help="of each size"
    )
    parser.add_argument(
        "--within", type=float, default=400.0, help="seconds, all sizes together; else it gives up"
    )
    parser.add_argument("--rate", type=float, default=0.3, help="requests a second of an endpoint")
    parser.add_argument(
        "--fresh", action="store_true", help="rollouts begin then; else they are two hours old"
    )
    parser.add_argument("--json", type=Path, help="file to write the results to")
    parser.add_argument("--document", type=Path, help="markdown whose table and picture are made")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its servers end with it
    results: dict[str, Any] = {
        "machine": machine.describe(),
        "arguments": {
            key: getattr(arguments, key)
            for key in ("rollouts", "tritons", "pools", "gateways", "seconds", "rate", "fresh")
        },
        "nice": os.nice(0),
        "sizes": [],
    }
    until = time.monotonic() + arguments.within
    for size, seconds in zip(arguments.sizes, arguments.seconds, strict=True):
        population = Population(
            size, arguments.rollouts, arguments.rate, pools=arguments.pools, fresh=arguments.fresh
        )
        load = os.getloadavg()
        with tempfile.TemporaryDirectory(prefix="headrace-scale-") as folder:
            run = _run(Path(folder), population, arguments, seconds)
            try:
                found = asyncio.run(asyncio.wait_for(run, until - time.monotonic()))
            except TimeoutError:
                _say(f"gives up: not all sizes in {arguments.within:g} s (--within)")
                return 1
        found |= {"load_before": load, "load_after": os.getloadavg()}
        results["sizes"].append({"endpoints": size, **found})
        results["sizes"].sort(key=lambda each: int(each["endpoints"]))
        print(json.dumps({"endpoints": size, **found}, indent=1), flush=True)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if arguments.document is not None:
        show(results, arguments.document)
    return 0


def show(results: dict[str, Any], path: Path) -> None:
    """Writes the table and the picture of a document."""
    text = path.read_text(encoding="utf-8")
    tables = {"scale": document.table(results["sizes"])}
    path.write_text(documents.written(text, tables, "measured"), encoding="utf-8")
    document.draw(results["sizes"], path.parent / "images" / "scale.svg")


async def _run(
    folder: Path, population: Population, options: argparse.Namespace, seconds: float
) -> dict[str, Any]:
    refs = population.publish(folder)
    known = [(model, version, ref.model_dump()) for (model, version), ref in refs.items()]
    (folder / "refs.json").write_text(json.dumps(known))
    with ExitStack() as stack:
        server = stack.enter_context(
            servers.api_server(options.binaries, folder / "api", NAMESPACE)
        )
        broker = stack.enter_context(servers.kafka(folder / "kafka"))
        stored = await asyncio.to_thread(_store, population, refs, server)
        loaders = await _loaders(options.tritons, population, refs, server)
        _say("objects are stored")
        roles = _Roles(stack, folder, population, server, broker.bootstrap)
        lists = await roles.gateways(options.gateways)
        _say("gateways watch")
        await asyncio.sleep(HISTORY_SECONDS)
        roles.control(seconds)
        usage, written = Usage(roles.pids()), _EtcdWrites(server)
        running = [asyncio.create_task(loader.run()) for loader in loaders]
        counted = asyncio.create_task(_settled(loaders))
        scrapes = await roles.watched()
        took = time.monotonic() - await counted
        usage_found, etcd = usage.figures(), written.figures()
        told = roles.told()
        decided_at = told.pop("decided_at")
        for what in ("looked", "written"):
            at = told.pop(f"{what}_at")
            told |= since_closed(f"{what}_seconds", at, decided_at, LATENESS_SECONDS)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return {
            **told,
            **lists,
            **roles.seen(decided_at),
            **usage_found,
            **etcd,
            **scrapes,
            **roles.readers(decided_at),
            "store_seconds": stored,
            "requests_a_second": population.usual_rate + population.rolling_rate,
            "report_bytes_a_second": sum(each.metered.bytes for each in loaders) / took,
            "largest_report_bytes": max(each.metered.largest for each in loaders),
        }


def _store(
    population: Population, refs: dict[tuple[str, str], ModelRef], server: ApiServer
) -> float:
    """Stores the endpoints; how long it took, seconds."""
    stored = population.stored(refs)
    began = time.monotonic()
    store = WholeEndpoints(
        opening.endpoints(PLACE, server.outside, watch=False),
        opening.records(PLACE, server.outside),
    )

    def put(endpoint: Any) -> None:
        written = store.put(endpoint.model_copy(update={"status": type(endpoint.status)()}))
        store.put(written.model_copy(update={"status": endpoint.status}))

    with ThreadPoolExecutor(_STORING) as pool:
        list(pool.map(put, stored))
    return time.monotonic() - began


async def _loaders(
    number: int, population: Population, refs: dict[tuple[str, str], ModelRef], server: ApiServer
) -> list[Loader]:
    """Loaders that have reported all that endpoints may need."""
    # As an installation has it in which the controller has run before.
    beat = ControllerBeat(instance="before", count=1, at=time.time())
    opening.heartbeats(PLACE, server.outside).put(beat)
    loaders = [Loader(PLACE, server.outside, each, population, refs) for each in range(number)]
    for loader in loaders:
        await loader.report()
    return loaders


async def _settled(loaders: Sequence[Loader]) -> float:
    """Waits until loaders know that the controller follows heartbeats, and counts from then on."""
    await asyncio.sleep(30.0)
    for loader in loaders:
        loader.metered.bytes = 0
    return time.monotonic()


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


class _EtcdWrites:
    """What etcd is sent and stores."""

    _NAMES = (
        "etcd_network_client_grpc_received_bytes_total",
        "etcd_disk_wal_write_bytes_total",
        "etcd_mvcc_put_total",
    )

    def __init__(self, server: ApiServer) -> None:
        self._url = server.metrics
        self._began = time.monotonic()
        self._before = servers.scraped(self._url, *self._NAMES)

    def figures(self) -> dict[str, float]:
        """Bytes and writes a second since the beginning, and the size of all."""
        size = "etcd_mvcc_db_total_size_in_use_in_bytes"
        after, took = servers.scraped(self._url, *self._NAMES, size), time.monotonic() - self._began
        received, logged, puts = ((after[name] - self._before[name]) / took for name in self._NAMES)
        return {
            "etcd_received_bytes_a_second": received,
            "etcd_logged_bytes_a_second": logged,
            "etcd_puts_a_second": puts,
            "etcd_database_bytes": after[size],
        }


class _Roles:
    """The processes of Headrace: all from the start but the controller."""

    def __init__(
        self, stack: ExitStack, folder: Path, population: Population, server: ApiServer, broker: str
    ) -> None:
        self._stack = stack
        self._folder = folder
        self._population = population
        self._server = server
        self._broker = broker
        self._shards = math.ceil(population.endpoints / ENDPOINTS_OF_A_SHARD)
        self._evaluate_port = free_port()
        self._fold_ports = [free_port() for _ in range(FOLD_WORKERS)]
        self._readers = [
            self._start(
                f"reader-{number}", "scale.reading",
                str(server.account), NAMESPACE, environment=server.inside,
            )
            for number in range(READERS)
        ]  # fmt: skip
        self._folds = [
            self._start(
                f"fold-{port}", "stats.fold_main", "--kafka-bootstrap", broker,
                "--metrics-port", str(port),
            )
            for port in self._fold_ports
        ]  # fmt: skip
        self._evaluate = self._start(
            "evaluate", "stats.evaluate_main",
            "--endpoints", PLACE, "--store-url", store_url(folder), "--kafka-bootstrap", broker,
            "--port", str(self._evaluate_port), "--shards", str(self._shards), "--shard", "0",
            "--most-versions", "250", "--log-level", "WARNING",
            environment=server.outside,
        )  # fmt: skip
        self._controller: Any = None
        self._scraping: Any = None
        self._gateways: list[Any] = []

    def control(self, seconds: float) -> None:
        """Starts the controller, for so long."""
        self._controller = self._start(
            "controller", "scale.controlled", str(self._folder),
            json.dumps(asdict(self._population)), str(seconds), PLACE,
            self._broker, environment=self._server.outside,
        )  # fmt: skip
        url = f"http://{servers.HOST}:{self._evaluate_port}/metrics"
        self._scraping = self._start("scraping", "scale.scraping", url, str(seconds))

    def pids(self) -> dict[str, list[int]]:
        """Whose time and memory are measured here; the controller tells its own."""
        children = psutil.Process().children()
        return {
            "evaluate": [self._evaluate.pid],
            "fold": [each.pid for each in self._folds],
            "reader": [each.pid for each in self._readers],
            "kafka": [each.pid for each in children if each.name() == "java"],
            "loaders": [os.getpid()],
            "gateways": [each.pid for each in self._gateways],
            **{name: [pid] for name, pid in self._server.pids.items()},
        }

    async def gateways(self, number: int) -> dict[str, Any]:
        """Starts them, and waits until they watch; what their first lists took."""
        population = json.dumps(asdict(self._population))
        # Nothing is published before all watch: else the controller would have to catch up first.
        for what in ("watch", "publish"):
            started = self._start(
                what, "scale.gateways", str(self._server.account), str(self._server.port),
                self._broker, str(number), population, what,
            )  # fmt: skip
            self._gateways.append(started)
            log = self._folder / f"{what}.log"
            while '"first_lists_seconds"' not in (text := log.read_text(errors="replace")):
                if started.poll() is not None:
                    raise RuntimeError(f"the gateways broke: {text[-3000:]}")
                await asyncio.sleep(0.2)
        return self._last("watch")

    def seen(self, decided_at: dict[str, float]) -> dict[str, Any]:
        """Ends the gateways; what they saw and sent."""
        rates: dict[str, float] = {}
        back: list[tuple[str, float]] = []
        for what, each in zip(("watch", "publish"), self._gateways, strict=True):
            each.terminate()
            each.wait(30)
            found = self._last(what)
            rates |= found["rates"]
            if what == "watch":
                back = [(name, at) for name, at in found["back"]]
        return {**rates, **figures(back, decided_at, LATENESS_SECONDS)}

    async def watched(self) -> dict[str, Any]:
        """Waits until the controller ends; what evaluate showed, and how far fold is behind."""
        while self._controller.poll() is None:
            if any(each.poll() is not None for each in self._gateways):
                raise RuntimeError("the gateways broke")
            await asyncio.sleep(0.5)
        await asyncio.to_thread(self._scraping.wait, 90)
        lags = [
            servers.scraped(f"http://{servers.HOST}:{port}/metrics", "headrace_fold_lag_messages")
            for port in self._fold_ports
        ]
        return {
            "evaluate_shards": self._shards,
            **{f"evaluate_{name}": value for name, value in self._last("scraping").items()},
            "fold_lag_messages": sum(each["headrace_fold_lag_messages"] for each in lags),
        }

    def told(self) -> dict[str, Any]:
        """What the controller printed."""
        for line in (self._folder / "controller.log").read_text(errors="replace").splitlines()[:-1]:
            print(line[:300], file=sys.stderr)  # its warnings
        return self._last("controller")

    def readers(self, decided_at: dict[str, float]) -> dict[str, Any]:
        """Ends the readers; what they saw."""
        found = []
        for number, reader in enumerate(self._readers):
            reader.terminate()
            reader.wait(30)
            found.append(self._last(f"reader-{number}"))
        late = [
            at - decided_at[name] - LATENESS_SECONDS
            for each in found
            for name, at in each["back"].items()
            if name in decided_at
        ]
        return {
            "reader_listed_seconds": max(each["listed_seconds"] for each in found),
            "reader_most_megabytes": max(each["megabytes_most"] for each in found),
            "reader_packages": found[0]["packages"],
            "reader_rollback_seconds_max": max(late, default=None),
        }

    def _last(self, name: str) -> dict[str, Any]:
        text = (self._folder / f"{name}.log").read_text(errors="replace")
        try:
            found: dict[str, Any] = json.loads(text.splitlines()[-1])
        except (IndexError, ValueError):
            raise RuntimeError(f"{name} broke: {text[-3000:]}") from None
        return found

    def _start(
        self, name: str, module: str, *arguments: str, environment: dict[str, str] | None = None
    ) -> Any:
        return self._stack.enter_context(
            processes.started(
                servers.module(module, *arguments), self._folder / f"{name}.log", environment
            )
        )


if __name__ == "__main__":
    sys.exit(main())
