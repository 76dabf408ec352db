"""The documents name files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|toml|txt|jsonl|json))`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_document_links_to_exists(document: Path) -> None:
    missing = [
        link
        for link in LINK.findall(document.read_text(encoding="utf-8"))
        if not (document.parent / link).exists()
    ]
    assert missing == []


def test_the_two_walks_name_files_that_exist() -> None:
    named = FILE.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []
