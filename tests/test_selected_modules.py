"""No selected test is in a module that is left out."""

import re
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression
from hypothesis import given
from hypothesis import strategies as st
from selected_modules import leaves_out

MARKERS = ("slow", "real", "export", "soak", "cluster", "walk")
QUICK = "not slow and not real and not export and not soak and not cluster and not gpu"
REAL = "real and not export and not soak and not cluster"

markers = st.sets(st.sampled_from(MARKERS))
expressions = st.recursive(
    st.sampled_from(MARKERS),
    lambda part: st.one_of(
        part.map("not ({})".format),
        st.tuples(part, st.sampled_from(["and", "or"]), part).map(
            lambda words: "({} {} {})".format(*words)
        ),
    ),
    max_leaves=6,
)


def module(of_module: set[str], *of_tests: set[str]) -> str:
    marked = ", ".join(f"pytest.mark.{name}" for name in sorted(of_module))
    lines = [f'"""A module."""\n\npytestmark = [{marked}]\n\n' if marked else ""]
    for number, names in enumerate(of_tests):
        lines += [f"@pytest.mark.{name}\n" for name in sorted(names)]
        lines.append(f"def test_{number}() -> None: ...\n\n\n")
    return "".join(lines)


def selects(expression: str, names: set[str]) -> bool:
    return Expression.compile(expression).evaluate(lambda name, /, **_: name in names)


@given(expressions, markers, st.lists(markers, max_size=3))
def test_a_module_with_a_selected_test_is_never_left_out(
    expression: str, of_module: set[str], of_tests: list[set[str]]
) -> None:
    is_selected = any(selects(expression, of_module | names) for names in of_tests)
    assert not (is_selected and leaves_out(expression, module(of_module, *of_tests)))


@pytest.mark.parametrize(
    ("expression", "source", "left_out"),
    [
        (QUICK, module({"real", "timeout"}, set()), True),
        (QUICK, module(set(), {"slow"}, set()), False),
        (QUICK, module(set(), set()), False),
        (REAL, module(set(), {"slow"}, set()), True),
        (REAL, module(set(), {"real"}, set()), False),
        (REAL, module({"real"}, {"soak"}, set()), False),
        (REAL, module({"real", "soak"}, set()), True),
        (f"hypothesis and {REAL}", "from hypothesis import given\n" + module({"real"}), False),
        (f"hypothesis and {REAL}", module({"real"}), True),
    ],
)
def test_what_no_test_can_be_selected_from_is_left_out(
    expression: str, source: str, *, left_out: bool
) -> None:
    assert leaves_out(expression, source) is left_out


def test_no_marker_comes_from_outside_of_its_module() -> None:
    tests = Path(__file__).parent
    marker = re.compile(r"\bpytest\.mark\.")
    shared = [*tests.rglob("conftest.py"), *tests.glob("support/**/*.py")]
    assert [file for file in shared if marker.search(file.read_text(encoding="utf-8"))] == []
