"""One release has a package store; another is told why it can't have it too."""

from pathlib import Path

import pytest

from registry.packages.store import PackageStore, StoreUnavailableError
from registry.packages.store_mark import FILE, StoreMark

OURS, NEWER, THEIRS = b"a" * 32, b"b" * 32, b"c" * 32


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "store") if request.param == "file" else f"memory://{tmp_path.name}"


def test_the_first_release_has_the_store_and_the_second_is_refused_in_words(url: str) -> None:
    assert StoreMark(url, [OURS]).claim() == ""
    assert StoreMark(url, [OURS]).claim() == ""
    refused = StoreMark(url, [THEIRS]).claim()
    assert "another release" in refused
    assert FILE in refused
    assert StoreMark(url, [OURS]).claim() == ""
    assert PackageStore(url).packages() == []


def test_a_release_keeps_its_store_when_its_key_is_rotated(url: str) -> None:
    StoreMark(url, [OURS]).claim()
    assert StoreMark(url, [NEWER, OURS]).claim() == ""
    assert StoreMark(url, [NEWER]).claim() == ""
    assert StoreMark(url, [OURS]).claim() != ""


def test_a_store_that_is_away_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"no folder")
    with pytest.raises(StoreUnavailableError):
        StoreMark(str(tmp_path / "store"), [OURS]).claim()
