"""Versions that are registered one after another while faults go on, and what became of each.

A good version must not be judged bad, a bad one must not be promoted. One without a verdict by its
deadline is neither: faults may take the traffic that a verdict needs.
"""

import random
import subprocess
import threading
import time
from dataclasses import dataclass, field

import httpx
import rolling_stack
from rolling_stack import spec
from rollout_watch import RolloutWatch
from running_stack import EXAMPLE_ENDPOINT, RunningStack

from contracts.endpoint import Phase, Transition

MODEL = EXAMPLE_ENDPOINT
FIRST = "baseline"
FIRST_VERSION = "1"  # serves at once, without a rollout
GOOD = ("better", FIRST)
BAD = ("collapsed", "unconvertible")
MAX_TOKENS = 128
ENDPOINT = f"{spec()}  serving: {{precision: fp32, maxTokens: {MAX_TOKENS}}}\n"
SECOND = f"{MODEL}-2"  # the same model, in a pool of its own
PROMOTED = frozenset({Phase.PROMOTED, Phase.SETTLED})
JUDGED_BAD = frozenset({Phase.ROLLED_BACK, Phase.REJECTED})
OVER = frozenset({Phase.SETTLED, Phase.SUPERSEDED, Phase.EXPIRED}) | JUDGED_BAD
REGISTER_SECONDS = 120.0
LONGEST_SECONDS = 660.0  # of one version: its deadline, and a minute
PAUSE_SECONDS = 5.0
ASK_EVERY_SECONDS = 5.0


def endpoint_of(name: str, pool: str) -> str:
    """As ``ENDPOINT``, of another name and in a pool."""
    return f"{ENDPOINT.replace(MODEL, name)}  pool: {pool}\n"


def wrong_end(variant: str, phase: Phase, reason: str, *, strict: bool = False) -> str:
    """Why a version must not have come to this end; empty where it may have.

    ``strict``: nothing takes the traffic that a verdict needs, so that each good one is promoted.
    """
    if strict and variant in GOOD and phase in OVER - PROMOTED:
        return f"{variant}, which is good, is {phase.value}: {reason}"
    if variant in BAD and phase in PROMOTED:
        return f"{variant}, which is bad, is {phase.value}"
    if variant in GOOD and phase in JUDGED_BAD:
        return f"{variant}, which is good, is {phase.value}: {reason}"
    return ""


@dataclass
class Rollouts:
    """Registers versions and watches their endpoint; use as a context manager.

    Args:
        stack: the stack that serves them.
        order: of the variants.
        model: MLflow's name of it, and the endpoint's.
        strict: each version must come to its end, and a good one to all callers.
    """

    stack: RunningStack
    order: random.Random
    model: str = MODEL
    strict: bool = False
    variants: dict[str, str] = field(default_factory=dict)  # version -> variant
    failed_registrations: int = 0
    _ask_after: float = 0.0  # monotonic; MLflow may be away for long

    def __enter__(self) -> "Rollouts":
        self.watch = RolloutWatch(self.stack.home / "endpoints", self.model)
        self.watch.__enter__()
        self._stop, self._last = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._register, name="register-versions")
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self.watch.__exit__(*error)

    def begin_no_more(self) -> None:
        """Registers no version after the one that is under way."""
        self._last.set()

    def finish(self) -> None:
        """Waits until the last version has come to its end."""
        self._thread.join(REGISTER_SECONDS + LONGEST_SECONDS)

    def stop(self) -> None:
        """Registers no more; waits for what is under way."""
        self._stop.set()
        self._thread.join(REGISTER_SECONDS + 30)

    def variant_of(self, version: str) -> str | None:
        """Which variant a version is, from the run that made it; None while nobody can say."""
        now = time.monotonic()
        if version not in self.variants and now >= self._ask_after:
            self._ask_after = now + ASK_EVERY_SECONDS
            found = _variant_in_mlflow(self.stack, self.model, version)
            if found is not None:
                self.variants[version] = found
        return self.variants.get(version)

    def ends(self) -> dict[str, Transition]:
        """Version -> how it ended, of those that did."""
        return {line.version: line for line in self.watch.history if line.phase in OVER}

    def wrong(self) -> list[str]:
        """Versions that came to an end that they must not come to."""
        said = []
        for line in self.watch.history:
            variant = self.variant_of(line.version)
            if variant is None:
                continue
            if why := wrong_end(variant, line.phase, line.reason, strict=self.strict):
                said.append(f"version {line.version}: {why}")
        ended = self.ends().keys() | {FIRST_VERSION}
        if self.strict:
            said += [
                f"version {version}, {variant}, came to no end"
                for version, variant in self.variants.items()
                if version not in ended
            ]
        return [f"{self.model} {each}" for each in said]

    def _register(self) -> None:
        left: list[str] = []
        while not self._stop.is_set() and not self._last.is_set():
            if not left:
                left = [*GOOD, *BAD]
                self.order.shuffle(left)
            variant = left.pop()
            try:
                version = rolling_stack.register(self.stack, variant, REGISTER_SECONDS, self.model)
            except (AssertionError, subprocess.TimeoutExpired):
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


def _variant_in_mlflow(stack: RunningStack, model: str, version: str) -> str | None:
    try:
        found = rolling_stack.mlflow(stack, "model-versions/get", name=model, version=version)
        run = rolling_stack.mlflow(stack, "runs/get", run_id=found["model_version"]["run_id"])
        params = run["run"]["data"]["params"]
    except (httpx.HTTPError, KeyError, ValueError):
        return None
    named = {item["key"]: item["value"] for item in params}
    # The example's own first version is the baseline by another name.
    return {"v1": "baseline", "v2": "better"}.get(named.get("variant", ""), named.get("variant"))
