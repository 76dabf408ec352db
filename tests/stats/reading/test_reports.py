"""The reports that the page shows: of a folder as it is now, and of nowhere none."""

from pathlib import Path

from contracts.loading import Device, LoaderReport
from stats.reading.reports import open_reports


def report(loader: str, name: str = "") -> LoaderReport:
    device = Device(name=name) if name else None
    return LoaderReport(loader=loader, triton_grpc="t:1", at=1.0, ready=True, device=device)


def test_the_last_report_of_each_loader_is_told(tmp_path: Path) -> None:
    told = open_reports(str(tmp_path), {})
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(report(name).model_dump_json())
    assert [each.loader for each in told()] == ["a", "b"]
    (tmp_path / "a.json").write_text(report("a", "NVIDIA H200").model_dump_json())
    (tmp_path / "b.json").unlink()
    (found,) = told()
    assert found.device is not None
    assert found.device.name == "NVIDIA H200"


def test_without_a_place_nothing_is_told() -> None:
    assert open_reports("", {})() == ()
