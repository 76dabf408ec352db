"""Which modules of tests an expression of markers leaves out, so that nobody imports them."""

import re
from functools import cache
from itertools import chain, combinations

from _pytest.mark.expression import Expression

_MARKER = re.compile(r"\bpytest\.mark\.(\w+)")
_PROPERTY = "from hypothesis import"  # whose plugin marks each property
_OF_THE_MODULE = re.compile(r"^pytestmark = .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


def leaves_out(expression: str, source: str) -> bool:
    """Whether no test of a module is selected, whichever of the module's markers each has.

    Args:
        expression: of ``pytest -m``.
        source: of the module; every marker of its tests must be written in it.
    """
    declared = _OF_THE_MODULE.search(source)
    certain = frozenset(_MARKER.findall(declared[0] if declared else ""))
    markers = [*_MARKER.findall(source), *["hypothesis"] * (_PROPERTY in source)]
    possible = frozenset(markers) & frozenset(re.findall(r"\w+", expression))
    return not _may_select(expression, certain, possible - certain)


@cache
def _may_select(expression: str, certain: frozenset[str], possible: frozenset[str]) -> bool:
    compiled = Expression.compile(expression)
    sets = chain.from_iterable(combinations(possible, size) for size in range(len(possible) + 1))
    return any(_selects(compiled, certain.union(each)) for each in sets)


def _selects(compiled: Expression, markers: frozenset[str]) -> bool:
    return compiled.evaluate(lambda name, /, **_: name in markers)
