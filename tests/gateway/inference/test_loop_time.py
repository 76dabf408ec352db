"""Large answers of models hold the event loop no longer than small ones, down to their records."""

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from front_fakes import TAGS
from gateway_world import (
    FakeEngine,
    call_of,
    endpoint_of,
    loop_turns,
    manifest_of,
    text_of,
    tokenizer_json,
)
from loop_watch import LoopWatch, WatchedLoop
from numpy.typing import NDArray
from pipeline_world import world_of
from tritonclient.grpc import service_pb2 as pb

from contracts.events import PredictionEvent
from contracts.tasks import Task
from gateway.calls import Answer
from gateway.engine.protocol import Work
from gateway.engine.triton import TritonEngine
from gateway.mirroring.shadow import MirrorLimits
from gateway.packages import ServedModel, open_package

pytestmark = pytest.mark.slow

_TEXTS = [text_of(14, number) for number in range(256)]  # each as long as the model takes
_WIDE = tuple(map(str, range(4096)))


@pytest.fixture
def watch() -> LoopWatch:
    return LoopWatch()


def run(watch: LoopWatch, work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=lambda: WatchedLoop(watch)) as runner:
        return runner.run(work)


def model_of_task(task: Task, labels: tuple[str, ...], version: str = "6") -> ServedModel:
    manifest = manifest_of(version, task=task, labels=labels)
    return open_package(manifest.ref(), manifest.canonical(), tokenizer_json())


CASES = {
    "tags of many tokens": (Task.TOKEN_CLASSIFICATION, TAGS),
    "many labels": (Task.TEXT_CLASSIFICATION, _WIDE),
}


@pytest.mark.parametrize("name", CASES)
def test_no_answer_of_a_model_holds_the_loop_until_it_is_recorded(
    watch: LoopWatch, name: str
) -> None:
    task, labels = CASES[name]
    model = model_of_task(task, labels)
    by_token = task is Task.TOKEN_CLASSIFICATION
    shape = (256, 16, len(labels)) if by_token else (256, len(labels))
    made = np.random.default_rng(7).standard_normal(shape, np.float32)

    def answer(ids: NDArray[np.int64]) -> NDArray[np.float32]:
        return made[: len(ids), : ids.shape[1]] if by_token else made[: len(ids)]

    async def ask() -> tuple[Answer, PredictionEvent]:
        endpoint = endpoint_of(model.ref)
        async with world_of(endpoint, FakeEngine(answer=answer), more=(model,)) as world:
            await world.pipeline.predict(call_of("sun"))
            with watch.only():
                found = await world.pipeline.predict(call_of(*_TEXTS))
                await asyncio.sleep(0)  # a callback is measured once it has ended
            return found, world.recorder.events[1]

    found, event = watch.check(lambda: run(watch, ask()))
    assert len(event.texts) == len(_TEXTS)
    assert found.values.shape[1] == len(labels)


def test_no_comparison_with_a_shadow_holds_the_loop(watch: LoopWatch) -> None:
    ours, theirs = (model_of_task(Task.TOKEN_CLASSIFICATION, TAGS, each) for each in "67")
    endpoint = endpoint_of(
        ours.ref, shadow=theirs.ref, packages=[ours.ref, theirs.ref], rollout="r"
    )
    made = np.random.default_rng(7).standard_normal((256, 16, len(TAGS)), np.float32)
    engine = FakeEngine(answer=lambda ids: made[: len(ids), : ids.shape[1]])
    limits = MirrorLimits(
        engine_share=1e6, texts_per_second=1e6, most_lag_seconds=60, longest_wait_seconds=60
    )

    async def ask() -> list[PredictionEvent]:
        async with world_of(endpoint, engine, limits, more=(ours, theirs)) as world:
            with watch.only():
                await world.pipeline.predict(call_of(*_TEXTS))
                while world.shadows.waiting or world.shadows.out:
                    await loop_turns(1)
            return world.recorder.events

    _, copy = watch.check(lambda: run(watch, ask()))
    assert copy.pairing is not None
    assert len(copy.pairing.distance) == len(_TEXTS)


@contextmanager
def large_triton(rows: int, width: int) -> Iterator[str]:
    """The address of one that answers whatever it is asked with so many numbers."""
    response = pb.ModelInferResponse(model_name="m")
    response.outputs.add(name="out", datatype="FP32", shape=[rows, width])
    response.raw_output_contents.append(np.zeros((rows, width), np.float32).tobytes())
    content = response.SerializeToString()
    method = grpc.unary_unary_rpc_method_handler(lambda _, __: content)
    service = "inference.GRPCInferenceService"
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"ModelInfer": method}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_no_answer_of_a_triton_holds_the_loop(watch: LoopWatch) -> None:
    work = Work(model="m", output="out", tensors={"input_ids": np.ones((1, 1), np.int64)})

    async def ask(address: str) -> tuple[int, ...]:
        engine = TritonEngine(address)
        with watch.only():
            found = await engine.infer(work, 60)
            await asyncio.sleep(0)
        await engine.close()
        return found.shape

    with large_triton(4096, 1024) as address:
        assert watch.check(lambda: run(watch, ask(address))) == (4096, 1024)
