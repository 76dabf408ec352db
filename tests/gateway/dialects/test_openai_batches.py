"""Files and batches of the unmodified OpenAI client, over two gateways that share a store."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import httpx
import msgspec
import numpy as np
import pytest
from front_fakes import (
    Behind,
    FakeKeys,
    FakePredictor,
    batch_store,
    client_of,
    memory_url,
    ref,
    vector,
    view,
)

from contracts.tasks import Task
from gateway.batch_jobs.objects import ObjectFolder
from gateway.batch_jobs.records import BatchEnd, BatchLease
from gateway.batch_jobs.runner import BatchRunner
from gateway.batch_jobs.store import BatchStore
from gateway.calls import Answer, Call
from gateway.dialects.openai import OpenAI
from gateway.errors import BatchStoreUnavailableError, OverloadedError
from gateway.http.body import BodyReader

if TYPE_CHECKING:
    import openai  # takes most of a second, of each process that collects tests

pytestmark = pytest.mark.slow  # imports openai


def line_of(custom_id: str, text: object, model: str = "minilm", **body: object) -> str:
    return json.dumps(
        {
            "custom_id": custom_id,
            "method": "POST",
            "url": "/v1/embeddings",
            "body": {"model": model, "input": text, **body},
        }
    )


def lines(count: int, **body: Any) -> bytes:
    return "\n".join(
        line_of(f"row-{i}", f"text {'a' * (i % 9)} {i}", **body) for i in range(count)
    ).encode()


@dataclass
class Gateway:
    """One of several on a store."""

    behind: Behind
    name: str = "one"
    lease_seconds: float = 30.0
    shift: float = 0.0  # of its clock for leases

    @property
    def runner(self) -> BatchRunner:
        """What runs its batches; each call makes another."""
        behind = self.behind
        assert behind.batches is not None
        bodies = BodyReader(behind.limits, behind.front.large)
        loop = asyncio.get_running_loop()
        return BatchRunner(
            behind.batches,
            OpenAI(behind.front, bodies).embeddings,
            behind.front.admission,
            self.name,
            lease_seconds=self.lease_seconds,
            look_seconds=0.01,
            clock=lambda: loop.time() + self.shift,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs batches within the block, and ends in order."""
        task = asyncio.create_task(self.runner.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @asynccontextmanager
    async def client(self, key: str = "any") -> AsyncIterator["openai.AsyncOpenAI"]:
        """The client, asking this gateway."""
        import openai

        transport = httpx.ASGITransport(self.behind.app)
        async with (
            httpx.AsyncClient(transport=transport) as http,
            openai.AsyncOpenAI(
                base_url="http://gateway/v1",
                api_key=key,
                max_retries=0,
                http_client=cast("Any", http),
            ) as client,
        ):
            yield client


def gateway(url: str, name: str = "one", **more: Any) -> Gateway:
    return Gateway(Behind(batches=batch_store(url), **more), name)


async def left(client: "openai.AsyncOpenAI", data: bytes, **more: Any) -> "openai.types.Batch":
    """A batch of these lines."""
    file = await client.files.create(file=("in.jsonl", data), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h", **more
    )


async def over(client: "openai.AsyncOpenAI", batch: str) -> "openai.types.Batch":
    """The batch, once it is over."""
    async with asyncio.timeout(600):
        while True:
            found = await client.batches.retrieve(batch)
            if found.status not in ("validating", "in_progress", "cancelling"):
                return found
            await asyncio.sleep(0.05)


async def answers(client: "openai.AsyncOpenAI", file: str | None) -> list[dict[str, Any]]:
    """The lines of an output."""
    if file is None:
        return []
    content = await client.files.content(file)
    return [json.loads(line) for line in content.text.splitlines()]


async def test_a_batch_is_answered_by_another_gateway_line_by_line_in_order() -> None:
    url = memory_url()
    one, other = gateway(url), gateway(url, "other")
    async with one.client() as client, other.running():
        batch = await left(client, lines(300), metadata={"index": "docs"})
        assert (batch.status, batch.request_counts and batch.request_counts.total) == (
            "validating",
            300,
        )
        found = await over(client, batch.id)
        assert (found.status, found.metadata, found.error_file_id) == (
            "completed",
            {"index": "docs"},
            None,
        )
        assert found.request_counts is not None
        assert (found.request_counts.completed, found.request_counts.failed) == (300, 0)
        rows = await answers(client, found.output_file_id)
    assert [row["custom_id"] for row in rows] == [f"row-{i}" for i in range(300)]
    assert rows[7]["response"]["status_code"] == 200
    got = [row["response"]["body"]["data"][0]["embedding"] for row in rows]
    asked = [json.loads(line)["body"]["input"] for line in lines(300).splitlines()]
    np.testing.assert_allclose(got, [vector(text) for text in asked], rtol=1e-6)
    assert one.behind.predictor.calls == []
    assert all(call.bulk for call in other.behind.predictor.calls)


async def test_files_are_listed_read_and_removed() -> None:
    one = gateway(memory_url())
    async with one.client() as client:
        data = lines(3)
        first = await client.files.create(file=("a.jsonl", data), purpose="batch")
        second = await client.files.create(file=("b.jsonl", data), purpose="batch")
        assert (first.filename, first.bytes, first.purpose) == ("a.jsonl", len(data) + 1, "batch")
        assert {file.id async for file in client.files.list()} == {first.id, second.id}
        pages = [file.id async for file in client.files.list(limit=1)]
        assert sorted(pages) == sorted([first.id, second.id])
        assert [file async for file in client.files.list(purpose="batch_output")] == []
        assert (await client.files.content(first.id)).read() == data + b"\n"
        assert (await client.files.delete(first.id)).deleted
        import openai

        with pytest.raises(openai.NotFoundError, match="no file"):
            await client.files.retrieve(first.id)
        batch = await client.batches.create(
            input_file_id=second.id, endpoint="/v1/embeddings", completion_window="24h"
        )
        with pytest.raises(openai.UnprocessableEntityError, match="reads it"):
            await client.files.delete(second.id)
        assert [each.id async for each in client.batches.list()] == [batch.id]


async def test_a_list_goes_on_behind_a_file_that_was_removed_meanwhile() -> None:
    one = gateway(memory_url())
    async with one.client() as client:
        made = [
            (await client.files.create(file=("a.jsonl", lines(1)), purpose="batch")).id
            for _ in range(4)
        ]
        for order in ("desc", "asc"):
            page = await client.files.list(limit=2, order=order)
            await client.files.delete(page.data[-1].id)
            behind = await client.files.list(after=page.data[-1].id, order=order)
            kept = sorted(set(made) - {page.data[-1].id}, reverse=order == "desc")
            assert [each.id for each in behind.data] == kept[1:], order
            made = kept


async def test_a_purpose_that_is_not_taken_is_refused_before_the_file_is_read() -> None:
    import openai

    one = gateway(memory_url())
    async with one.client() as client:
        with pytest.raises(openai.UnprocessableEntityError, match="purpose"):
            await client.files.create(file=("a.jsonl", b"{\n"), purpose="fine-tune")


async def test_a_store_that_is_full_is_waited_for_and_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = gateway(memory_url())
    store = one.behind.batches
    assert store is not None
    put = store.put_part
    refused: list[Any] = []

    def full(*call: Any) -> None:
        if not refused:
            refused.append(call)
            raise BatchStoreUnavailableError("Away.") from OSError(28, "No space left on device")
        put(*call)

    monkeypatch.setattr(store, "put_part", full)
    async with one.client() as client, one.running():
        found = await over(client, (await left(client, lines(3))).id)
    assert found.status == "completed"
    said = [each for each in caplog.records if each.message == "a batch waits for its store"]
    assert ["No space left" in each.__dict__["reason"] for each in said] == [True]


async def test_a_batch_that_breaks_off_by_a_bug_is_not_begun_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = gateway(memory_url())
    store = one.behind.batches
    assert store is not None
    broke = asyncio.Event()
    loop = asyncio.get_running_loop()

    def breaks(*_: Any) -> None:
        loop.call_soon_threadsafe(broke.set)
        raise RuntimeError("a bug")

    monkeypatch.setattr(store, "put_part", breaks)
    async with one.client() as client, one.running():
        batch = await left(client, lines(3))
        await asyncio.wait_for(broke.wait(), 300)
        for _ in range(20):
            await one_look(store)
        assert store.lease("everybody", batch.id)[0] == 1


async def one_look(store: BatchStore) -> None:
    """Time in which the gateway looks for batches."""
    await store.ask(store.open_batches)
    await asyncio.sleep(0.01)


async def test_what_an_end_left_behind_is_removed_by_the_next_gateway() -> None:
    url = memory_url()
    one, key = gateway(url), "everybody"
    store = one.behind.batches
    assert store is not None
    async with one.client() as client:
        batch = await left(client, lines(3))
        store.put_part(key, batch.id, 0, [b"{}"] * 3, [])
        end = BatchEnd("completed", 1, completed=3)
        # As one does that is killed as soon as it has written the end.
        ObjectFolder(url).create(f"batches/{key}/{batch.id}/end.json", msgspec.json.encode(end))
        async with one.running(), asyncio.timeout(300):
            while await store.ask(store.open_batches):
                pass
        assert store.parts(key, batch.id) == set()
        assert (await client.batches.retrieve(batch.id)).status == "completed"


async def test_lines_that_are_refused_do_not_keep_their_key_out() -> None:
    one = gateway(memory_url(), keys=FakeKeys({"a": {"minilm"}}))
    async with one.client("a") as client:
        batch = await left(
            client, b"\n".join(line_of(f"row-{i}", {"no": "text"}).encode() for i in range(100))
        )
        async with one.running():
            found = await over(client, batch.id)
        assert found.request_counts is not None
        assert found.request_counts.failed == 100
        assert (await client.embeddings.create(model="minilm", input="text")).data


async def test_the_rate_counts_lists() -> None:
    import openai

    slow = replace(view("minilm", Task.TEXT_EMBEDDING), requests_per_second_per_key=1e-6)
    keys = FakeKeys({"a": {"minilm"}})
    one = gateway(memory_url(), keys=keys, predictor=FakePredictor({"minilm": slow}))
    async with one.client("a") as client:
        assert (await client.batches.list()).data == []
        with pytest.raises(openai.RateLimitError):
            await client.files.list()


async def test_a_key_sees_only_its_own() -> None:
    import openai

    url = memory_url()
    keys = FakeKeys({"a": {"minilm"}, "b": {"minilm"}, "c": {"sentiment"}})
    one = gateway(url, keys=keys)
    async with one.client("a") as client, one.client("b") as other, one.client("c") as third:
        batch = await left(client, lines(2))
        for ask in (
            other.files.retrieve(batch.input_file_id),
            other.files.content(batch.input_file_id),
            other.files.delete(batch.input_file_id),
            other.batches.retrieve(batch.id),
            other.batches.cancel(batch.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await ask
        assert [each async for each in other.batches.list()] == []
        assert [each async for each in other.files.list()] == []
        with pytest.raises(openai.PermissionDeniedError):
            await left(third, lines(2))
        with pytest.raises(openai.AuthenticationError):
            async with one.client("wrong") as stranger:
                await stranger.files.list()


async def test_a_key_that_is_gone_ends_the_batch_and_no_line_is_lost() -> None:
    url = memory_url()
    one, other = gateway(url, keys=FakeKeys({"a": {"minilm"}})), gateway(url)
    async with one.client("a") as client:
        batch = await left(client, lines(200))
        other.behind.keys.endpoints_of = {"b": {"minilm"}}
        async with other.running():
            found = await over(client, batch.id)
        assert found.status == "failed"
        assert found.errors is not None
        assert found.errors.data is not None
        assert "key" in (found.errors.data[0].message or "")
        rows = await answers(client, found.error_file_id)
    assert [row["custom_id"] for row in rows] == [f"row-{i}" for i in range(200)]
    assert {row["error"]["code"] for row in rows} == {"batch_failed"}


async def test_lines_that_are_refused_are_in_the_errors_and_nowhere_else() -> None:
    one = gateway(memory_url())
    data = b"\n".join(
        [
            line_of("good", "a").encode(),
            line_of("bad", "a", dimensions=99).encode(),
            line_of("several", ["a", "b"], encoding_format="base64").encode(),
            line_of("ids", [1, "a"]).encode(),
        ]
    )
    async with one.client() as client, one.running():
        found = await over(client, (await left(client, data)).id)
        assert (found.status, found.request_counts and found.request_counts.failed) == (
            "completed",
            2,
        )
        good = await answers(client, found.output_file_id)
        bad = await answers(client, found.error_file_id)
    assert [row["custom_id"] for row in good] == ["good", "several"]
    assert [row["custom_id"] for row in bad] == ["bad", "ids"]
    assert {row["response"]["status_code"] for row in bad} == {422}
    assert "gives 4" in bad[0]["response"]["body"]["error"]["message"]


OLD, NEW, MINE = (letter * 12 for letter in "abc")


@dataclass
class Spaced(FakePredictor):
    """Answers from another space after so many calls, unless a space is named that it has."""

    after: int = 10**9

    async def predict(self, call: Call) -> Answer:
        answer = await super().predict(call)
        space = call.space or (OLD if len(self.calls) <= self.after else NEW)
        return replace_ref(answer, space)


def replace_ref(answer: Answer, space: str) -> Answer:
    import msgspec

    return msgspec.structs.replace(answer, ref=ref("minilm", "3", space))


def spaced(after: int) -> Spaced:
    return Spaced({"minilm": view("minilm", Task.TEXT_EMBEDDING)}, after=after)


async def test_the_space_that_answers_first_is_named_from_then_on() -> None:
    one = gateway(memory_url(), predictor=spaced(after=1))
    async with one.client() as client, one.running():
        found = await over(client, (await left(client, lines(50))).id)
    assert (found.status, found.model_extra and found.model_extra["space"]) == ("completed", OLD)
    calls = one.behind.predictor.calls
    assert [call.space for call in calls] == [None] + [OLD] * 49


async def test_a_caller_may_name_the_space_if_its_key_may() -> None:
    import openai

    keys = FakeKeys({"a": {"minilm"}, "b": {"minilm"}}, forcing={"a"})
    one = gateway(memory_url(), predictor=spaced(after=0), keys=keys)
    named = {"x-headrace-space": MINE}
    async with one.client("a") as client, one.client("b") as other, one.running():
        found = await over(client, (await left(client, lines(5), extra_headers=named)).id)
        assert found.status == "completed"
        with pytest.raises(openai.PermissionDeniedError):
            await left(other, lines(5), extra_headers=named)
        # What the gateway itself names later on needs no such key.
        assert (await over(other, (await left(other, lines(5))).id)).status == "completed"
    assert {call.space for call in one.behind.predictor.calls[:5]} == {MINE}


async def test_an_answer_of_another_space_ends_the_batch() -> None:
    @dataclass
    class Deaf(Spaced):
        async def predict(self, call: Call) -> Answer:
            self.calls.append(call)
            answer = await FakePredictor.predict(replace(self, keep_calls=False), call)
            return replace_ref(answer, OLD if len(self.calls) <= 20 else NEW)

    predictor = Deaf({"minilm": view("minilm", Task.TEXT_EMBEDDING)})
    one = gateway(memory_url(), predictor=predictor)
    async with one.client() as client, one.running():
        found = await over(client, (await left(client, lines(60))).id)
        assert found.status == "failed"
        kept = await answers(client, found.output_file_id)
        lost = await answers(client, found.error_file_id)
    assert len(kept) == 20
    names = [row["custom_id"] for row in (*kept, *lost)]
    assert sorted(names) == sorted(f"row-{i}" for i in range(60))


@dataclass
class Sickly(FakePredictor):
    """Has no capacity for each other call."""

    count: int = 0

    async def predict(self, call: Call) -> Answer:
        self.count += 1
        if self.count % 2:
            raise OverloadedError("No room.", retry_after_seconds=0.001)
        return await super().predict(call)


async def test_what_has_no_capacity_now_is_tried_again() -> None:
    predictor = Sickly({"minilm": view("minilm", Task.TEXT_EMBEDDING)})
    one = gateway(memory_url(), predictor=predictor)
    async with one.client() as client, one.running():
        found = await over(client, (await left(client, lines(8))).id)
    assert (found.status, found.request_counts and found.request_counts.completed) == (
        "completed",
        8,
    )


@dataclass
class Gated(FakePredictor):
    """Answers so many calls and then none until the gate opens."""

    first: int = 0
    stuck: asyncio.Event | None = None
    gate: asyncio.Event | None = None

    async def predict(self, call: Call) -> Answer:
        answer = await super().predict(call)
        if self.gate is not None and len(self.calls) > self.first:
            assert self.stuck is not None
            self.stuck.set()
            await self.gate.wait()
        return answer


def gated(first: int) -> Gated:
    views = {"minilm": view("minilm", Task.TEXT_EMBEDDING)}
    return Gated(views, first=first, stuck=asyncio.Event(), gate=asyncio.Event())


async def test_a_batch_whose_gateway_hangs_is_taken_by_another_and_no_id_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    url = f"file://{tmp_path}"
    predictor = gated(first=150)  # in the second piece of three
    hangs, other = gateway(url, "hangs", predictor=predictor), gateway(url, "other")
    hangs.lease_seconds = 1e9  # it renews nothing
    other.lease_seconds = 0.05
    async with hangs.client() as client, hangs.running():
        batch = await left(client, lines(300))
        assert predictor.stuck is not None
        await asyncio.wait_for(predictor.stuck.wait(), 300)
        async with other.running():
            found = await over(client, batch.id)
        assert predictor.gate is not None
        predictor.gate.set()  # and now it goes on with what it had begun
        await asyncio.sleep(0)
        rows = await answers(client, found.output_file_id)
    assert found.status == "completed"
    assert [row["custom_id"] for row in rows] == [f"row-{i}" for i in range(300)]
    asked = [call.texts[0] for call in other.behind.predictor.calls]
    assert len(asked) == 300 - 128  # the first piece was kept


def test_a_lease_is_whose_it_is_until_another_has_taken_the_batch() -> None:
    store = batch_store(memory_url())
    key = "everybody", "batch_" + "0" * 32
    assert store.take(*key, 1, BatchLease("one"))
    assert not store.take(*key, 1, BatchLease("other"))
    assert store.renew(*key, 1, BatchLease("one", beat=1))
    assert store.lease(*key) == (1, BatchLease("one", beat=1))
    assert store.take(*key, 2, BatchLease("other"))
    assert not store.renew(*key, 1, BatchLease("one", beat=2))
    assert store.lease(*key) == (2, BatchLease("other"))


async def test_what_can_not_be_read_of_one_batch_holds_up_no_other(tmp_path: Path) -> None:
    import openai

    url = f"file://{tmp_path}"
    one = gateway(url)
    one.lease_seconds = 0.05
    async with one.client() as client:
        spoiled = [await left(client, lines(3)) for _ in range(2)]
        batch = await left(client, lines(3))
        folders = [tmp_path / "batches" / "everybody" / each.id for each in spoiled]
        (folders[0] / "lease-000001").write_text("{")
        (folders[1] / "batch.json").write_text("{")
        async with one.running():
            assert (await over(client, batch.id)).status == "completed"
            # Once its lease has run out.
            assert (await over(client, spoiled[0].id)).status == "completed"
        with pytest.raises(openai.NotFoundError, match="can't be read"):
            await client.batches.retrieve(spoiled[1].id)


async def test_a_gateway_that_ends_in_order_leaves_its_batch_at_once() -> None:
    url = memory_url()
    predictor = gated(first=10)
    one, other = gateway(url, predictor=predictor), gateway(url, "other")
    other.lease_seconds = 1e9
    async with one.client() as client:
        async with one.running():
            batch = await left(client, lines(30))
            assert predictor.stuck is not None
            await asyncio.wait_for(predictor.stuck.wait(), 300)
        async with other.running():
            assert (await over(client, batch.id)).status == "completed"


async def test_a_cancelled_batch_keeps_what_was_answered_and_names_the_rest() -> None:
    predictor = gated(first=150)
    one = gateway(memory_url(), predictor=predictor)
    one.lease_seconds = 0.06  # it looks for the wish to cancel each 10 ms
    async with one.client() as client, one.running():
        batch = await left(client, lines(300))
        assert predictor.stuck is not None
        assert predictor.gate is not None
        await asyncio.wait_for(predictor.stuck.wait(), 300)
        assert (await client.batches.cancel(batch.id)).status == "cancelling"
        await asyncio.sleep(0.1)
        predictor.gate.set()
        found = await over(client, batch.id)
        assert found.status == "cancelled"
        kept = await answers(client, found.output_file_id)
        lost = await answers(client, found.error_file_id)
        assert (await client.batches.cancel(batch.id)).status == "cancelled"
    assert 150 <= len(kept) < 300
    assert {row["error"]["code"] for row in lost} == {"batch_cancelled"}
    names = [row["custom_id"] for row in (*kept, *lost)]
    assert sorted(names) == sorted(f"row-{i}" for i in range(300))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "holds no request"),
        (b"{", "line 1: "),
        (
            line_of("a", "x").encode() + b"\n" + line_of("a", "y").encode(),
            "line 2: .*same custom_id",
        ),
        (
            line_of("a", "x").encode() + b"\n" + line_of("b", "y", "other").encode(),
            "line 2: .*model",
        ),
        (line_of("a", "x").replace("/v1/embeddings", "/v1/completions").encode(), "url"),
        (line_of("", "x").encode(), "custom_id"),
        (
            json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/embeddings"}).encode(),
            "body",
        ),
    ],
)
async def test_a_file_that_cannot_be_asked_is_refused_with_the_line(data: bytes, says: str) -> None:
    import openai

    one = gateway(memory_url())
    async with one.client() as client:
        with pytest.raises((openai.BadRequestError, openai.UnprocessableEntityError), match=says):
            await client.files.create(file=("a.jsonl", data), purpose="batch")
        assert [file async for file in client.files.list()] == []
        with pytest.raises(openai.UnprocessableEntityError, match="purpose"):
            await client.files.create(file=("a.jsonl", lines(1)), purpose="fine-tune")


async def test_without_a_store_the_routes_name_the_setting() -> None:
    import openai

    one = Gateway(Behind(batches=None))
    async with one.client() as client:
        for ask in (
            client.files.list(),
            client.batches.list(),
            client.files.create(file=("a.jsonl", lines(1)), purpose="batch"),
        ):
            with pytest.raises(openai.APIStatusError, match="--batches-url") as refused:
                await ask
            assert refused.value.status_code == 501


async def test_a_file_above_the_bound_is_refused_before_it_is_read() -> None:
    behind = Behind(batches=batch_store(memory_url(), file_bytes=100_000))
    async with client_of(behind) as client:
        form = {"file": ("a.jsonl", b"x" * 200_000), "purpose": (None, "batch")}
        answer = await client.post("/v1/files", files=cast("Any", form))
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


async def test_an_upload_is_never_held_whole(tmp_path: Path) -> None:
    behind = Behind(batches=batch_store(f"file://{tmp_path}", file_bytes=100_000_000))
    line = line_of("ID", "word " * 400).encode()
    count = 10_000  # 21 megabytes
    boundary = b"xyz"
    head = (
        b'--xyz\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--xyz\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
    )

    def parts() -> Iterator[bytes]:
        yield head
        for number in range(0, count, 50):
            yield b"".join(line.replace(b"ID", b"%d" % (number + i)) + b"\n" for i in range(50))
        yield b"\r\n--" + boundary + b"--\r\n"

    sent = parts()
    replies: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        part = next(sent, b"")
        return {"type": "http.request", "body": part, "more_body": part != b""}

    async def send(message: Any) -> None:
        replies.append(message)

    headers = [(b"content-type", b"multipart/form-data; boundary=xyz")]
    scope = {"type": "http", "method": "POST", "path": "/v1/files", "headers": headers}
    assert behind.app is not None
    tracemalloc.start()
    await behind.app(scope, receive, send)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert replies[0]["status"] == 200, replies[1]
    assert json.loads(replies[1]["body"])["bytes"] == len(line) * count + sum(
        len(str(i)) - 1 for i in range(count)
    )
    assert peak < 9_000_000, peak
    assert behind.held.held == 0


async def test_what_is_old_or_was_never_finished_is_removed() -> None:
    url = memory_url()
    one = gateway(url)
    store = one.behind.batches
    assert store is not None
    async with one.client() as client, one.running():
        found = await over(client, (await left(client, lines(3))).id)
        assert found.output_file_id is not None
        store.put_piece("everybody", "file-00000001" + "0" * 24, 0, b"{}\n")
        store.sweep(found.created_at + 3 * 86400)
        assert {file.id async for file in client.files.list()} == {
            found.output_file_id,
            found.input_file_id,
        }
        assert store.file_ids("everybody") == sorted(
            [found.output_file_id, found.input_file_id], reverse=True
        )
        # A caller has the days after the window, too, to fetch what it was answered.
        store.sweep(found.created_at + 7.5 * 86400)
        assert [file.id async for file in client.files.list()] == [found.output_file_id]
        assert (await client.batches.retrieve(found.id)).status == "completed"
        store.sweep(found.created_at + 9 * 86400)
        assert [file async for file in client.files.list()] == []
        assert [each async for each in client.batches.list()] == []


async def test_a_key_holds_a_bounded_number_of_files_and_batches() -> None:
    import openai

    objects = ObjectFolder(memory_url())
    store = BatchStore(objects, file_bytes=1000, days=7.0, most_files=2, most_open=1)
    one = Gateway(Behind(batches=store))
    async with one.client() as client:
        batch = await left(client, lines(1))
        with pytest.raises(openai.APIStatusError, match="batches that are not over"):
            await left(client, lines(1))
        with pytest.raises(openai.APIStatusError, match="2 files"):
            await client.files.create(file=("a.jsonl", lines(1)), purpose="batch")
        assert batch.status == "validating"
