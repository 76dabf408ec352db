"""Shows the accuracy that Headrace estimates without labels beside the one that callers measure.

    headrace up                                  # in one terminal
    python examples/accuracy/run.py              # in another; two minutes

Three endpoints of the same model, one for each kind of text: reviews, which it was trained for, and
editorials and tweets, which it never saw. Each text is sent once, and its true label is told later,
as an application would. Then both accuracies are read from the metrics that Grafana shows.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from contracts import metrics

TEXTS = Path(__file__).resolve().parents[1] / "sentiment" / "texts"
MODEL = "sentiment-classifier"
HEADRACE = str(Path(sys.executable).with_name("headrace"))
# Endpoint -> file of labelled texts, and the domains that it gets.
ENDPOINTS: Final = {
    "accuracy-reviews": ("held_out.jsonl", {"movie-reviews", "product-reviews"}),
    "accuracy-editorials": ("other_domains.jsonl", {"editorials"}),
    "accuracy-tweets": ("other_domains.jsonl", {"tweets"}),
}
RATE = 40  # requests a second
WAIT_SECONDS = 300.0
POLL_SECONDS = 1.0

console = Console()


@dataclass(frozen=True)
class Accuracy:
    """What the metrics say of one endpoint."""

    mean_score: float
    measured: float
    feedback: int


def main() -> int:
    """Sends the texts and their labels, waits until they are counted, prints both accuracies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--home", help="the stack's home, as in headrace up")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    home = [] if arguments.home is None else ["--home", arguments.home]
    running = json.loads(command("status", "--json", *home))["stack"]
    if running is None:
        raise SystemExit("No stack is running. Start one with: headrace up")
    found: dict[str, Accuracy] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ENDPOINTS:
            serve(name, Path(folder), home)
        for name in ENDPOINTS:
            texts = Path(folder) / f"{name}.jsonl"
            count = write_texts(name, texts)
            console.print(f"sending {count} labelled texts to {name}")
            words = ["--rate", str(RATE), "--requests", str(count), "--feedback", "--json"]
            sent = json.loads(command("replay", str(texts), "--endpoint", name, *words, *home))
            # A machine without time for them refuses some.
            taken = sent["feedback"].get("202", 0)
            found[name] = counted(f"{running['stats_url']}/metrics", name, taken)
    show(found)
    if arguments.json:
        told = {name: vars(each) for name, each in found.items()}
        arguments.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return 0


def serve(name: str, folder: Path, home: list[str]) -> None:
    """Makes an endpoint of the example's model as it was trained, and waits until it serves.

    Its second version has its confidences fitted, and is nearer to the truth.
    """
    file = folder / f"{name}.yaml"
    file.write_text(
        "apiVersion: headrace.dev/v1alpha1\nkind: ModelEndpoint\n"
        f"metadata:\n  name: {name}\nspec:\n  model: {MODEL}\n  version: {{pin: '1'}}\n",
        encoding="utf-8",
    )
    command("apply", "-f", str(file), *home)
    began = time.monotonic()
    while not _routes(name, home):
        if time.monotonic() - began > WAIT_SECONDS:
            raise SystemExit(f"{name} serves no version yet: headrace status {name} says why.")
        time.sleep(POLL_SECONDS)


def write_texts(name: str, path: Path) -> int:
    """The endpoint's texts with their labels, in the form that replay reads; how many."""
    file, domains = ENDPOINTS[name]
    rows = [json.loads(line) for line in (TEXTS / file).read_text(encoding="utf-8").splitlines()]
    lines = [
        json.dumps({"text": row["text"], "label": row["label"]}) + "\n"
        for row in rows
        if row["domain"] in domains
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def counted(url: str, endpoint: str, texts: int) -> Accuracy:
    """The endpoint's accuracies once every label is in a closed window."""
    began = time.monotonic()
    while True:
        seen = read(httpx.get(url, timeout=10).raise_for_status().text, endpoint)
        if seen is not None and seen.feedback >= texts:
            return seen
        if time.monotonic() - began > WAIT_SECONDS:
            told = 0 if seen is None else seen.feedback
            raise SystemExit(f"Only {told} of {texts} labels of {endpoint} were counted.")
        time.sleep(POLL_SECONDS)


def read(exposition: str, endpoint: str) -> Accuracy | None:
    """Mean score and accuracy of an endpoint's stable arm; None while either is missing."""
    wanted = (metrics.MEAN_SCORE, metrics.ACCURACY_MEASURED, metrics.ACCURACY_FEEDBACK)
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
        if sample.labels.get(metrics.ENDPOINT) == endpoint
        and sample.labels.get(metrics.ARM) == "stable"
    }
    if any(metric.name not in found for metric in wanted):
        return None
    mean_score, measured, feedback = (found[metric.name] for metric in wanted)
    return Accuracy(mean_score, measured, int(feedback))


def show(found: dict[str, Accuracy]) -> None:
    """One line an endpoint."""
    table = Table(box=None, pad_edge=False)
    for heading in ("endpoint", "texts", "mean score", "measured"):
        table.add_column(heading, justify="left" if heading == "endpoint" else "right")
    for name, each in found.items():
        table.add_row(name, f"{each.feedback}", f"{each.mean_score:.1%}", f"{each.measured:.1%}")
    console.print(table)


def command(*words: str) -> str:
    """What a command of Headrace's prints; ends this program where it fails."""
    done = subprocess.run([HEADRACE, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"headrace {' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


def _routes(name: str, home: list[str]) -> list[Any]:
    (endpoint,) = json.loads(command("status", name, "--json", *home))["endpoints"]
    routes: list[Any] = endpoint["status"]["routes"]
    return routes


if __name__ == "__main__":
    sys.exit(main())
