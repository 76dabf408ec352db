"""The table of clients in the documents is that of the tests."""

from pathlib import Path

from client_table import DOCUMENT, ROOT, ROWS, with_table


def test_the_document_has_the_table_as_it_is_now() -> None:
    found = DOCUMENT.read_text(encoding="utf-8")
    assert with_table(found) == found, "run: python -P tests/support/client_table.py"


def test_every_row_has_its_test_and_every_test_its_row() -> None:
    tests = {row.test for row in ROWS}
    assert [test for test in tests if not (ROOT / test).exists()] == []
    own = {Path(__file__).name, "test_go_and_java.py"}  # and what has no package
    here = {
        path.relative_to(ROOT).as_posix()
        for path in Path(__file__).parent.glob("test_*.py")
        if path.name not in own
    }
    assert here - tests == set()
