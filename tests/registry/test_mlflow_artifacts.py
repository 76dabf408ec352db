"""Where a run's files are put."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow_answers import MlflowAnswers, serve

from registry.errors import SourceRefusedError, SourceUnavailableError
from registry.mlflow_artifacts import MlflowArtifacts

PROXY = "/api/2.0/mlflow-artifacts/artifacts"


@pytest.fixture
def house() -> Iterator[MlflowAnswers]:
    with serve() as made:
        yield made


def artifacts(house: MlflowAnswers) -> MlflowArtifacts:
    return MlflowArtifacts(house.rest(), timeout_seconds=5.0)


def run_at(house: MlflowAnswers, root: str, put_status: int = 200) -> None:
    def answer(path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/runs/get"):
            return 200, {"run": {"info": {"artifact_uri": root}}}
        return put_status, {"message": "no"}

    house.answer = answer


@pytest.mark.parametrize(
    "root",
    ["mlflow-artifacts:/1/abc/artifacts", "mlflow-artifacts://host:1/1/abc/artifacts", "http"],
)
async def test_files_go_through_the_server_where_it_serves_them(
    house: MlflowAnswers, root: str
) -> None:
    run_at(house, f"{house.uri}{PROXY}/1/abc/artifacts" if root == "http" else root)
    await artifacts(house).put("abc", "headrace/e/v2/a file", b"x")
    assert house.asked[0] == ("/api/2.0/mlflow/runs/get", {"run_id": "abc"})
    assert house.files == {f"{PROXY}/1/abc/artifacts/headrace/e/v2/a file": b"x"}


async def test_files_go_where_they_lie_where_the_server_serves_none(
    house: MlflowAnswers, tmp_path: Path
) -> None:
    run_at(house, tmp_path.as_uri())
    await artifacts(house).put("abc", "headrace/e.json", b"x")
    assert (tmp_path / "headrace" / "e.json").read_bytes() == b"x"


async def test_a_run_that_is_gone_is_a_refusal(house: MlflowAnswers) -> None:
    house.answer = lambda path, query: (404, {})
    with pytest.raises(SourceRefusedError, match="abc"):
        await artifacts(house).put("abc", "e.json", b"x")


async def test_a_store_that_nobody_here_can_reach_is_a_refusal(house: MlflowAnswers) -> None:
    run_at(house, "no-such-store://bucket/abc")
    with pytest.raises(SourceRefusedError, match="no-such-store"):
        await artifacts(house).put("abc", "e.json", b"x")


async def test_a_server_that_fails_is_tried_again(house: MlflowAnswers) -> None:
    run_at(house, "mlflow-artifacts:/1/abc/artifacts", put_status=503)
    with pytest.raises(SourceUnavailableError):
        await artifacts(house).put("abc", "e.json", b"x")
