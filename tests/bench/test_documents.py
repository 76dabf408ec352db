"""The tables that people read are those of the committed results."""

import json
from pathlib import Path

import numpy as np

from bench import studies
from bench.scale import document as scale

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_and_the_picture_of_many_endpoints_are_those_of_the_results() -> None:
    text = (ROOT / "bench" / "results" / "scale.json").read_text(encoding="utf-8")
    sizes = json.loads(text)["sizes"]
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert studies.written(page, {"scale": scale.table(sizes)}, "measured") == page
    drawn = scale.picture(sizes)
    points = [np.asarray(axes.lines[0].get_xdata()).size for axes in drawn.axes]
    assert points == [len(sizes)] * 4
