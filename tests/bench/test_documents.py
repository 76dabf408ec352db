"""Tables go between the markers of a document that name them."""

import pytest

from bench.documents import NoMarkersError, written

DOCUMENT = """\
a
<!-- measured: one -->
old
<!-- end -->
b
<!-- measured: two -->
<!-- end -->
c
"""


def test_tables_go_between_their_markers_and_nothing_else_is_touched() -> None:
    found = written(DOCUMENT, {"two": "| 2 |", "one": "| 1 |"}, "measured")
    second = "two -->\n<!-- end -->"
    assert found == DOCUMENT.replace("old", "| 1 |").replace(
        second, second.replace("\n", "\n| 2 |\n")
    )
    with pytest.raises(NoMarkersError, match="measured: three"):
        written(DOCUMENT, {"three": ""}, "measured")
