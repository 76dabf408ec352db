"""The accuracy example sends what it says, and reads what the evaluate role exposes."""

import json
from pathlib import Path
from types import ModuleType

import pytest
from loaded_script import loaded
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from contracts import metrics

SCRIPT = Path(__file__).parents[2] / "examples" / "accuracy" / "run.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return loaded(SCRIPT)


def exposition(values: dict[str, float], arm: str = "stable") -> str:
    registry = CollectorRegistry()
    for metric in (
        metrics.MEAN_SCORE,
        metrics.ACCURACY_MEASURED,
        metrics.ACCURACY_FEEDBACK,
    ):
        gauge = Gauge(metric.name, metric.help, metric.labels, registry=registry)
        if metric.name in values:
            slot = {metrics.ENDPOINT: "accuracy-tweets", metrics.VERSION: "1", metrics.ARM: arm}
            gauge.labels(**slot).set(values[metric.name])
    return generate_latest(registry).decode()


FOUND = {
    metrics.MEAN_SCORE.name: 0.8153,
    metrics.ACCURACY_MEASURED.name: 0.7418,
    metrics.ACCURACY_FEEDBACK.name: 300.0,
}


def test_both_accuracies_are_read_of_the_endpoints_stable_version(example: ModuleType) -> None:
    found = example.read(exposition(FOUND), "accuracy-tweets")
    assert found == example.Accuracy(mean_score=0.8153, measured=0.7418, feedback=300)
    assert example.read(exposition(FOUND), "accuracy-reviews") is None
    assert example.read(exposition(FOUND, arm="canary"), "accuracy-tweets") is None


def test_nothing_is_told_before_labels_are_counted(example: ModuleType) -> None:
    only = {metrics.MEAN_SCORE.name: 0.8}
    assert example.read(exposition(only), "accuracy-tweets") is None


def test_each_endpoint_gets_labelled_texts_of_its_domains(
    example: ModuleType, tmp_path: Path
) -> None:
    file = tmp_path / "texts.jsonl"
    counts = {name: example.write_texts(name, file) for name in example.ENDPOINTS}
    assert counts == {"accuracy-reviews": 600, "accuracy-editorials": 300, "accuracy-tweets": 300}
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert {tuple(row) for row in rows} == {("text", "label")}
