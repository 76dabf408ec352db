"""What the chart renders, whole, for some sets of values: a change of a template shows in review.

``WRITE_GOLDEN=1 pytest tests/charts/test_golden.py`` writes what is rendered now.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_chart import CASES, Manifest, everything

GOLDEN = Path(__file__).parent / "golden"
WRITE = "WRITE_GOLDEN=1 pytest tests/charts/test_golden.py"


def shortened(manifest: Manifest) -> Manifest:
    """Without what is made anew each time, and without the content of files."""
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    if kind in {"CustomResourceDefinition", "PrometheusRule"}:
        return {**manifest, "spec": "as in the chart's files"}
    if kind == "Secret" and name.endswith(("-receipts", "-index", "-webhook")):
        return {**manifest, "data": dict.fromkeys(manifest["data"], "made at the install")}
    if kind == "ConfigMap":
        data = {key: _content(key, text) for key, text in manifest["data"].items()}
        return {**manifest, "data": data}
    return manifest


def _content(name: str, text: str) -> object:
    if name == "job.json":
        return json.loads(text)
    return "as in the chart's files"


def golden(manifests: list[Manifest]) -> str:
    ordered = sorted(manifests, key=lambda item: (item["kind"], item["metadata"]["name"]))
    documents: list[Any] = [shortened(manifest) for manifest in ordered]
    return str(yaml.dump_all(documents, Dumper=yaml.CSafeDumper, sort_keys=True, width=110))


@pytest.mark.parametrize("case", CASES)
def test_the_chart_renders_what_was_reviewed(case: str) -> None:
    text = golden(everything(case))
    file = GOLDEN / f"{case}.yaml"
    if os.environ.get("WRITE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"if it is meant so: {WRITE}"
