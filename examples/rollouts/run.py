"""Runs six rollouts on a running local stack and says whether each ended as it should.

    headrace up                                  # in one terminal
    python examples/rollouts/run.py              # in another; all six, or the names of some

One endpoint, one stable version, and traffic that never pauses: real texts, 400 callers of very
different weight, and the true label for those texts that have one. Each example registers one more
version with the standard MLflow client and waits for what Headrace makes of it. Exit status 1 where
a rollout ended otherwise, or where a caller saw a failed request.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

HERE = Path(__file__).resolve().parent
TEXTS = HERE.parent / "sentiment" / "texts"
ENDPOINT = "sentiment-rollouts"
HEADRACE = str(Path(sys.executable).with_name("headrace"))
ENDS = ("Settled", "RolledBack", "Rejected", "Reverted", "Superseded", "Expired")
NO_ROOM = "503: More requests wait than this gateway can begin in time."
POLL_SECONDS = 1.0

console = Console()


@dataclass(frozen=True)
class Example:
    """A version, and what should become of it."""

    variant: str
    ends: str
    because: tuple[str, ...] = ()  # checks one of which fails
    says: str = ""  # words in the reason
    seconds: float = 1500.0


EXAMPLES = (
    Example("unconvertible", "Rejected", says="SecretActivation"),
    Example("collapsed", "RolledBack", because=("outputShift", "classShare")),
    Example("failing", "RolledBack", because=("errorRate",)),
    Example("slow", "RolledBack", because=("latency",)),
    Example("worse", "RolledBack", because=("quality",)),
    Example("better", "Settled"),
)


@dataclass
class Ended:
    """What became of a version."""

    version: str
    phase: str
    reason: str
    failed_checks: tuple[str, ...]
    seconds: float
    traffic: dict[str, Any] = field(default_factory=dict)

    def is_expected(self, example: Example) -> bool:
        """Whether it ended as the example says, and no caller saw a failure."""
        right = self.phase == example.ends and example.says in self.reason
        if example.because:
            right = right and bool(set(self.failed_checks) & set(example.because))
        return right and self.failed_requests == 0 < self._statuses.get("200", 0)

    def row(self, example: Example) -> dict[str, Any]:
        """What became of it, for machines to read."""
        return {
            "variant": example.variant,
            "version": self.version,
            "expected": example.ends,
            "phase": self.phase,
            "reason": self.reason,
            "failed_checks": self.failed_checks,
            "seconds": round(self.seconds, 1),
            "requests": self.traffic.get("requests", 0),
            "failed": self.failed_requests,
            "refused": self.refused_requests,
            "failures": self.traffic.get("failures", {}),
            "latency_seconds": self.traffic.get("latencySeconds", {}),
        }

    @property
    def failed_requests(self) -> int:
        """Requests that were neither answered with 200 nor refused for want of room."""
        failed = sum(count for status, count in self._statuses.items() if status != "200")
        return failed - self.refused_requests

    @property
    def refused_requests(self) -> int:
        """Requests refused before any version was asked: the machine had no time for them."""
        return int(self.traffic.get("failures", {}).get(NO_ROOM, 0))

    @property
    def _statuses(self) -> dict[str, int]:
        statuses: dict[str, int] = self.traffic.get("statuses", {})
        return statuses


def main() -> int:
    """Runs the examples and prints what they came to."""
    arguments = _arguments()
    by_name = {item.variant: item for item in EXAMPLES}
    chosen = [by_name[name] for name in arguments.examples or by_name]
    stack = Stack(arguments.home)
    ended: list[Ended] = []
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "traffic.jsonl"
        write_traffic(texts)
        stack.prepare()
        for example in chosen:
            ended.append(_run(stack, example, texts, arguments.rate))
            if arguments.json:
                _write(arguments.json, chosen, ended)
    _show(chosen, ended)
    right = [each.is_expected(example) for example, each in zip(chosen, ended, strict=True)]
    return 0 if all(right) else 1


def write_traffic(path: Path) -> None:
    """Mixes labelled texts (in feedback's form) and unlabelled ones, always in the same order."""
    labelled = [json.loads(line) for line in _lines(TEXTS / "held_out.jsonl")]
    rows = [{"text": row["text"], "label": row["label"]} for row in labelled]
    rows += [{"text": text} for text in _lines(TEXTS / "replay.txt")]
    order = np.random.default_rng(20).permutation(len(rows))
    path.write_text("".join(json.dumps(rows[i]) + "\n" for i in order), encoding="utf-8")


class Stack:
    """The running stack, spoken to as users do: its command line and the MLflow client."""

    def __init__(self, home: str | None) -> None:
        self._home = [] if home is None else ["--home", home]
        running = self._json("status")["stack"]
        if running is None:
            raise SystemExit("No stack is running. Start one with: headrace up")
        self.mlflow = str(running["mlflow_url"])

    def prepare(self) -> None:
        """Makes the endpoint as the file says, with a stable version behind it."""
        self._command("apply", "-f", str(HERE / "endpoint.yaml"))
        if self.stable() is None:
            self.register("baseline")
            console.print("waiting for the first version to serve")
            while self.stable() is None:
                time.sleep(POLL_SECONDS)

    def register(self, variant: str) -> str:
        """Registers a variant; the version's number."""
        words = [sys.executable, str(HERE / "register_variant.py"), variant]
        done = subprocess.run(
            [*words, "--tracking-uri", self.mlflow], check=True, capture_output=True, text=True
        )
        return done.stdout.split("Registered version ")[1].split()[0]

    def stable(self) -> str | None:
        """The version that serves, if any."""
        routes = self.status()["routes"]
        return next((item["ref"]["version"] for item in routes if item["arm"] == "stable"), None)

    def status(self) -> dict[str, Any]:
        """The endpoint's status as it is stored."""
        (endpoint,) = self._json("status", ENDPOINT)["endpoints"]
        status: dict[str, Any] = endpoint["status"]
        return status

    @contextmanager
    def traffic(self, texts: Path, rate: float) -> Iterator[dict[str, Any]]:
        """Replays texts until the block ends; then fills the dictionary with the summary."""
        words = ["replay", str(texts), "--endpoint", ENDPOINT, "--rate", str(rate)]
        words += ["--callers", "400", "--feedback", "--json"]
        with tempfile.TemporaryFile("w+") as out:
            # In a session of its own: Ctrl-C is for this program, which ends the replay once.
            process = subprocess.Popen(
                [HEADRACE, *words, *self._home], stdout=out, start_new_session=True
            )
            summary: dict[str, Any] = {}
            try:
                yield summary
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(30)
                out.seek(0)
                summary.update(json.loads(out.read() or "{}"))

    def _json(self, *words: str) -> Any:  # noqa: ANN401 - what the command prints
        return json.loads(self._command(*words, "--json"))

    def _command(self, *words: str) -> str:
        done = subprocess.run(
            [HEADRACE, *words, *self._home], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"headrace {' '.join(words)}: {done.stderr or done.stdout}")
        return done.stdout


def _run(stack: Stack, example: Example, texts: Path, rate: float) -> Ended:
    with stack.traffic(texts, rate) as summary:
        version = stack.register(example.variant)
        console.print(f"[bold]{example.variant}[/] is version {version}")
        ended = _watch(stack, version, example.seconds)
    ended.traffic = summary
    told = f"{summary.get('requests', 0):,} requests meanwhile, {ended.failed_requests:,} failed"
    console.print(f"         {told}, {ended.refused_requests:,} refused for want of room")
    return ended


def _watch(stack: Stack, version: str, seconds: float) -> Ended:
    """Follows a version's history until it ends."""
    began, told = time.monotonic(), 0
    while True:
        status = stack.status()
        lines = [line for line in status["history"] if line["version"] == version]
        for line in lines[told:]:
            _tell(time.monotonic() - began, line)
        told = len(lines)
        last = lines[-1] if lines else {"phase": "", "reason": ""}
        late = time.monotonic() - began > seconds
        if last["phase"] in ENDS or late:
            phase = last["phase"] if not late else f"still {last['phase']}"
            took = time.monotonic() - began
            return Ended(version, phase, last["reason"], _failed(status, version), took)
        time.sleep(POLL_SECONDS)


def _tell(seconds: float, line: dict[str, Any]) -> None:
    percent = line["figures"].get("percent")
    phase = line["phase"] if percent is None else f"{line['phase']} {percent:g} %"
    told = Text(f"{seconds:5.0f} s  {phase:<12}  {line['reason']}")
    console.print(told, soft_wrap=not console.is_terminal)


def _failed(status: dict[str, Any], version: str) -> tuple[str, ...]:
    rollout = status["lastRollout"]
    if rollout is None or rollout["candidate"]["version"] != version:
        return ()
    return tuple(check["name"] for check in rollout["checks"] if check["verdict"] == "fail")


def _show(examples: list[Example], ended: list[Ended]) -> None:
    """A line a version, and below it why, however narrow the terminal."""
    table = Table(box=None, pad_edge=False)
    for heading in ("version", "should", "did"):
        table.add_column(heading, no_wrap=True)
    for heading in ("after", "requests", "failed", "refused"):
        table.add_column(heading, no_wrap=True, justify="right")
    for example, each in zip(examples, ended, strict=True):
        colour = "green" if each.is_expected(example) else "red"
        table.add_row(
            f"{each.version} {example.variant}",
            example.ends,
            f"[{colour}]{each.phase}[/]",
            f"{each.seconds:.0f} s",
            f"{each.traffic.get('requests', 0):,}",
            f"{each.failed_requests:,}",
            f"{each.refused_requests:,}",
        )
    console.print()
    console.print(table)
    for each in ended:
        told = [each.reason, *each.traffic.get("failures", {})]
        console.print(f"\n[bold]version {each.version}[/]")
        console.print(Padding(Text("\n".join(told)), (0, 0, 0, 2)))


def _write(path: Path, examples: list[Example], ended: list[Ended]) -> None:
    """What came of those that have ended so far."""
    rows = [each.row(example) for example, each in zip(examples, ended, strict=False)]
    path.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    names = [item.variant for item in EXAMPLES]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    told = f"which, in this order; default: {', '.join(names)}"
    parser.add_argument("examples", nargs="*", choices=[[], *names], metavar="NAME", help=told)
    parser.add_argument("--home", help="the stack's home, as in headrace up")
    parser.add_argument("--rate", type=float, default=40.0, help="requests a second")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what came of it there too")
    return parser.parse_args()


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted. A rollout that was on goes on; headrace rollout abort ends it.")
