"""Loaders' reports in a folder."""

from pathlib import Path

import pytest
from registry_fakes import report

from registry.stores.reports import FileReports


def test_a_broken_report_hides_no_other(tmp_path: Path) -> None:
    reports = FileReports(tmp_path)
    reports.put(report(loader="a"))
    (tmp_path / "b.json").write_text("{")
    assert reports.list() == (report(loader="a"),)
    assert reports.get("b") is None


def test_a_folder_that_was_never_there_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    reports = FileReports(tmp_path / "reports")
    with pytest.raises(FileNotFoundError):
        reports.list()
    assert reports.disconnected
    (tmp_path / "reports").mkdir()
    assert reports.list() == ()
    assert not reports.disconnected


@pytest.mark.parametrize("instead", ["nothing", "a file"])
def test_a_folder_that_goes_away_keeps_all_reports_and_no_silence_counts(
    tmp_path: Path, instead: str
) -> None:
    folder = tmp_path / "reports"
    reports = FileReports(folder)
    for item in (report(loader="a"), report(loader="b")):
        reports.put(item)
    assert reports.list() == (report(loader="a"), report(loader="b"))
    folder.rename(tmp_path / "elsewhere")
    if instead == "a file":
        folder.write_text("what a broken mount may show")
    assert reports.list() == (report(loader="a"), report(loader="b"))
    assert reports.disconnected
    folder.unlink(missing_ok=True)
    (tmp_path / "elsewhere").rename(folder)
    (folder / "a.json").unlink()
    assert reports.list() == (report(loader="b"),)
    assert not reports.disconnected


def test_a_report_that_breaks_keeps_what_it_said_last(tmp_path: Path) -> None:
    reports = FileReports(tmp_path)
    reports.put(report(loader="a"))
    assert reports.list() == (report(loader="a"),)
    (tmp_path / "a.json").write_text("{")
    assert reports.list() == (report(loader="a"),)
