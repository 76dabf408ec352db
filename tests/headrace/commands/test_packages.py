"""``headrace packages`` says what is not whole in a store, and frees one of its release's mark."""

import json
from pathlib import Path

import pytest
from registry_fakes import packed

from headrace.commands.packages import free, verify
from headrace.errors import RefusedError, RequestFailedError
from registry.packages.store import PackageStore
from registry.packages.store_mark import LIVE_SECONDS, StoreMark, read_facts


def test_a_store_whose_packages_are_whole_is_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(tmp_path / "store")
    PackageStore(url).publish(tmp_path / "made", packed(tmp_path / "made"))
    verify(tmp_path, url, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told == {"packages": 1, "damaged": {}, "leftovers": []}


def test_damaged_packages_and_what_was_left_behind_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(tmp_path / "store")
    ref = PackageStore(url).publish(tmp_path / "made", packed(tmp_path / "made"))
    (tmp_path / "store" / ref.package / "model.onnx").unlink()
    (tmp_path / "store" / ".aside-1").mkdir()
    with pytest.raises(RefusedError, match="1 packages are damaged"):
        verify(tmp_path, url, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert "model.onnx" in told["damaged"][ref.package]
    assert told["leftovers"] == [".aside-1"]


def test_a_store_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(RequestFailedError, match="can't be used"):
        verify(tmp_path, "gopher://store", as_json=False)


NOW = 1_790_000_000.0


def marked(url: str) -> StoreMark:
    """A store that a release has marked at ``NOW``."""
    made = StoreMark(url, [b"a" * 32], owner="the controller of team-a", now=lambda: NOW)
    assert made.claim() == ""
    return made


def test_a_store_is_freed_of_a_release_without_signs_of_life_with_who_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(tmp_path / "store")
    marked(url)
    free(tmp_path, url, force=False, now=NOW + LIVE_SECONDS + 1.0)
    assert "the controller of team-a" in capsys.readouterr().out
    assert read_facts(url) is None
    assert StoreMark(url, [b"c" * 32]).claim() == ""


def test_a_store_of_a_release_that_lives_is_freed_only_by_force(tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    marked(url)
    with pytest.raises(RefusedError, match=r"the controller of team-a.*--force"):
        free(tmp_path, url, force=False, now=NOW + LIVE_SECONDS)
    assert read_facts(url) is not None
    free(tmp_path, url, force=True, now=NOW)
    assert read_facts(url) is None


def test_a_mark_of_which_nothing_is_known_is_freed(tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    marked(url)
    (tmp_path / "store" / "release.json").unlink()
    free(tmp_path, url, force=False, now=NOW)
    assert not (tmp_path / "store" / "release.mark").exists()


def test_a_store_that_is_away_can_not_be_freed(tmp_path: Path) -> None:
    with pytest.raises(RequestFailedError, match="can't be used"):
        free(tmp_path, "gopher://store", force=True, now=NOW)
