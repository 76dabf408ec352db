"""What drift learnt is kept whole, and never keeps anything from starting."""

from pathlib import Path

import pytest

from stats.evaluation.calibration_store import CalibrationFile


def test_it_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "stats" / "learnt.json"
    CalibrationFile(path).save({"e/1/p": {"through": 1.0}})
    CalibrationFile(path).save({"e/1/p": {"through": 2.0}})
    assert CalibrationFile(path).load() == {"e/1/p": {"through": 2.0}}
    assert [found.name for found in path.parent.iterdir()] == ["learnt.json"]


def test_without_a_file_nothing_was_learnt(tmp_path: Path) -> None:
    assert CalibrationFile(tmp_path / "none.json").load() == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema_version": 9, "versions": {}}'])
def test_a_file_that_can_not_be_read_is_told_and_passed_over(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "learnt.json"
    path.write_text(text)
    assert CalibrationFile(path).load() == {}
    assert "calibrated again" in caplog.text


def test_a_folder_that_can_not_be_made_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    CalibrationFile(tmp_path / "file" / "learnt.json").save({})
    assert "can't be saved" in caplog.text
