"""Loaders' reports in a folder."""

from pathlib import Path

from registry_fakes import ref

from contracts.loading import LoadedModel, LoaderReport
from registry.reports import FileReports


def report(loader: str, at: float = 1.0) -> LoaderReport:
    return LoaderReport(
        loader=loader, triton_grpc="t:1", at=at, ready=True, loaded=(LoadedModel(ref=ref()),)
    )


def test_each_loader_has_its_own_last_report(tmp_path: Path) -> None:
    reports = FileReports(tmp_path / "reports")
    assert reports.list() == ()
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
