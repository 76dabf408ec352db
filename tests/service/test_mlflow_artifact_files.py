"""MLflow's artifact store by fsspec: what it promises beyond the contract of package stores."""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from fake_mlflow import FakeMlflow, serve

from service.mlflow_artifact_files import MlflowArtifactFiles

WORKSPACE = "x-mlflow-workspace"


@pytest.fixture
def mlflow(tmp_path: Path) -> Iterator[FakeMlflow]:
    with serve(FakeMlflow(tmp_path / "artifacts")) as fake:
        yield fake


@pytest.fixture
def files(mlflow: FakeMlflow) -> MlflowArtifactFiles:
    return MlflowArtifactFiles(mlflow.uri, environment={"MLFLOW_TRACKING_TOKEN": "secret"})


def test_its_url_opens_it_with_the_servers_address_left_out_of_paths() -> None:
    found, path = fsspec.core.url_to_fs("mlflow-artifacts+https://mlflow.example.com/a/b")
    assert isinstance(found, MlflowArtifactFiles)
    assert path == "a/b"
    assert found.unstrip_protocol(path) == "mlflow-artifacts+https://mlflow.example.com/a/b"


def test_what_was_written_is_read_back_whole_or_in_part(files: MlflowArtifactFiles) -> None:
    files.pipe_file("a folder/b.bin", b"0123456789")
    assert files.cat_file("a folder/b.bin") == b"0123456789"
    assert files.cat_file("a folder/b.bin", start=2, end=5) == b"234"
    with files.open("a folder/b.bin", "rb") as file:
        assert file.read() == b"0123456789"


def test_a_file_is_sent_and_fetched_without_being_held_in_memory(
    files: MlflowArtifactFiles, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 20_000  # some of the pieces that are copied at a time
    (tmp_path / "sent").write_bytes(content)
    files.put_file(str(tmp_path / "sent"), "a/big.bin")
    files.get_file("a/big.bin", str(tmp_path / "got"))
    assert (tmp_path / "got").read_bytes() == content
    assert files.info("a/big.bin")["size"] == len(content)


def test_what_is_not_there_is_not_found(files: MlflowArtifactFiles, tmp_path: Path) -> None:
    for ask in (files.cat_file, files.info, files.ls, files.rm):
        with pytest.raises(FileNotFoundError):
            ask("nowhere/at/all")
    assert not files.exists("nowhere")
    with pytest.raises(FileNotFoundError):
        files.get_file("nowhere", str(tmp_path / "got"))
    assert list(tmp_path.glob("got*")) == []


def test_a_folder_is_there_while_something_is_in_it(files: MlflowArtifactFiles) -> None:
    files.makedirs("a/b", exist_ok=True)
    assert not files.exists("a/b")
    files.pipe_file("a/b/c.json", b"{}")
    assert files.isdir("a/b")
    assert files.ls("a", detail=False) == ["a/b"]
    assert files.ls("a/b", detail=False) == ["a/b/c.json"]
    assert files.ls("a/b/c.json", detail=False) == ["a/b/c.json"]


def test_moving_leaves_nothing_behind(files: MlflowArtifactFiles) -> None:
    files.pipe_file("a/aside", b"entry")
    files.mv("a/aside", "a/entry.json")
    assert files.ls("a", detail=False) == ["a/entry.json"]
    assert files.cat_file("a/entry.json") == b"entry"


def test_removing_a_folder_takes_what_is_in_it(files: MlflowArtifactFiles) -> None:
    files.pipe_file("a/b/c.json", b"{}")
    files.pipe_file("a/d.json", b"{}")
    files.rm("a/b", recursive=True)
    assert files.ls("a", detail=False) == ["a/d.json"]


def test_a_server_that_fails_is_an_error_of_the_system_with_its_answer(
    files: MlflowArtifactFiles, mlflow: FakeMlflow
) -> None:
    mlflow.broken = True
    with pytest.raises(OSError, match="answered 503"):
        files.cat_file("a")


def test_a_server_that_is_away_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError, match="refused"):
        MlflowArtifactFiles("http://127.0.0.1:1").cat_file("a")


def test_every_question_carries_the_login(
    files: MlflowArtifactFiles, mlflow: FakeMlflow, tmp_path: Path
) -> None:
    files.pipe_file("a/b", b"")
    files.ls("a")
    files.rm("a/b")
    assert {header["Authorization"] for header in mlflow.headers} == {"Bearer secret"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "header"),
    [
        ({}, None),
        ({"TOKEN": "t"}, "Bearer t"),
        ({"USERNAME": "u", "PASSWORD": "p"}, "Basic dTpw"),
        ({"TOKEN": "t", "USERNAME": "u", "PASSWORD": "p"}, "Basic dTpw"),
        ({"TOKEN": "t", "USERNAME": "u"}, "Bearer t"),
    ],
)
def test_it_signs_in_as_mlflows_own_client_does(
    mlflow: FakeMlflow,
    environment: dict[str, str],
    header: str | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    from mlflow.store.artifact.mlflow_artifacts_repo import MlflowArtifactsRepository

    monkeypatch.setenv("HOME", str(tmp_path))  # where the client would find others
    variables = {f"MLFLOW_TRACKING_{name}": value for name, value in environment.items()}
    variables["MLFLOW_WORKSPACE"] = "team-a"
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    MlflowArtifactFiles(mlflow.uri, environment=variables).exists("a")
    MlflowArtifactsRepository("mlflow-artifacts:/", mlflow.uri).list_artifacts("a")
    ours, theirs = (headers.get("Authorization") for headers in mlflow.headers)
    assert ours == theirs == header
    for headers in mlflow.headers:
        assert {name.lower(): said for name, said in headers.items()}[WORKSPACE] == "team-a"


def test_a_workspace_that_is_not_there_is_no_empty_store(
    mlflow: FakeMlflow, files: MlflowArtifactFiles
) -> None:
    said = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "Workspace 'team-c' not found"}
    mlflow.script = lambda path, query: (404, said)
    for ask in (files.cat_file, files.info, files.ls, files.rm):
        with pytest.raises(OSError, match="'team-c' not found") as refused:
            ask("a/b")
        assert not isinstance(refused.value, FileNotFoundError)


def test_a_bundle_of_certificates_is_mlflows_own_variable(tmp_path: Path) -> None:
    environment = {"MLFLOW_TRACKING_SERVER_CERT_PATH": str(tmp_path / "missing.pem")}
    with pytest.raises(FileNotFoundError):
        MlflowArtifactFiles("https://127.0.0.1:1", environment=environment).cat_file("a")
