"""``headrace packages verify`` says which packages of a store are not whole."""

import json
from pathlib import Path

import pytest
from registry_fakes import packed

from headrace.commands.packages import verify
from headrace.errors import RefusedError, RequestFailedError
from registry.packages.store import PackageStore


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
