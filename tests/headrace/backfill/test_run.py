"""No id is lost or doubled and no two spaces meet, whatever ends a backfill and how often."""

import asyncio
import itertools
import json
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_server import answer, serving
from vector_gateway import SPACE, VectorGateway, busy, vector_of

from contracts.backoff import Backoff
from headrace.backfill import files, run
from headrace.backfill.files import TextColumns
from headrace.backfill.run import Backfill, BackfillPlan, Parts
from headrace.backfill.vectors import SparseVector
from headrace.errors import RefusedError, RequestFailedError


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_PAUSES", Backoff(0.0, 0.0))


def texts_of(folder: Path, count: int) -> Path:
    path = folder / "texts.jsonl"
    path.write_text("".join(f'{{"id": "d{i}", "text": "text {i}"}}\n' for i in range(count)))
    return path


def backfill_of(path: Path, output: Path, url: str, **plan: object) -> Backfill:
    columns = TextColumns()
    parts = Parts(output.with_name(f"{output.name}.parts"), output.suffix)
    parts.folder.mkdir(exist_ok=True)
    asked = BackfillPlan(url, "minilm", **{"space": "next", "texts": 4, "part_rows": 8, **plan})  # type: ignore[arg-type]
    return Backfill(asked, path, columns, files.survey(path, columns), parts)


def vectors(output: Path) -> list[tuple[object, list[float]]]:
    return [
        (key, list(array("f", cast("Any", vector)))) for key, vector in files.read_vectors(output)
    ]


def wanted(count: int) -> list[tuple[object, list[float]]]:
    return [(f"d{i}", vector_of(f"text {i}")) for i in range(count)]


@pytest.mark.parametrize("form", files.FORMATS)
async def test_every_id_has_its_vector_bit_for_bit_in_the_inputs_order(
    tmp_path: Path, form: str
) -> None:
    gateway = VectorGateway()
    output = tmp_path / f"vectors{form}"
    async with serving(gateway) as server:
        made = backfill_of(texts_of(tmp_path, 50), output, server.url, api_key="k")
        assert await made.run(output) == pytest.approx(1.0)
    assert vectors(output) == wanted(50)
    assert {headers["x-headrace-class"] for headers in gateway.seen} == {"bulk"}
    assert {headers["authorization"] for headers in gateway.seen} == {"Bearer k"}
    spaces = [headers["x-headrace-space"] for headers in gateway.seen]
    assert (spaces[0], set(spaces[1:])) == ("next", {SPACE})  # by name, once it is known


def cancel_after(requests: int, made: "asyncio.Future[float]") -> Callable[[], None]:
    """Ends a backfill at its request of this number."""
    numbers = itertools.count(1)

    def count() -> None:
        if next(numbers) == requests:
            made.cancel()

    return count


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data(), st.integers(1, 40), st.sampled_from(files.FORMATS))
def test_ended_anywhere_and_begun_again_it_comes_to_the_same(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, count: int, form: str
) -> None:
    folder = tmp_path_factory.mktemp("b")
    output = folder / f"vectors{form}"
    path = texts_of(folder, count)
    faults = data.draw(st.lists(st.sampled_from([None, busy(503), busy(429), b""]), max_size=60))
    ends = data.draw(st.lists(st.integers(1, 30), max_size=4))

    async def walk() -> None:
        gateway = VectorGateway(faults=iter(faults))
        async with serving(gateway) as server:
            for end in ends:
                made = asyncio.ensure_future(backfill_of(path, output, server.url).run(output))
                gateway.on_request = cancel_after(end, made)
                await asyncio.wait([made])
                if not made.cancelled():
                    await made
            gateway.on_request = lambda: None
            await backfill_of(path, output, server.url).run(output)

    asyncio.run(walk())
    assert vectors(output) == wanted(count)


async def test_what_is_done_is_not_asked_for_again(tmp_path: Path) -> None:
    path, output = texts_of(tmp_path, 40), tmp_path / "vectors.jsonl"
    stopping = VectorGateway(faults=iter([None] * 7 + [busy(401)]))
    async with serving(stopping) as server:
        with pytest.raises(RequestFailedError, match=r"401: Not now\. The same command goes on"):
            await backfill_of(path, output, server.url, concurrency=1).run(output)
    done = len(list((tmp_path / "vectors.jsonl.parts").glob("part-*")))
    assert done == 3
    again = VectorGateway()
    async with serving(again) as server:
        made = backfill_of(path, output, server.url)
        advanced: Counter[bool] = Counter()
        made.advance = lambda rows, were_done: advanced.update({were_done: rows})
        await made.run(output)
    assert advanced == {True: 8 * done, False: 40 - 8 * done}
    assert len(again.texts) == 40 - 8 * done + run.SAMPLE
    assert vectors(output) == wanted(40)


async def test_another_space_ends_it_and_nothing_of_that_is_kept(tmp_path: Path) -> None:
    path, output = texts_of(tmp_path, 40), tmp_path / "vectors.jsonl"
    gateway = VectorGateway()

    def change() -> None:
        if len(gateway.seen) == 5:
            gateway.space = "b" * 12

    gateway.on_request = change
    async with serving(gateway) as server:
        with pytest.raises(RequestFailedError, match=r"changed from a+ to b+ in the middle"):
            await backfill_of(path, output, server.url, concurrency=1).run(output)
        with pytest.raises(RequestFailedError, match=r"changed from a+ to b+ in the middle"):
            await backfill_of(path, output, server.url).run(output)  # parts remember
    assert not output.exists()
    kept = [
        each for part in (tmp_path / "vectors.jsonl.parts").glob("part-*") for each in vectors(part)
    ]
    assert kept == wanted(8 * (len(kept) // 8))


async def test_a_model_that_names_no_space_is_refused(tmp_path: Path) -> None:
    output = tmp_path / "vectors.jsonl"
    async with serving(VectorGateway(space="")) as server:
        made = backfill_of(texts_of(tmp_path, 4), output, server.url)
        with pytest.raises(RequestFailedError, match="names no vector space"):
            await made.run(output)


async def test_parts_of_another_backfill_are_refused(tmp_path: Path) -> None:
    path, output = texts_of(tmp_path, 10), tmp_path / "vectors.jsonl"
    async with serving(VectorGateway(faults=iter([None, busy(401)]))) as server:
        with pytest.raises(RequestFailedError):
            await backfill_of(path, output, server.url).run(output)
        for other in (texts_of(tmp_path, 11), path):
            with pytest.raises(RefusedError, match="parts of another backfill"):
                backfill_of(other, output, server.url, space=None if other == path else "next")


async def test_too_many_texts_for_a_request_go_in_halves(tmp_path: Path) -> None:
    path, output = texts_of(tmp_path, 20), tmp_path / "vectors.jsonl"
    async with serving(VectorGateway(most_texts=3)) as server:
        await backfill_of(path, output, server.url, texts=8).run(output)
    assert vectors(output) == wanted(20)


async def test_a_gateway_that_has_just_begun_is_asked_again(tmp_path: Path) -> None:
    """It names a usual task until it has a version, and gives busy machines little time."""
    usual = answer(200, {"task": "text-classification", "versions": []})
    gateway = VectorGateway(
        starting=iter([busy(503), answer(200, "a page"), usual]), faults=iter([busy(408)])
    )
    output = tmp_path / "vectors.jsonl"
    async with serving(gateway) as server:
        await backfill_of(texts_of(tmp_path, 4), output, server.url).run(output)
    assert vectors(output) == wanted(4)


async def test_it_gives_up_once_nobody_has_answered_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_GIVE_UP_SECONDS", -1.0)
    output = tmp_path / "vectors.jsonl"
    async with serving(VectorGateway(faults=iter([busy(503)] * 9))) as server:
        made = backfill_of(texts_of(tmp_path, 4), output, server.url)
        with pytest.raises(RequestFailedError, match=r"503: Not now\. The same command goes on"):
            await made.run(output)


async def test_a_whole_that_is_not_the_inputs_or_the_gateways_is_no_output(tmp_path: Path) -> None:
    path, output = texts_of(tmp_path, 16), tmp_path / "vectors.jsonl"
    folder = tmp_path / "vectors.jsonl.parts"
    for what, error in (("id", "Row 1 of"), ("vector", "gives another vector for 'd0'")):
        async with serving(VectorGateway()) as server:
            await backfill_of(path, output, server.url).run(output)
            part = folder / "part-00000000.jsonl"
            first, _, rest = part.read_text().partition("\n")
            row = json.loads(first)
            row[what] = "d9" if what == "id" else [-x for x in row["vector"]]
            kept = part.read_text()
            part.write_text(f"{json.dumps(row)}\n{rest}")
            output.unlink()
            with pytest.raises(RequestFailedError, match=error):
                await backfill_of(path, output, server.url).run(output)
            assert not output.exists()
            part.write_text(kept)


@pytest.mark.parametrize("form", files.FORMATS)
@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("sparse-embedding", None),
        ("multi-vector-embedding", None),
        ("hybrid-embedding", "sparse"),
        ("hybrid-embedding", "tokens"),
    ],
)
async def test_sparse_vectors_and_those_of_tokens_are_kept_bit_for_bit_too(
    tmp_path: Path, form: str, task: str, kind: str | None
) -> None:
    gateway = VectorGateway(task=task)
    output = tmp_path / f"vectors{form}"
    async with serving(gateway) as server:
        made = backfill_of(texts_of(tmp_path, 30), output, server.url, kind=kind)
        assert await made.run(output) == pytest.approx(1.0)
    found = list(files.read_vectors(output))
    assert [key for key, _ in found] == [f"d{i}" for i in range(30)]
    for (_, kept), number in zip(found, range(30), strict=True):
        text = f"text {number}"
        if isinstance(kept, SparseVector):
            route, told = "embed_sparse", zip(kept.indices, kept.values, strict=True)
            got: list[object] = [{"index": i, "value": n} for i, n in told]
        else:
            route, got = "embed_all", [list(cast("Any", each)) for each in kept]
        assert got == gateway.other_kind(f"/endpoints/minilm/{route}", text)


@pytest.mark.parametrize("task", ["sparse-embedding", "multi-vector-embedding"])
async def test_other_vectors_of_these_kinds_are_found_in_the_sample(
    tmp_path: Path, task: str
) -> None:
    gateway = VectorGateway(task=task)
    asked = itertools.count()

    def turn() -> None:
        if next(asked) == 9:  # all vectors are there, and the sample is asked for
            gateway.other_kind = lambda path, text: VectorGateway.other_kind(  # type: ignore[method-assign]
                gateway, path, f"not {text}"
            )

    gateway.on_request = turn
    async with serving(gateway) as server:
        made = backfill_of(texts_of(tmp_path, 32), tmp_path / "v.jsonl", server.url)
        with pytest.raises(RequestFailedError, match="another vector for"):
            await made.run(tmp_path / "v.jsonl")


@pytest.mark.parametrize(
    ("task", "kind", "says"),
    [
        ("hybrid-embedding", None, "several kinds: choose --kind of dense, sparse, tokens"),
        ("text-embedding", "sparse", "does text-embedding: it gives no sparse"),
        ("text-classification", None, "does text-classification: it gives no vectors"),
    ],
)
async def test_a_kind_that_is_not_given_or_not_named_is_refused_before_a_text_is_sent(
    tmp_path: Path, task: str, kind: str | None, says: str
) -> None:
    gateway = VectorGateway(task=task)
    async with serving(gateway) as server:
        made = backfill_of(texts_of(tmp_path, 3), tmp_path / "v.jsonl", server.url, kind=kind)
        with pytest.raises(RequestFailedError, match=says):
            await made.run(tmp_path / "v.jsonl")
    assert gateway.texts == []


async def test_dense_vectors_of_a_hybrid_model_and_no_other_kind_into_their_folder(
    tmp_path: Path,
) -> None:
    output = tmp_path / "v.jsonl"
    path = texts_of(tmp_path, 30)
    gateway = VectorGateway(task="hybrid-embedding", faults=iter((None, busy(400))))
    async with serving(gateway) as server:
        with pytest.raises(RequestFailedError, match="Not now"):
            await backfill_of(path, output, server.url, kind="dense").run(output)
        with pytest.raises(RefusedError, match="another backfill"):
            backfill_of(path, output, server.url, kind="sparse")
        await backfill_of(path, output, server.url, kind="dense").run(output)
    assert vectors(output) == wanted(30)
