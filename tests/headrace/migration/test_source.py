"""Nothing of a manifest is lost without a word."""

import re
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from headrace.migration import kserve
from headrace.migration.source import ManifestMapping, flags

_NAMES = st.text("abcdef", min_size=1, max_size=3)
_LEAVES = st.integers(1, 9) | st.text("xyz", min_size=1)
_TREES = st.dictionaries(
    _NAMES,
    st.recursive(
        _LEAVES,
        lambda inner: (
            st.dictionaries(_NAMES, inner, min_size=1)
            | st.lists(st.dictionaries(_NAMES, inner, min_size=1), min_size=1, max_size=3)
        ),
        max_leaves=12,
    ),
)


def _walk(part: ManifestMapping, tree: dict[str, Any], choices: Any, used: set[str]) -> None:
    """Takes some fields, enters some others and leaves the rest; ``used`` gets the leaves taken."""
    for name, value in tree.items():
        step = choices(st.integers(0, 2))
        if step == 0:
            part.take(name)
            used.update(_leaves(value, part.path_of(name)))
        elif step == 1 and isinstance(value, dict):
            _walk(part.part(name), value, choices, used)
        elif step == 1 and isinstance(value, list):
            for inner, each in zip(part.parts(name), value, strict=True):
                _walk(inner, each, choices, used)


def _leaves(value: Any, path: str) -> set[str]:
    if isinstance(value, dict):
        return {leaf for key, each in value.items() for leaf in _leaves(each, f"{path}.{key}")}
    if isinstance(value, list):
        return {leaf for n, each in enumerate(value) for leaf in _leaves(each, f"{path}[{n}]")}
    return {path}


@given(_TREES, st.data())
def test_every_leaf_is_either_taken_or_reported_once(tree: dict[str, Any], data: Any) -> None:
    part, used = ManifestMapping(tree), set[str]()
    _walk(part, tree, data.draw, used)
    everything = {leaf for key, each in tree.items() for leaf in _leaves(each, key)}
    for leaf in everything:
        reported = [
            path
            for path in part.list_left()
            if leaf == path or leaf.startswith((f"{path}.", f"{path}["))
        ]
        assert len(reported) == (leaf not in used)


def test_flags_are_read_in_each_form() -> None:
    given = ["run", "--a-b", "1", "-p", "80", "--c=2", "--on", "--d", "x", "y"]
    assert flags(given) == {"a_b": "1", "p": "80", "c": "2", "on": "true", "d": "x"}


ROOT = Path(__file__).parent.parent.parent.parent


def test_values_and_pages_that_reasons_name_exist() -> None:
    tables = [value for value in vars(kserve).values() if isinstance(value, dict)]
    said = " ".join(str(each) for table in tables for each in table.values())
    values = yaml.safe_load((ROOT / "charts/headrace/values.yaml").read_text(encoding="utf-8"))
    parts = "|".join(values)
    for name in re.findall(rf"\b((?:{parts})(?:\.\w+)+)", said):
        found = values
        for step in name.split("."):
            assert step in found, name
            found = found[step]
    pages = re.findall(r"docs/[\w-]+\.md", said)
    assert [page for page in pages if not (ROOT / page).exists()] == []
