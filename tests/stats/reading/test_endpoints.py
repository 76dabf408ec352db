"""Endpoints out of a folder: the last good state of each."""

from pathlib import Path

import pytest
from registry_fakes import endpoint, ref

from contracts.endpoint import EndpointStatus, ModelEndpoint
from contracts.endpoint_record import ref_to, summary, text_of
from contracts.loading import Device, LoaderReport
from contracts.rollout import RolloutState
from service.cluster.errors import ApiUnavailableError
from service.endpoint_records import FileRecords
from stats.reading.endpoints import WholeStatus, open_reports
from stats.reading.object_files import ObjectFiles


def put(folder: Path, one: ModelEndpoint) -> None:
    folder.mkdir(exist_ok=True)
    aside = folder / ".new"
    aside.write_text(one.model_dump_json(by_alias=True))
    aside.replace(folder / f"{one.name}.json")


def names(files: ObjectFiles[ModelEndpoint]) -> list[str]:
    return [one.name for one in files()]


def test_endpoints_come_change_and_go(tmp_path: Path) -> None:
    folder = tmp_path / "endpoints"
    files = ObjectFiles(folder, ModelEndpoint, "an endpoint")
    assert files() == ()
    put(folder, endpoint(name="b"))
    put(folder, endpoint(name="a"))
    assert names(files) == ["a", "b"]
    (folder / "a.json").unlink()
    assert names(files) == ["b"]


def test_a_broken_file_keeps_its_last_good_state(tmp_path: Path) -> None:
    put(tmp_path, endpoint(name="a"))
    files = ObjectFiles(tmp_path, ModelEndpoint, "an endpoint")
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
    files = ObjectFiles(folder, ModelEndpoint, "an endpoint")
    assert names(files) == ["a"]
    folder.rename(tmp_path / "elsewhere")
    if listed:
        folder.write_text("what a broken mount may show")
    assert names(files) == ["a"]


STATUS = EndpointStatus(
    rollout=RolloutState(
        id="r", candidate=ref("2"), stable=ref(), began=0, step_began=0, evidence={"of": "it"}
    )
)
TEXT = text_of(STATUS)
NAMED = endpoint(summary(STATUS).model_copy(update={"record": ref_to(TEXT, None)}))


class CountedRecords(FileRecords):
    """One record, or an API server that is away; counts how often it is asked."""

    def __init__(self) -> None:
        self.asked, self.away, self.text = 0, False, TEXT

    def read(self, endpoint: ModelEndpoint, slot: str) -> str | None:
        self.asked += 1
        if self.away:
            raise ApiUnavailableError("it does not answer")
        return self.text


def test_the_whole_status_of_an_endpoint_is_read_once_while_it_stays() -> None:
    records = CountedRecords()
    whole = WholeStatus(records)
    assert whole(NAMED).status == STATUS
    assert whole(NAMED).status == STATUS
    assert records.asked == 1
    again = NAMED.model_copy()
    assert whole(again).status == STATUS
    assert records.asked == 2


def test_without_its_record_an_endpoint_keeps_its_summary_and_a_page_does_not_wait_again() -> None:
    records, now = CountedRecords(), 100.0
    whole = WholeStatus(records, lambda: now)
    records.away = True
    assert whole(NAMED) is NAMED
    assert whole(NAMED) is NAMED
    assert records.asked == 1
    now, records.away = now + 10.0, False
    assert whole(NAMED).status == STATUS
    records.text = "another"
    other = NAMED.model_copy()
    assert whole(other) is other


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
