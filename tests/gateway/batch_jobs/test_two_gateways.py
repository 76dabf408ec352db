"""Real gateways on one store of batches: one ends in the middle, and another goes on."""

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gateway_process import Running, gateway_at, lay_out_packages, on_an_echo, put
from gateway_world import endpoint_of, manifest_of, text_of

from contracts.endpoint import EndpointLimits
from contracts.tasks import Task
from contracts.tensors import Datatype, TensorSpec

if TYPE_CHECKING:
    import openai

pytestmark = [pytest.mark.soak, pytest.mark.real]  # takes minutes, most of them a lease's

ROWS = 1500


def lay_out_vectors(home: Path) -> None:
    manifest = manifest_of().model_copy(
        update={
            "task": Task.TEXT_EMBEDDING,
            "labels": (),
            "dimension": 2,
            "outputs": (TensorSpec(name="embedding", datatype=Datatype.FP32, shape=(-1, 2)),),
        }
    )
    (one,) = lay_out_packages(home, manifest)
    put(home, endpoint_of(one, limits=EndpointLimits(timeout_seconds=60)))


def client_of(gateway: Running) -> "openai.AsyncOpenAI":
    import openai

    return openai.AsyncOpenAI(
        base_url=f"{gateway.http.base_url}/v1", api_key="any", max_retries=0, timeout=120
    )


def lines(count: int) -> bytes:
    return b"".join(
        json.dumps(
            {
                "custom_id": f"row-{i}",
                "method": "POST",
                "url": "/v1/embeddings",
                "body": {"model": "sentiment", "input": text_of(1 + i % 16, i)},
            }
        ).encode()
        + b"\n"
        for i in range(count)
    )


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
async def test_another_gateway_ends_the_batch_of_one_that_ends(
    ending: signal.Signals, tmp_path: Path
) -> None:
    lay_out_vectors(tmp_path / "home")
    flags = ("--batches-url", str(tmp_path / "store"))
    program = on_an_echo(0.05)
    async with (
        gateway_at(tmp_path / "home", *flags, program=program) as one,
        gateway_at(tmp_path / "home", *flags, program=program) as other,
        AsyncExitStack() as held,
        asyncio.timeout(300),
    ):
        client = await held.enter_async_context(client_of(one))
        left = await held.enter_async_context(client_of(other))
        file = await client.files.create(file=("in.jsonl", lines(ROWS)), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h"
        )
        await one.line("runs a batch")
        drained = asyncio.create_task(one.drain()), asyncio.create_task(other.drain())
        while True:
            found = await left.batches.retrieve(batch.id)
            assert found.request_counts is not None
            if found.request_counts.completed:
                break
            await asyncio.sleep(0.02)  # nothing tells a client: it asks
        assert found.request_counts.completed < ROWS
        one.process.send_signal(ending)
        assert await one.process.wait() == (-ending if ending is signal.SIGKILL else 0)
        while found.status in ("validating", "in_progress"):
            await asyncio.sleep(0.5)
            found = await left.batches.retrieve(batch.id)
        assert found.status == "completed"
        assert found.output_file_id is not None
        assert found.error_file_id is None
        content = (await left.files.content(found.output_file_id)).text
        answers = [json.loads(line) for line in content.splitlines()]
        assert [each["custom_id"] for each in answers] == [f"row-{i}" for i in range(ROWS)]
        assert {each["response"]["status_code"] for each in answers} == {200}
        for task in drained:
            task.cancel()
