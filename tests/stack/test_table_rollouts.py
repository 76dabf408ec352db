"""Versions of tables on the whole stack: promoted where alike, taken back where worse, counted."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from prometheus_client.parser import text_string_to_metric_families

pytest.importorskip("skl2onnx", reason="needs the extra tables")

import pyfunc_models
import table_models
from rolling_stack import LOOSE, SHORT, register_folder, report, until_told, watched
from running_stack import RunningStack
from table_models import buys, classifier, people
from traffic import Traffic, Way
from waiting import until

from contracts.rollout import Outcome

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(3600),  # a pyfunc's packages are installed three times
    pytest.mark.filterwarnings("ignore"),  # MLflow's own
]
SECONDS = 1200.0
ROWS = 20  # of a request
MOST_INCOME = 150_000  # which no row has that the versions were logged with
CHEESE = "out of cheese"
# Sure of itself where it was proved, and not where callers are.
BRITTLE = f"""
if (model_input["income"] > {MOST_INCOME}).any():
    raise RuntimeError("{CHEESE}")
{pyfunc_models.SEGMENTS}
"""


@dataclass(frozen=True)
class Kind:
    """Models of tables: how a good version and a faulty one are logged, and what takes it back."""

    good: Callable[[Path], Path]
    faulty: Callable[[Path], Path]
    check: str


def of_scikit_learn(*, one_class: bool = False) -> Callable[[Path], Path]:
    model, frame = classifier()
    if one_class:  # it buys, whoever it is
        answers = buys(frame)
        answers[:] = "yes"
        answers[:4] = "no"
        model.fit(frame, answers)
    return table_models.logged(model, frame)


def of_python(body: str) -> Callable[[Path], Path]:
    return lambda folder: pyfunc_models.logged(folder, body=body, outputs=np.array(["rich"]))


KINDS = {
    "scikit-learn": lambda: Kind(of_scikit_learn(), of_scikit_learn(one_class=True), "classShare"),
    "pyfunc": lambda: Kind(of_python(pyfunc_models.SEGMENTS), of_python(BRITTLE), "errorRate"),
}


def callers_rows(seed: int) -> list[str]:
    """Rows as JSON: half of them have incomes that no row of the versions has."""
    frame: pd.DataFrame = people(ROWS, seed=seed)
    frame.loc[: ROWS // 2, "income"] *= 20
    return [json.dumps(row) for row in frame.to_dict("records")]


def series(stack: RunningStack, metric: str, endpoint: str) -> list[tuple[dict[str, str], float]]:
    """Labels and values of an endpoint's series at the statistics' page."""
    text = httpx.get(f"{stack.stats}/metrics", timeout=60).text
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == metric and sample.labels.get("endpoint") == endpoint
    ]


def by_statistic(stack: RunningStack, metric: str, endpoint: str) -> dict[str, float]:
    """The largest value of each statistic."""
    found: dict[str, float] = {}
    for labels, value in series(stack, metric, endpoint):
        found[labels["statistic"]] = max(value, found.get(labels["statistic"], 0.0))
    return found


@pytest.mark.parametrize(
    "kind",
    # A pyfunc's packages are installed for each version: minutes.
    ["scikit-learn", pytest.param("pyfunc", marks=pytest.mark.soak)],
)
def test_tables_are_rolled_out_counted_and_watched_as_texts_are(
    stack: RunningStack, tmp_path: Path, kind: str
) -> None:
    versions = KINDS[kind]()
    name = f"tables-{kind}"
    stack.apply(
        f"""
apiVersion: headrace.dev/v1alpha1
kind: ModelEndpoint
metadata: {{name: {name}}}
spec:
  model: {name}
  limits: {{timeoutSeconds: 30}}
  rollout:
    steps: [{SHORT}]
    deadline: 1h
    bake: 5s
    checks:{LOOSE}"""
    )
    good = versions.good(tmp_path / "good")
    assert register_folder(stack, name, good) == "1"
    ways = [Way(gateway, name, "rows") for gateway in stack.gateways]
    texts = [callers_rows(seed) for seed in range(20)]
    with watched(stack, name) as watch:
        watch.until(
            "version 1 has the callers",
            SECONDS,
            lambda status: status.stable is not None and status.stable.version == "1",
        )
        for gateway in stack.gateways:
            answers = partial(_answers, gateway.url, name, texts[0])
            until(f"{gateway.name} answers", 300, answers)
        with Traffic(ways, texts, callers=6, pause_seconds=0.1, timeout_seconds=60) as load:
            assert register_folder(stack, name, good) == "2"
            end = watch.until_ended("2", SECONDS)
            assert end.outcome is Outcome.SETTLED, end
            faulty = versions.faulty(tmp_path / "faulty")
            assert register_folder(stack, name, faulty) == "3"
            end = watch.until_ended("3", SECONDS)
            assert end.outcome is Outcome.ROLLED_BACK, end
            failed = {check.name for check in end.checks if check.verdict.value == "fail"}
            assert versions.check in failed
            until_told(stack, "3", "RolledBack", "2", name)
            assert versions.check in report(stack, "3", name)
            # Statistics of features, and drift of the one that callers have otherwise.
            until(
                "drift is told",
                SECONDS,
                lambda: "own:income" in by_statistic(stack, "headrace_drift_psi", name),
                every_seconds=1.0,
            )
        psi = by_statistic(stack, "headrace_drift_psi", name)
        assert psi["own:income"] > 0.2
        assert psi["own:age"] < 0.2
        counted = by_statistic(stack, "headrace_own_histogram_count", name)
        assert {"age", "income"} <= counted.keys()
        cities = {
            labels["value"]
            for labels, count in series(stack, "headrace_own_category_total", name)
            if labels["statistic"] == "city" and count
        }
        assert cities == {"Oslo", "Paris", "Rome"}
    # What fails on the version on trial is no caller's: at most the limit of time is.
    others = [reply.body for reply in load.replies if reply.status != 200]
    assert not [body for body in others if CHEESE in body]
    assert len(others) < len(load.replies) / 10, others[:5]


def _answers(gateway: str, endpoint: str, rows: list[str]) -> bool:
    body: dict[str, Any] = {"instances": [json.loads(row) for row in rows]}
    answer = httpx.post(f"{gateway}/v1/models/{endpoint}:predict", json=body, timeout=60)
    return answer.status_code == 200
