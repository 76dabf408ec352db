"""The command: killed and begun again, from a pipe, to a URL, and its sentences."""

import asyncio
import json
import signal
import socket
import sys
from array import array
from pathlib import Path
from typing import Any, cast

import pytest
from gateway_process import gateway_at, lay_out_packages, put
from gateway_world import endpoint_of, manifest_of
from scripted_server import serving
from typer.testing import CliRunner
from vector_gateway import SPACE, VectorGateway, vector_of

from contracts.backfills import BACKFILLS, BackfillProgress, list_backfills, note_backfill
from contracts.endpoint import (
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Phase,
    Route,
)
from contracts.model import ModelRef
from contracts.rollout import CutoverAt, EmbeddingSpec, RolloutSpec, RolloutState
from contracts.tasks import Task
from headrace.backfill.files import read_vectors
from headrace.cli import app
from headrace.stack.state import claim_home
from registry.stores.endpoints import FileEndpointStore

ROWS = 10_000  # more than two parts


def parts_of(output: Path) -> Path:
    return output.with_name(f"{output.name}.parts")


def lines(count: int) -> bytes:
    return b"".join(b'{"id": %d, "text": "text %d"}\n' % (i, i) for i in range(count))


async def begin(url: str, output: Path, *more: str) -> asyncio.subprocess.Process:
    line = (sys.executable, "-P", "-m", "headrace", "backfill", "minilm", "--space", "next")
    files = ("--input", "-", "--output", str(output), "--texts", "500", "--url", url, *more)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *line, *files, stdin=pipe, stdout=pipe, stderr=pipe, cwd=Path(__file__).parents[3]
    )


async def test_killed_in_the_middle_and_begun_again_it_writes_each_id_once(tmp_path: Path) -> None:
    output, gateway = tmp_path / "vectors.jsonl", VectorGateway()
    reached = asyncio.Event()
    gateway.on_request = lambda: reached.set() if len(gateway.seen) == 12 else None
    async with serving(gateway) as server:
        first = await begin(server.url, output)
        ended = asyncio.ensure_future(first.communicate(lines(ROWS)))
        await reached.wait()
        first.send_signal(signal.SIGKILL)
        await ended
        assert first.returncode == -signal.SIGKILL
        assert not output.exists()
        asked = len(gateway.texts)
        again = await begin(server.url, output, "-o", "json")
        said, errors = await again.communicate()  # the texts are where the first has put them
    assert again.returncode == 0, errors.decode()
    summary = json.loads(said)
    assert (summary["rows"], summary["space"]) == (ROWS, SPACE)
    assert "The endpoint can't be read here" in summary["next"]
    assert "does not show how far it is" in errors.decode()
    found = [(key, list(array("f", cast("Any", vector)))) for key, vector in read_vectors(output)]
    assert found == [(i, vector_of(f"text {i}")) for i in range(ROWS)]
    assert len(gateway.texts) - asked < ROWS  # a part was kept
    assert not parts_of(output).exists()


async def test_files_may_lie_in_any_store(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_bytes(lines(3))
    (tmp_path / "here").mkdir()
    async with serving(VectorGateway()) as server:
        url = f"file://{tmp_path}"
        line = ["--input", f"{url}/texts.jsonl", "--output", f"{url}/vectors.parquet"]
        made = await begin(server.url, Path("unused"), *line)
        _, errors = await made.communicate()
    assert made.returncode == 0, errors.decode()
    assert [key for key, _ in read_vectors(tmp_path / "vectors.parquet")] == [0, 1, 2]


OLD = "b" * 12


def endpoint(
    *,
    passed_at: float | None = 2.0,
    promoted_at: float | None = None,
    cutover: CutoverAt = CutoverAt.BACKFILL,
    old: str = OLD,
    new: str = SPACE,
    task: Task = Task.TEXT_EMBEDDING,
    others: int = 9,
) -> ModelEndpoint:
    """One with a rollout from one space to another; beside it, another output has 9 texts."""
    before, after = (
        ModelRef(model="m", version=f"{at}", package=f"{at}" * 64, space=space)
        for at, space in enumerate((old, new))
    )
    state = RolloutState(
        id="r", stable=before, candidate=after, began=1.0, step_began=1.0,
        passed_at=passed_at, promoted_at=promoted_at,
    )  # fmt: skip
    status = EndpointStatus(
        routes=(Route.all_callers(before if promoted_at is None else after),),
        packages=(before, after),
        candidate=Candidate(version="1", phase=Phase.SHADOW, ref=after),
        rollout=state,
        task=task,
    )
    rollout = RolloutSpec(embedding=EmbeddingSpec(cutover=cutover))
    other = BackfillProgress(output="other", space=SPACE, done=9, rows=others, at=1.0)
    return ModelEndpoint(
        metadata=Metadata(name="minilm", annotations=note_backfill({}, other)),
        spec=EndpointSpec(model="m", rollout=rollout),
        status=status,
    )


BY_HAND = "headrace space cutover minilm"


@pytest.mark.parametrize(
    ("found", "code", "says"),
    [
        (endpoint(cutover=CutoverAt.COMMAND), 0, f"When its index is whole: {BY_HAND}"),
        (endpoint(), 12, "no stack runs on this home"),  # so that nobody hears the command
        (endpoint(passed_at=None), 1, "No space of minilm waits for its cutover"),
        (endpoint(others=10), 0, f"other has 9 of 10 texts. If that is over: {BY_HAND}"),
        (endpoint(task=Task.HYBRID_EMBEDDING), 0, f"When its index is whole: {BY_HAND}"),
        (endpoint(new="c" * 12), 1, "is not its next space any more"),
        (endpoint(new="c" * 12, cutover=CutoverAt.COMMAND), 0, ""),
        (endpoint(old=SPACE), 0, ""),  # all callers get it already: a rollout within a space,
        (endpoint(passed_at=None, promoted_at=3.0), 0, ""),  # and a bake
    ],
)
async def test_the_end_of_a_backfill_is_the_cutover_if_the_endpoint_says_so(
    tmp_path: Path, found: ModelEndpoint, code: int, says: str
) -> None:
    with claim_home(tmp_path / "h") as home:
        pass
    store = FileEndpointStore(home.endpoints)
    store.put(found)
    place = ("--home", str(tmp_path / "h"), "-o", "json")
    async with serving(VectorGateway()) as server:
        made = await begin(server.url, tmp_path / "vectors.jsonl", *place)
        said, errors = await made.communicate(lines(3))
    summary = json.loads(said)
    assert (made.returncode, summary["rows"]) == (code, 3), errors.decode()
    if code:
        assert says in errors.decode()
        assert "next" not in summary
        assert "is not its next space" in says or f"next is: {BY_HAND}" in errors.decode()
    else:
        assert summary["next"].endswith(says)
        assert summary["next"] or not says
    (stored,) = store.list()
    assert [*stored.metadata.annotations] == [BACKFILLS]  # the command was withdrawn
    _, noted = list_backfills(stored.metadata.annotations)
    path = f"{socket.gethostname()}:{tmp_path / 'vectors.jsonl'}"[-200:]
    assert (noted.output, noted.space, noted.done, noted.rows) == (path, SPACE, 3, 3)


def test_an_output_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    output = tmp_path / "vectors.jsonl"
    output.write_text("mine")
    (tmp_path / "vectors.jsonl.parts").mkdir()
    (tmp_path / "vectors.jsonl.parts" / "of mine too").touch()
    line = ["backfill", "minilm", "--input", "t.jsonl", "--output", str(output), "--url"]
    said = CliRunner().invoke(app, [*line, "http://127.0.0.1:9"])
    assert said.exit_code == 1
    assert "is there already" in said.output
    assert output.read_text() == "mine"
    assert [each.name for each in (tmp_path / "vectors.jsonl.parts").iterdir()] == ["of mine too"]


def test_bad_input_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_bytes(lines(1) * 2)
    line = ["backfill", "minilm", "--input", str(texts), "--output", str(tmp_path / "v.jsonl")]
    said = CliRunner().invoke(app, [*line, "--url", "http://127.0.0.1:9"])
    assert said.exit_code == 10
    assert "two rows have the id 0" in said.output.replace("\n", " ")


def test_a_place_that_takes_no_files_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_bytes(lines(1))
    line = ["backfill", "minilm", "--input", str(tmp_path / "texts.jsonl"), "--output"]
    output = str(tmp_path / "texts.jsonl" / "v.jsonl")
    said = CliRunner().invoke(app, [*line, output, "--url", "http://127.0.0.1:9"])
    assert said.exit_code == 10
    assert "Files can't be written or read" in said.output.replace("\n", " ")


@pytest.mark.real
async def test_a_gateway_answers_as_the_one_of_these_tests(tmp_path: Path) -> None:
    """A real process, on an engine that answers at once, beside callers of its own."""
    home, output = tmp_path / "home", tmp_path / "vectors.parquet"
    manifest = manifest_of(task=Task.TEXT_EMBEDDING).model_copy(update={"space": SPACE})
    (ref,) = lay_out_packages(home, manifest)
    put(home, endpoint_of(ref, name="minilm"))
    async with gateway_at(home) as running:
        url = str(running.http.base_url)
        first = await begin(url, output, "--space", SPACE, "--concurrency", "2")
        ended = asyncio.ensure_future(first.communicate(lines(ROWS)))
        while not list(parts_of(output).glob("part-*")):
            asked = {"model": "minilm", "input": "w1 w2"}
            said = await running.http.post("/v1/embeddings", json=asked)
            assert said.status_code == 200, said.text
        first.send_signal(signal.SIGKILL)
        await ended
        again = await begin(url, output, "--space", SPACE, "-o", "json")
        summary, errors = await again.communicate()
        assert again.returncode == 0, errors.decode()
        shown = (await running.operations.get("/metrics")).text
    assert json.loads(summary)["space"] == SPACE
    assert [key for key, _ in read_vectors(output)] == list(range(ROWS))
    assert 'headrace_gateway_bulk_requests_total{endpoint="minilm",status="200"}' in shown
