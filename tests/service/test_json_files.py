"""A folder that can't be listed is never taken for an empty one."""

from pathlib import Path

import pytest

from service import json_files


def test_files_come_by_name_without_hidden_and_other_ones(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", ".a.json.7", ".c.json", "note.txt", ".lock"):
        (tmp_path / name).write_text("{}")
    assert list(json_files.stamps(tmp_path)) == ["a.json", "b.json"]


def test_a_file_that_was_written_again_has_another_stamp(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    before = json_files.stamps(tmp_path)
    assert json_files.stamps(tmp_path) == before
    (tmp_path / ".a").write_text("{}")
    (tmp_path / ".a").rename(tmp_path / "a.json")
    assert json_files.stamps(tmp_path) != before


def test_an_empty_folder_holds_no_file(tmp_path: Path) -> None:
    assert json_files.stamps(tmp_path) == {}


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="endpoints"):
        json_files.stamps(tmp_path / "endpoints")


def test_a_folder_that_can_not_be_listed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "endpoints").write_text("no folder")
    with pytest.raises(NotADirectoryError, match="endpoints"):
        json_files.stamps(tmp_path / "endpoints")


def test_a_file_that_is_gone_when_it_is_looked_at_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "gone.json").symlink_to(tmp_path / "nothing")
    (tmp_path / "a.json").write_text("{}")
    assert list(json_files.stamps(tmp_path)) == ["a.json"]
