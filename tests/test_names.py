"""What must hold of the names of the product: functions are verbs, classes nouns of the field.

Each bound is what a folder has today. It may only fall: rename, and lower it.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = (
    "contracts", "measures", "preprocess", "service", "gateway", "registry", "rollout", "stats",
    "dashboards", "controller", "headrace", "triton", "bench",
)  # fmt: skip
FUNCTIONS = {"preprocess": 28, "gateway": 109, "registry": 2, "rollout": 2, "bench": 22}
CLASSES = {"preprocess": 1, "gateway": 5}
SHARED = {"contracts": 2, "preprocess": 8, "gateway": 22, "bench": 9}
OF_OTHERS = ("TritonPythonModel", "cancelled")  # names that a program of others asks for
IRREGULAR = re.compile(
    "asleep|begun|broken|brought|built|caught|chosen|done|drawn|driven|fallen|felt|forgotten|found"
    "|freed|frozen|given|gone|got|grown|heard|held|hidden|kept|known|laid|learnt|left|lent|lost"
    "|made|meant|met|paid|proven|ran|risen|said|seen|sent|shown|sold|spent|spoken|stood|stuck|sunk"
    "|taken|taught|thought|thrown|told|torn|understood|unknown|woken|worn|written"
)
NO_PARTICIPLES = ("embed", "shed")
WORD = re.compile(r"_*[A-Z]?[a-z]+")


@dataclass
class FolderNames:
    """Names that are defined in a folder; of functions those that are no properties."""

    functions: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)


@pytest.mark.slow
def test_a_folder_adds_no_function_that_is_named_by_a_bare_participle() -> None:
    found = {folder: _participles(_names(folder).functions) for folder in FOLDERS}
    assert _beyond(found, FUNCTIONS) == {}


@pytest.mark.slow
def test_a_folder_adds_no_class_that_is_named_by_a_bare_participle() -> None:
    found = {folder: _participles(_names(folder).classes) for folder in FOLDERS}
    assert _beyond(found, CLASSES) == {}


@pytest.mark.slow
def test_a_folder_adds_no_class_that_shares_its_name_with_another_one() -> None:
    times = Counter(name for folder in FOLDERS for name in _names(folder).classes)
    found = {
        folder: [
            name for name in _names(folder).classes if times[name] > 1 and name not in OF_OTHERS
        ]
        for folder in FOLDERS
    }
    assert _beyond(found, SHARED) == {}


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("told", True),
        ("_kept", True),
        ("Noted", True),
        ("_Held", True),
        ("refused", True),
        ("keep", False),
        ("cancelled", False),
        ("embed", False),
        ("proceed", False),
        ("read_written", False),
        ("SeenFeedback", False),
        ("StackRecord", False),
    ],
)
def test_a_bare_participle_is_found(name: str, is_one: bool) -> None:
    assert (_participles([name]) == [name]) == is_one


def test_a_property_may_be_an_adjective_and_a_method_may_not() -> None:
    code = """
class Queue:
    @property
    def held(self): ...
    async def dropped(self): ...
"""
    assert list(_functions(ast.parse(code))) == ["dropped"]


def _beyond(found: dict[str, list[str]], bounds: dict[str, int]) -> dict[str, list[str]]:
    return {
        folder: sorted(names)
        for folder, names in found.items()
        if len(names) > bounds.get(folder, 0)
    }


def _participles(names: list[str]) -> list[str]:
    return [
        name
        for name in names
        if WORD.fullmatch(name) and _is_participle(name) and name not in OF_OTHERS
    ]


def _is_participle(name: str) -> bool:
    word = name.strip("_").lower()
    is_regular = word.endswith("ed") and not word.endswith("eed") and word not in NO_PARTICIPLES
    return is_regular or IRREGULAR.fullmatch(word) is not None


@cache
def _names(folder: str) -> FolderNames:
    names = FolderNames()
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names.functions += _functions(tree)
        names.classes += [each.name for each in ast.walk(tree) if isinstance(each, ast.ClassDef)]
    return names


def _functions(tree: ast.AST) -> Iterator[str]:
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = (ast.unparse(one) for one in each.decorator_list)
            if not any("property" in one or one.endswith(".setter") for one in decorators):
                yield each.name
