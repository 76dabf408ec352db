"""What a whole gateway reads, in a process of its own: endpoints, reports with all costs, the beat.

``python -P -m scale.reading ACCOUNT NAMESPACE`` reads as in a pod until SIGTERM, then prints
one JSON. Nothing is served: no tokeniser is opened, and no Triton asked.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from contracts.rollout import Outcome
from gateway.state import pod_reader
from gateway.state.sources import ClusterSource
from scale.memory import most_resident_megabytes
from service.cluster import endpoints, leases
from service.cluster.mirror import CollectionMirror
from service.cluster.reports import ReportMirror


async def run(account: Path, namespace: str) -> dict[str, Any]:
    """Reads until SIGTERM; the figures."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    reader = pod_reader.connected(os.environ, account=account)
    began = time.monotonic()
    listed: dict[str, float] = {}
    back: dict[str, float] = {}
    packages = 0

    async def follow_endpoints() -> None:
        mirror = CollectionMirror(reader, endpoints.collection(namespace), endpoints.read)
        async for found in ClusterSource(mirror).watch():
            now = time.time()
            listed.setdefault("endpoints", time.monotonic() - began)
            for endpoint in found:
                last = endpoint.status.last_rollout
                if last is not None and last.outcome is Outcome.ROLLED_BACK:
                    back.setdefault(endpoint.name, now)

    async def follow_reports() -> None:
        nonlocal packages
        async for found in ClusterSource(ReportMirror(reader, namespace)).watch():
            listed.setdefault("reports", time.monotonic() - began)
            packages = sum(len(report.loaded) for report in found)

    async def follow_beat() -> None:
        mirror = CollectionMirror(reader, leases.beats(namespace), leases.read_beat)
        async for _ in ClusterSource(mirror).watch():
            listed.setdefault("beat", time.monotonic() - began)

    await _until(stop, follow_endpoints(), follow_reports(), follow_beat())
    return {
        "listed_seconds": max(listed.get(name, 0.0) for name in ("endpoints", "reports")),
        "packages": packages,
        "megabytes_most": most_resident_megabytes(),
        "back": back,
    }


async def _until(stop: asyncio.Event, *endless: Coroutine[Any, Any, None]) -> None:
    """Runs these until the event; raises what ends one before it."""
    tasks = [asyncio.create_task(each) for each in endless]
    ends = asyncio.create_task(stop.wait())
    await asyncio.wait((ends, *tasks), return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    """Runs, and prints the figures as JSON."""
    account, namespace = sys.argv[1:]
    print(json.dumps(asyncio.run(run(Path(account), namespace))), flush=True)


if __name__ == "__main__":
    main()
