"""The simulated tables that people read are those of the committed results."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from bench import studies
from bench.drift.__main__ import tables_of
from bench.findings import Finding
from bench.rollouts.__main__ import tables_of as rollout_tables
from bench.scale import document as scale

ROOT = Path(__file__).resolve().parents[2]


def kept(name: str) -> dict[str, dict[str, Any]]:
    text = (ROOT / "bench" / "results" / name).read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)["studies"]
    return found


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it was found: JSON knows no infinity, and keeps what follows from the rest too."""
    found = {name: value for name, value in row.items() if name != "reached"}
    return {**found, "figure": math.inf if found["figure"] is None else found["figure"]}


def test_the_tables_on_rollouts_are_those_of_the_results() -> None:
    for name, study in kept("rollouts.json").items():
        pages = dict.fromkeys(("worlds", "rivals", "one-caller", "copies"), "simulations.md")
        pages |= {"labels": "labels.md", "slow-callers": "own-past.md"}
        page = pages.get(name, "rollout-figures.md")
        document = (ROOT / "docs" / page).read_text(encoding="utf-8")
        made = rollout_tables(name, [Finding(**numbers(row)) for row in study["findings"]])
        assert studies.written(document, made) == document


def test_the_table_and_the_picture_of_many_endpoints_are_those_of_the_results() -> None:
    text = (ROOT / "bench" / "results" / "scale.json").read_text(encoding="utf-8")
    sizes = json.loads(text)["sizes"]
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert studies.written(page, {"scale": scale.table(sizes)}, "measured") == page
    drawn = scale.picture(sizes)
    points = [np.asarray(axes.lines[0].get_xdata()).size for axes in drawn.axes]
    assert points == [len(sizes)] * 4


def test_the_tables_on_drift_are_those_of_the_results() -> None:
    document = (ROOT / "docs" / "drift-figures.md").read_text(encoding="utf-8")
    for name, study in kept("drift.json").items():
        made = tables_of(name, [Finding(**numbers(row)) for row in study["rows"]])
        assert studies.written(document, made) == document
