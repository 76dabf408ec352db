"""What a docstring shows after ``>>>`` is what the function gives."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = (
    "contracts", "measures", "preprocess", "service", "gateway", "registry", "rollout", "stats",
    "dashboards", "controller", "headrace",
)  # fmt: skip
WITH_EXAMPLES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_an_example_in_a_docstring_is_true(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0
