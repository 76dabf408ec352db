from pathlib import Path

import pytest
from fake_mlflow import FakeMlflow

from registry.convert.errors import EnvironmentFaultError, SourceGoneError, VersionError
from registry.convert.tracking import TrackingServer

pytestmark = pytest.mark.slow  # imports MLflow: more than a second


def write(path: Path, content: bytes = b"x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def keep_all(_: str) -> bool:
    return False


def test_folders_are_walked_and_files_come_whole(fake: FakeMlflow, tmp_path: Path) -> None:
    content = bytes(range(256)) * 9000
    write(fake.root / "v" / "a.json")
    write(fake.root / "v" / "deep" / "er" / "with space.bin", content)
    TrackingServer(fake.uri).download("mlflow-artifacts:/v", tmp_path / "got", skip=keep_all)
    assert (tmp_path / "got" / "a.json").is_file()
    assert (tmp_path / "got" / "deep" / "er" / "with space.bin").read_bytes() == content


def test_artifacts_elsewhere_come_by_their_own_url(fake: FakeMlflow, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "sub" / "model.onnx", b"graph")
    tracking = TrackingServer(fake.uri, sources=[tmp_path.as_uri()])
    tracking.download((tmp_path / "elsewhere").as_uri(), tmp_path / "got", skip=keep_all)
    assert (tmp_path / "got" / "sub" / "model.onnx").read_bytes() == b"graph"


def test_skipped_files_stay_away_and_are_told(fake: FakeMlflow, tmp_path: Path) -> None:
    write(fake.root / "v" / "model.pkl")
    write(fake.root / "v" / "model.onnx")
    skipped = TrackingServer(fake.uri).download(
        "mlflow-artifacts:/v", tmp_path / "got", skip=lambda name: name.endswith(".pkl")
    )
    assert skipped == ("model.pkl",)
    assert [path.name for path in (tmp_path / "got").iterdir()] == ["model.onnx"]


def test_a_source_within_a_run_leads_to_the_runs_files(fake: FakeMlflow) -> None:
    fake.log_run("r1", "mlflow-artifacts:/0/r1/artifacts")
    fake.register("m", "runs:/r1/hf")
    assert (
        TrackingServer(fake.uri).version("m", "1").artifacts
        == "mlflow-artifacts:/0/r1/artifacts/hf"
    )


def test_a_logged_model_leads_to_its_files(fake: FakeMlflow) -> None:
    fake.logged["m-1"] = "mlflow-artifacts:/0/models/m-1"
    fake.register("m", "models:/m-1")
    assert TrackingServer(fake.uri).version("m", "1").artifacts == "mlflow-artifacts:/0/models/m-1"


def test_an_unknown_version_is_not_the_versions_fault_yet(fake: FakeMlflow) -> None:
    with pytest.raises(SourceGoneError, match="does not know nobody") as found:
        TrackingServer(fake.uri).version("nobody", "1")
    assert found.value.bounded
    assert not found.value.by_version


def test_a_server_in_trouble_is_not_the_versions_fault(fake: FakeMlflow) -> None:
    fake.register("m", "mlflow-artifacts:/v")
    fake.broken = True
    with pytest.raises(EnvironmentFaultError, match="503"):
        TrackingServer(fake.uri).version("m", "1")


def test_a_file_that_breaks_off_is_not_the_versions_fault(fake: FakeMlflow, tmp_path: Path) -> None:
    write(fake.root / "v" / "a.json")

    def break_off(path: str, query: dict[str, str]) -> None:
        fake.missing = int(path.endswith("a.json"))

    fake.script = break_off
    with pytest.raises(EnvironmentFaultError, match=r"can't download .*1 more expected"):
        TrackingServer(fake.uri).download("mlflow-artifacts:/v", tmp_path / "got", skip=keep_all)


def test_a_file_that_mlflow_will_not_hand_out_is_not_the_versions_fault(
    fake: FakeMlflow, tmp_path: Path
) -> None:
    write(fake.root / "v" / "a.json")
    fake.script = lambda path, query: (503, b"") if path.endswith("a.json") else None
    with pytest.raises(EnvironmentFaultError, match="answered 503"):
        TrackingServer(fake.uri).download("mlflow-artifacts:/v", tmp_path / "got", skip=keep_all)


def test_a_store_that_is_away_is_not_the_versions_fault(fake: FakeMlflow, tmp_path: Path) -> None:
    allowing = TrackingServer(fake.uri, sources=["carrier-pigeon://x"])
    with pytest.raises(EnvironmentFaultError, match=r"can't download .*carrier-pigeon"):
        allowing.download("carrier-pigeon://x", tmp_path / "got", skip=keep_all)


@pytest.mark.parametrize(
    "source", ["s3://others/secrets", "file:///etc", "mlflow-artifacts://evil:5000/v"]
)
def test_files_where_nobody_allowed_them_are_the_versions_fault(
    fake: FakeMlflow, tmp_path: Path, source: str
) -> None:
    with pytest.raises(VersionError, match=r"its files are at .*mlflow\.sources"):
        TrackingServer(fake.uri).download(source, tmp_path / "got", skip=keep_all)


def test_the_deadline_ends_everything(fake: FakeMlflow) -> None:
    with pytest.raises(EnvironmentFaultError, match="too long"):
        TrackingServer(fake.uri, deadline_seconds=0.0).version("m", "1")


def test_only_http_addresses_are_taken() -> None:
    with pytest.raises(EnvironmentFaultError, match="must begin with http"):
        TrackingServer("file:///etc")


def test_a_name_that_leads_outside_is_refused(fake: FakeMlflow, tmp_path: Path) -> None:
    listed = {"files": [{"path": "../../outside", "is_dir": False}]}
    fake.script = lambda path, query: (200, listed)
    with pytest.raises(VersionError, match="outside"):
        TrackingServer(fake.uri).download("mlflow-artifacts:/v", tmp_path / "got", skip=keep_all)
    assert not (tmp_path / "outside").exists()
