"""Traffic from a pod of the cluster, at a steady rate, with every failure told.

Used by ``tests/cluster``. The program runs in the client's pod. Every second request takes a
connection of its own, as curl would, and the others keep theirs, as services do; it repeats
nothing, so that what a caller would see as a failure is one here. It judges nothing.

The Service's name is looked up once: its address stays, and a cluster's DNS that is late on a busy
machine is no failure of what is tested.
"""

import contextlib
import json
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict
from real_cluster import SITE_PACKAGES, ClientPod, until

CALLERS = 40  # keys, each of which must stay with one version
GO_ON_SECONDS = 120.0
END_SECONDS = 90.0
TEXTS = f"{SITE_PACKAGES}/headrace/example/texts/replay.txt"

PROGRAM = """
import asyncio, json, pathlib, socket, sys, time
import httpx

named = httpx.URL(sys.argv[1])
url, host = named.copy_with(host=socket.gethostbyname(named.host)), named.netloc.decode()
rate, callers, base = float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
texts = pathlib.Path(sys.argv[5]).read_text(encoding="utf-8").splitlines()
stop, progress = pathlib.Path(base + ".stop"), pathlib.Path(base + ".sent")
failures, versions, begun = [], {}, time.monotonic()

async def ask(client, number):
    key = f"caller-{number % callers}"
    at = time.monotonic() - begun
    try:
        text = texts[number % len(texts)]
        headers = {"host": host, "x-headrace-key": key}
        answer = await client.post(url, json={"inputs": text}, headers=headers)
        if answer.status_code == 200:
            versions.setdefault(key, {})[answer.headers["x-headrace-version"]] = number
            return
        what = f"{answer.status_code} {answer.text[:200]}"
    except httpx.HTTPError as error:
        what = repr(error)
    failures.append(f"request {number}, due at {number / rate:.2f} s, sent at {at:.2f} s: {what}")

async def main():
    tasks, number = set(), 0
    limits = httpx.Limits(max_keepalive_connections=8, keepalive_expiry=60)
    fresh = httpx.Limits(max_keepalive_connections=0)
    async with (
        httpx.AsyncClient(timeout=30, limits=limits) as kept,
        httpx.AsyncClient(timeout=30, limits=fresh) as single,
    ):
        while not stop.exists():
            task = asyncio.create_task(ask(single if number % 2 else kept, number))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            number += 1
            if number % 10 == 0:
                progress.write_text(str(number))
            await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
        await asyncio.gather(*tasks)
    print(json.dumps({"sent": number, "failures": failures, "versions": versions}))

asyncio.run(main())
"""


class Outcome(BaseModel):
    """What came of all requests.

    ``versions`` holds, for each caller's key, the versions that answered and the number of the last
    request that each of them did.
    """

    model_config = ConfigDict(frozen=True)

    sent: int
    failures: list[str]
    versions: dict[str, dict[str, int]]

    @property
    def served(self) -> set[str]:
        """The versions that answered."""
        return {version for each in self.versions.values() for version in each}


@dataclass
class Load:
    """Traffic that goes on until ``stop``."""

    client: ClientPod
    process: "subprocess.Popen[str]" = field(repr=False)
    base: str

    def sent(self) -> int:
        """Requests sent so far, to ten."""
        said = self.client.run("sh", "-c", f"cat {self.base}.sent 2>/dev/null || echo 0")
        return int(said or 0)

    def stop(self) -> Outcome:
        """Ends it, when all that was asked is answered; returns what came of it."""
        self.client.run("touch", f"{self.base}.stop")
        said, errors = self.process.communicate(timeout=END_SECONDS)
        assert self.process.returncode == 0, errors
        return Outcome.model_validate(json.loads(said))


def go_on(running: Load, requests: int) -> None:
    """Waits until so many more were sent."""
    goal = running.sent() + requests
    until(f"{requests} requests more", GO_ON_SECONDS, lambda: running.sent() >= goal)


@contextlib.contextmanager
def load(client: ClientPod, url: str, requests_per_second: float) -> Iterator[Load]:
    """Asks ``url`` from the client's pod; ends with the test, whatever becomes of it."""
    base = f"/tmp/load-{uuid.uuid4().hex[:8]}"
    words = [url, str(requests_per_second), str(CALLERS), base, TEXTS]
    command = ["kubectl", "-n", client.cluster.namespace, "exec", client.name, "--"]
    process = subprocess.Popen(
        [*command, "python", "-P", "-c", PROGRAM, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = Load(client, process, base)
    try:
        yield running
    finally:
        if process.poll() is None:
            with contextlib.suppress(AssertionError):
                client.run("touch", f"{base}.stop")
            process.kill()
            process.communicate(timeout=END_SECONDS)
