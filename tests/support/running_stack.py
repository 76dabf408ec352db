"""A whole local stack for tests: ``headrace up`` on free ports and a home of its own.

Tests talk to it as users do, over its ports, and kill its processes by the ids that it records.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
from own_ports import own_row
from prometheus_client.parser import text_string_to_metric_families
from traffic import OIP_GRPC, Way
from waiting import until

from headrace.stack.settings import Ports
from headrace.stack.state import GatewayRecord, StackRecord, TritonRecord
from registry.stores.endpoints import FileEndpointStore

HEADRACE = str(Path(sys.executable).with_name("headrace"))
EXAMPLE_ENDPOINT = "sentiment-classifier"
# Not the default's two: on a busy machine any request may take those, and would look as if what
# the test does had made it fail.
TIMEOUT_SECONDS = 15
PATIENT = f"""
apiVersion: headrace.dev/v1alpha1
kind: ModelEndpoint
metadata: {{name: {EXAMPLE_ENDPOINT}}}
spec:
  model: {EXAMPLE_ENDPOINT}
  limits: {{timeoutSeconds: {TIMEOUT_SECONDS}}}
"""
START_SECONDS = 900.0  # a first run downloads, and the machine may have much else to do
STOP_SECONDS = 120.0
PORTS = tuple(name.replace("_", "-") for name in Ports().by_name())


@dataclass
class RunningStack:
    """A running ``headrace up``; ``ports`` are its flags', ``row`` all that it may listen on."""

    home: Path
    ports: dict[str, int]
    row: list[int]
    flags: tuple[str, ...]
    output: Path
    env: dict[str, str] = field(repr=False)
    process: "subprocess.Popen[bytes]" = field(init=False)

    @property
    def gateway(self) -> str:
        """The first gateway's URL."""
        return f"http://127.0.0.1:{self.ports['gateway-http']}"

    @property
    def gateway_grpc(self) -> str:
        """The first gateway's host:port of gRPC."""
        return f"127.0.0.1:{self.ports['gateway-grpc']}"

    @property
    def gateways(self) -> tuple[GatewayRecord, ...]:
        """Every gateway: its process' name, its URL and its host:port of gRPC."""
        return self._running().gateways

    @property
    def tritons(self) -> tuple[TritonRecord, ...]:
        """Every Triton with its loader: their processes' names, and where they listen."""
        return self._running().tritons

    @property
    def mlflow(self) -> str:
        return f"http://127.0.0.1:{self.ports['mlflow']}"

    @property
    def stats(self) -> str:
        return f"http://127.0.0.1:{self.ports['stats']}"

    @property
    def kafka(self) -> str:
        return f"127.0.0.1:{self.ports['kafka']}"

    def ways(self, endpoint: str = EXAMPLE_ENDPOINT) -> list[Way]:
        """Every way to an endpoint: each gateway, first over HTTP and then over gRPC."""
        return [*self.http_ways(endpoint), *self.grpc_ways(endpoint)]

    def http_ways(self, endpoint: str = EXAMPLE_ENDPOINT) -> list[Way]:
        """Each gateway over HTTP."""
        return [Way(each, endpoint) for each in self.gateways]

    def grpc_ways(self, endpoint: str = EXAMPLE_ENDPOINT) -> list[Way]:
        """Each gateway over gRPC."""
        return [Way(each, endpoint, OIP_GRPC) for each in self.gateways]

    def record(self) -> StackRecord | None:
        """What runs, as the stack itself says; None before it answers."""
        try:
            return StackRecord.model_validate_json((self.home / "stack.json").read_bytes())
        except FileNotFoundError:
            return None

    def pid(self, service: str) -> int:
        return self._running().services[service]

    def _running(self) -> StackRecord:
        record = self.record()
        assert record is not None
        return record

    def signal(self, service: str, number: signal.Signals) -> int:
        """Sends a signal to one service's process; returns its id."""
        pid = self.pid(service)
        os.kill(pid, number)
        return pid

    def kill(self, service: str) -> int:
        """``kill -9`` of one service; returns the dead process's id."""
        return self.signal(service, signal.SIGKILL)

    @contextlib.contextmanager
    def without(self, service: str) -> Iterator[None]:
        """With one service killed and gone for as long: what would start it again is held."""
        self.process.send_signal(signal.SIGSTOP)
        dead = self.kill(service)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)
        self.until_restarted(service, dead)

    def until_restarted(self, service: str, dead: int, seconds: float = 120) -> None:
        """Waits until the stack has started the service anew."""

        def is_new() -> bool:
            record = self.record()
            return record is not None and record.services.get(service, dead) != dead

        until(f"{service} is started again", seconds, is_new)

    def command(self, *words: str, seconds: float = 300.0) -> "subprocess.CompletedProcess[str]":
        """Runs ``headrace WORDS`` on this stack's home."""
        return subprocess.run(
            [HEADRACE, *words],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def apply(self, endpoint: str) -> None:
        """``headrace apply`` of an endpoint's YAML."""
        path = self.home.parent / "endpoint.yaml"
        path.write_text(endpoint, encoding="utf-8")
        done = self.command("apply", "-f", str(path))
        assert done.returncode == 0, done.stdout + done.stderr

    def until_answers(self, endpoint: str, seconds: float = 600) -> None:
        """Waits until the endpoint answers a text at every gateway."""
        for gateway in self.gateways:
            url = f"{gateway.url}/endpoints/{endpoint}"
            until(f"{endpoint} answers at {gateway.name}", seconds, partial(_answers, url))

    def until_all_serve(self, endpoint: str = EXAMPLE_ENDPOINT, seconds: float = 600) -> None:
        """Waits until every gateway finds the stable version at every Triton."""

        def every_gateway_finds_all() -> bool:
            return all(
                self._serving(each.operations_url, endpoint) >= len(self.tritons)
                and self._ready(each.url, endpoint)
                for each in self.gateways
            )

        until(f"every gateway finds {endpoint} at every Triton", seconds, every_gateway_finds_all)

    def _ready(self, gateway: str, endpoint: str) -> bool:
        """Whether a gateway serves it: a package may be at every Triton before that is known."""
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{gateway}/v2/models/{endpoint}/ready", timeout=60).is_success
        return False

    def _serving(self, operations: str, endpoint: str) -> float:
        """How many Tritons there are at which a gateway finds an endpoint's stable version."""
        stored = FileEndpointStore(self.home / "endpoints").get(endpoint)
        if stored is None or stored.status.stable is None:
            return 0
        with contextlib.suppress(httpx.TransportError):
            for family in text_string_to_metric_families(
                httpx.get(f"{operations}/metrics", timeout=60).text
            ):
                if family.name == "headrace_gateway_package_tritons":
                    return sum(
                        sample.value
                        for sample in family.samples
                        if sample.labels["model"] == stored.status.stable.triton_model
                    )
        return 0

    def start(self) -> None:
        """``headrace up``, again on the same home and ports; waits until it answers."""
        with self.output.open("ab") as out:
            self.process = subprocess.Popen(
                [HEADRACE, "up", *self.flags],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        def started() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"headrace up ended:\n{self.output.read_text()}")
            record = self.record()  # a killed `up` leaves its own there until the next one's
            return record is not None and record.pid == self.process.pid

        until(f"headrace up answers; see {self.output}", START_SECONDS, started)

    def restart(self) -> None:
        """Ctrl-C, and ``headrace up`` again."""
        assert self.stop() == 0, self.output.read_text()
        self.start()

    def stop(self) -> int:
        """Ctrl-C; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOP_SECONDS)


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.post(url, json={"inputs": "fine"}, timeout=60).status_code == 200
    return False


def labels_of(*command: str, env: Mapping[str, str] | None = None) -> list[str]:
    """What a command that asks prints; none where a busy machine let no answer come in time."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env=env
    )
    said = json.loads(done.stdout or "{}")
    return [item["label"] for item in said] if isinstance(said, list) else []


@contextlib.contextmanager
def running_stack(
    home: Path,
    *flags: str,
    gateways: int = 1,
    tritons: int = 1,
    environment: Mapping[str, str] | None = None,
    output: Path | None = None,
) -> Iterator[RunningStack]:
    """Starts ``headrace up``, waits until it answers, and stops it at the end."""
    # Further replicas take the next ports above these, which must be this process's as well.
    row = own_row(len(PORTS) + 3 * (gateways - 1) + 4 * (tritons - 1))
    ports = dict(zip(PORTS, row, strict=False))
    env = {**os.environ, **(environment or {}), "HEADRACE_HOME": str(home), "PYTHONSAFEPATH": "1"}
    words = [f"--port-{name}={port}" for name, port in ports.items()]
    if gateways > 1:
        words.append(f"--gateways={gateways}")
    if tritons > 1:
        words.append(f"--tritons={tritons}")
    said = output or home.with_suffix(".out")
    said.unlink(missing_ok=True)  # what an earlier stack on this home said
    stack = RunningStack(home, ports, row, (*words, *flags), said, env)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()
