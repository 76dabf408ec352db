"""Endpoints out of a folder: the last good state of each."""

from pathlib import Path

import pytest
from registry_fakes import endpoint

from contracts.endpoint import ModelEndpoint
from stats.reading.endpoints import EndpointFiles


def put(folder: Path, one: ModelEndpoint) -> None:
    folder.mkdir(exist_ok=True)
    aside = folder / ".new"
    aside.write_text(one.model_dump_json(by_alias=True))
    aside.replace(folder / f"{one.name}.json")


def names(files: EndpointFiles) -> list[str]:
    return [one.name for one in files()]


def test_endpoints_come_change_and_go(tmp_path: Path) -> None:
    folder = tmp_path / "endpoints"
    files = EndpointFiles(folder)
    assert files() == ()
    put(folder, endpoint(name="b"))
    put(folder, endpoint(name="a"))
    assert names(files) == ["a", "b"]
    (folder / "a.json").unlink()
    assert names(files) == ["b"]


def test_a_broken_file_keeps_its_last_good_state(tmp_path: Path) -> None:
    put(tmp_path, endpoint(name="a"))
    files = EndpointFiles(tmp_path)
    assert names(files) == ["a"]
    (tmp_path / "a.json").write_text("{half")
    (tmp_path / "new.json").write_text("{}")
    assert names(files) == ["a"]


@pytest.mark.parametrize("listed", [False, True])
def test_a_folder_that_is_away_or_can_not_be_listed_keeps_them_all(
    tmp_path: Path, *, listed: bool
) -> None:
    folder = tmp_path / "endpoints"
    put(folder, endpoint(name="a"))
    files = EndpointFiles(folder)
    assert names(files) == ["a"]
    folder.rename(tmp_path / "elsewhere")
    if listed:
        folder.write_text("what a broken mount may show")
    assert names(files) == ["a"]
