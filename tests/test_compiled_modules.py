"""The modules that mypyc compiles for the images: ``hatch_build.py`` lists them.

``make compiled`` runs this file, and those of the modules, on the compiled ones.
"""

import ast
import importlib.util
import os
from collections import defaultdict
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "contracts", "measures", "preprocess", "service", "gateway", "registry", "stats", "controller",
    "headrace", "tests",
)  # fmt: skip


def build_value(name: str) -> tuple[str, ...]:
    """A constant of ``hatch_build.py``, which needs hatchling to be imported."""
    for node in ast.parse((ROOT / "hatch_build.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            value = ast.literal_eval(node.value)
            assert isinstance(value, tuple)
            return value
    raise AssertionError(name)


COMPILED = build_value("COMPILED")


def test_the_modules_that_are_compiled_are_there() -> None:
    assert len(COMPILED) > 30
    assert [file for file in COMPILED if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize("file", COMPILED)
def test_no_name_is_bound_to_errors_of_two_types_in_one_function(file: str) -> None:
    """mypyc gives a name one type in a function, and raises TypeError for an error of another."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        caught: defaultdict[str, set[str]] = defaultdict(set)
        for node in ast.walk(function):
            if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                caught[node.name].add(ast.unparse(node.type))
        twice = {name: types for name, types in caught.items() if len(types) > 1}
        assert twice == {}, function.name


@pytest.mark.slow
def test_nothing_that_is_not_compiled_builds_on_a_compiled_class() -> None:
    """Python can't load such a class: native classes have no interpreted subclasses."""
    compiled = {file.removesuffix(".py").replace("/", ".") for file in COMPILED}
    imports = [f"from {name} import" for name in compiled]
    left_out = []
    for path in sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        if str(path.relative_to(ROOT)) in COMPILED:
            continue
        text = path.read_text(encoding="utf-8")
        if not any(each in text for each in imports):
            continue  # to parse them all takes seconds
        tree = ast.parse(text)
        native = {
            name.asname or name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in compiled
            for name in node.names
        }
        left_out += [
            f"{path.relative_to(ROOT)}: {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            and native & {ast.unparse(base).split("[")[0] for base in node.bases}
        ]
    assert left_out == []


@pytest.mark.slow
def test_a_class_on_a_base_of_unknown_type_is_refused(tmp_path: Path) -> None:
    """mypyc would lay it out wrong, and the process that uses it would crash."""
    file = tmp_path / "built_on_an_unknown_base.py"
    file.write_text("from not_installed import Base\n\n\nclass Built(Base):\n    pass\n")
    said, _, status = api.run([*build_value("MYPY"), f"--cache-dir={tmp_path}", str(file)])
    assert status == 1
    assert 'Class cannot subclass "Base" (has type "Any")' in said


@pytest.mark.skipif("HEADRACE_COMPILE" not in os.environ, reason="set by make compiled")
@pytest.mark.parametrize("file", COMPILED)
def test_machine_code_is_what_python_loads(file: str) -> None:
    spec = importlib.util.find_spec(file.removesuffix(".py").replace("/", "."))
    assert spec is not None
    assert spec.origin is not None
    assert spec.origin.endswith(".so")
