"""Versions that are registered one after another while faults go on, and what became of each.

A good version must not be judged bad, a bad one must not be promoted. One without a verdict by its
deadline is neither: faults may take the traffic that a verdict needs.
"""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import httpx
from rollout_watch import faults, jumps

from contracts.endpoint import EndpointStatus, ModelEndpoint, Phase
from registry.errors import EndpointUnreadableError
from registry.stores.endpoints import FileEndpointStore

REGISTER = Path(__file__).parents[3] / "examples" / "rollouts" / "register_variant.py"
MODEL = "sentiment-classifier"
FIRST = "baseline"
GOOD = ("better", FIRST)
BAD = ("collapsed", "unconvertible")
MAX_TOKENS = 128
ENDPOINT = f"""
apiVersion: headrace.dev/v1alpha1
kind: ModelEndpoint
metadata: {{name: {MODEL}}}
spec:
  model: {MODEL}
  limits: {{timeoutSeconds: 15}}
  serving: {{precision: fp32, maxTokens: {MAX_TOKENS}}}
  rollout:
    steps: [{{shadow: 100}}, {{weight: 50}}]
    deadline: 10m
    bake: 5s
    checks:
      errorRate: {{pass: {{absolute: 0.3, relative: 2}}}}
      latency: null
      classShare:
        fail: {{absolute: 0.1, relative: 1}}
        pass: {{absolute: 0.4, relative: 1}}
      outputShift: {{distance: 0.4}}
      drift: null
"""
PROMOTED = frozenset({Phase.PROMOTED, Phase.SETTLED})
JUDGED_BAD = frozenset({Phase.ROLLED_BACK, Phase.REJECTED})
OVER = frozenset({Phase.SETTLED, Phase.ROLLED_BACK, Phase.REJECTED, Phase.SUPERSEDED})
UNDECIDED = "no verdict within"
LOOK_SECONDS = 0.1
REGISTER_SECONDS = 120.0
LONGEST_SECONDS = 660.0  # of one version: its deadline, and a minute
PAUSE_SECONDS = 5.0
ASK_EVERY_SECONDS = 5.0


def wrong_end(variant: str, phase: Phase, reason: str) -> str:
    """Why a version must not have come to this end; empty where it may have."""
    if variant in BAD and phase in PROMOTED:
        return f"{variant}, which is bad, is {phase.value}"
    if variant in GOOD and phase in JUDGED_BAD and not reason.startswith(UNDECIDED):
        return f"{variant}, which is good, is {phase.value}: {reason}"
    return ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the endpoint's history."""

    at: float
    version: str
    phase: Phase
    reason: str


@dataclass
class Rollouts:
    """Registers versions and watches their endpoint; use as a context manager.

    Args:
        endpoints: folder of the endpoint files.
        mlflow: MLflow's URL.
        order: of the variants.
    """

    endpoints: Path
    mlflow: str
    order: random.Random
    variants: dict[str, str] = field(default_factory=dict)  # version -> variant
    history: list[Line] = field(default_factory=list)
    wrong_states: list[str] = field(default_factory=list)
    failed_registrations: int = 0
    last: ModelEndpoint | None = None
    _ask_after: float = 0.0  # monotonic; MLflow may be away for long

    def __enter__(self) -> "Rollouts":
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._watch, name="watch-endpoint"),
            threading.Thread(target=self._register, name="register-versions"),
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Registers no more; waits for what is under way."""
        self._stop.set()
        for thread in self._threads:
            thread.join(REGISTER_SECONDS + 30)

    def variant_of(self, version: str) -> str | None:
        """Which variant a version is, from the run that made it; None while nobody can say."""
        now = time.monotonic()
        if version not in self.variants and now >= self._ask_after:
            self._ask_after = now + ASK_EVERY_SECONDS
            found = _variant_in_mlflow(self.mlflow, version)
            if found is not None:
                self.variants[version] = found
        return self.variants.get(version)

    def ends(self) -> dict[str, Line]:
        """Version -> how it ended, of those that did."""
        with self._lock:
            return {line.version: line for line in self.history if line.phase in OVER}

    def wrong(self) -> list[str]:
        """Versions that came to an end that they must not come to."""
        with self._lock:
            lines = list(self.history)
        said = []
        for line in lines:
            variant = self.variant_of(line.version)
            if variant is not None and (why := wrong_end(variant, line.phase, line.reason)):
                said.append(f"version {line.version}: {why}")
        return said

    def _watch(self) -> None:
        store = FileEndpointStore(self.endpoints)
        known: set[tuple[float, str, Phase]] = set()
        while not self._stop.wait(LOOK_SECONDS):
            try:
                now = store.get(MODEL)
            except (EndpointUnreadableError, OSError) as error:
                self.wrong_states.append(repr(error))
                continue
            if now is None or now == self.last:
                continue
            found = faults(now.status)
            if self.last is not None:
                found += jumps(self.last, now)
            self.wrong_states += [f"revision {now.metadata.revision}: {each}" for each in found]
            self.last = now
            self._take(now.status, known)

    def _take(self, status: EndpointStatus, known: set[tuple[float, str, Phase]]) -> None:
        new = []
        for item in status.history:
            key = (item.at, item.version, item.phase)
            if key not in known:
                known.add(key)
                new.append(Line(item.at, item.version, item.phase, item.reason))
        with self._lock:
            self.history += new

    def _register(self) -> None:
        left: list[str] = []
        while not self._stop.is_set():
            if not left:
                left = [*GOOD, *BAD]
                self.order.shuffle(left)
            variant = left.pop()
            version = register(self.mlflow, variant)
            if version is None:
                self.failed_registrations += 1
            else:
                self.variants[version] = variant
                self._until_over(version)
            self._stop.wait(PAUSE_SECONDS)

    def _until_over(self, version: str) -> None:
        deadline = time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < deadline and not self._stop.wait(0.5):
            if version in self.ends():
                return


def register(mlflow: str, variant: str) -> str | None:
    """Registers a variant as its trainer would; its version, None where MLflow did not take it."""
    words = [sys.executable, str(REGISTER), variant, "--tracking-uri", mlflow]
    done = _run([*words, "--model-name", MODEL])
    if done is None or "version " not in done:
        return None
    return done.split("version ")[1].split()[0]


def _run(words: Sequence[str]) -> str | None:
    env = {
        **os.environ,
        "PYTHONSAFEPATH": "",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    }
    try:
        done = subprocess.run(
            words, env=env, capture_output=True, text=True, timeout=REGISTER_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout if done.returncode == 0 else None


def _variant_in_mlflow(mlflow: str, version: str) -> str | None:
    base = f"{mlflow}/api/2.0/mlflow"
    try:
        found = httpx.get(
            f"{base}/model-versions/get", params={"name": MODEL, "version": version}, timeout=10
        )
        run_id = found.raise_for_status().json()["model_version"]["run_id"]
        run = httpx.get(f"{base}/runs/get", params={"run_id": run_id}, timeout=10)
        params = run.raise_for_status().json()["run"]["data"]["params"]
    except (httpx.HTTPError, KeyError, ValueError):
        return None
    named = {item["key"]: item["value"] for item in params}
    # The example's own first version is the baseline by another name.
    return {"v1": "baseline", "v2": "better"}.get(named.get("variant", ""), named.get("variant"))
