"""Loaders' reports in a folder."""

from pathlib import Path

import pytest
from registry_fakes import ref

from contracts.loading import LoadedModel, LoaderReport
from registry.stores.reports import FileReports


def report(loader: str, at: float = 1.0) -> LoaderReport:
    return LoaderReport(
        loader=loader, triton_grpc="t:1", at=at, ready=True, loaded=(LoadedModel(ref=ref()),)
    )


def test_each_loader_has_its_own_last_report(tmp_path: Path) -> None:
    reports = FileReports(tmp_path / "reports")
    for item in (report("a"), report("b"), report("a", 2.0)):
        reports.put(item)
    assert reports.list() == (report("a", 2.0), report("b"))
    assert reports.get("a") == report("a", 2.0)


def test_a_broken_report_hides_no_other(tmp_path: Path) -> None:
    reports = FileReports(tmp_path)
    reports.put(report("a"))
    (tmp_path / "b.json").write_text("{")
    assert reports.list() == (report("a"),)
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
    for item in (report("a"), report("b")):
        reports.put(item)
    assert reports.list() == (report("a"), report("b"))
    folder.rename(tmp_path / "elsewhere")
    if instead == "a file":
        folder.write_text("what a broken mount may show")
    assert reports.list() == (report("a"), report("b"))
    assert reports.disconnected
    folder.unlink(missing_ok=True)
    (tmp_path / "elsewhere").rename(folder)
    (folder / "a.json").unlink()
    assert reports.list() == (report("b"),)
    assert not reports.disconnected


def test_a_report_that_breaks_keeps_what_it_said_last(tmp_path: Path) -> None:
    reports = FileReports(tmp_path)
    reports.put(report("a"))
    assert reports.list() == (report("a"),)
    (tmp_path / "a.json").write_text("{")
    assert reports.list() == (report("a"),)
