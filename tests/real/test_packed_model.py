"""A packed engine in a real Triton: what many callers send at once, who gives up, and its end."""

import itertools
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from model_processes import model_processes
from own_ports import own_ports
from packed_files import beside_each_other, packed
from prometheus_client.parser import text_string_to_metric_families
from tiny_encoders import SIZES, VOCABULARY, starts_of, write_encoder, write_told
from torch_triton import TorchTriton, place
from tritonclient.grpc import InferenceServerClient, InferInput, InferResult
from tritonclient.utils import InferenceServerException
from waiting import until

from contracts import triton_metrics as t
from contracts.metrics import Metric
from headrace.stack.triton import TritonFiles, TritonServer

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.real, pytest.mark.export]

LOAD_SECONDS = 300.0
WIDTH = SIZES["bert"]["hidden_size"]
CALLERS, CALLS = 8, 12
Rows = Sequence[Sequence[int]]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    write_encoder(folder, "bert", "AutoModel")
    write_told(folder, "AutoModel", modes=["mean"], normalise=True)
    return folder


@pytest.fixture(scope="module")
def engine(weights: Path) -> Iterator[Any]:
    """The same model in this process."""
    torch.set_num_threads(1)
    with beside_each_other():
        yield packed("packed_engine").PackedEngine(weights)


@pytest.fixture(scope="module")
def torch_triton(
    triton_files: TritonFiles, weights: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TorchTriton]:
    folder = tmp_path_factory.mktemp("triton")
    http, grpc, metrics = own_ports(3)
    server = TritonServer(folder / "repository", http, grpc, metrics)
    packages = Path(torch.__file__).parents[1]
    triton = TorchTriton(triton_files, server, folder / "log", folder / "python", packages)
    triton.start()
    place(server.model_repository, "m", weights, WIDTH)
    client_of(triton).load_model("m", client_timeout=LOAD_SECONDS)
    yield triton
    triton.stop()


def client_of(triton: TorchTriton) -> InferenceServerClient:
    return InferenceServerClient(triton.grpc)


def tensors_of(rows: Rows, *, typed: bool) -> list[np.ndarray]:
    ids = np.array([token for row in rows for token in row], np.int32)
    starts = np.array(starts_of([len(row) for row in rows]), np.int32)
    return [ids, starts, *([(ids % 2).astype(np.uint8)] if typed else [])]


def counted(triton: TorchTriton, metric: Metric, model: str) -> float:
    """What a model has counted, as Prometheus scrapes it; -1 if it has no such counter."""
    server = triton.server
    text = httpx.get(f"http://{server.host}:{server.metrics_port}/metrics", timeout=60).text
    families = {each.name: each for each in text_string_to_metric_families(text)}
    return next(
        (
            sample.value
            for sample in families[metric.family].samples
            if sample.labels == {"model": model, "version": "1"}
        ),
        -1.0,
    )


def inputs_of(tensors: Sequence[np.ndarray]) -> list[InferInput]:
    names = ("input_ids", "row_starts", "token_type_ids")
    kinds = ("INT32", "INT32", "UINT8")
    made = []
    for name, kind, array in zip(names, kinds, tensors, strict=False):
        made.append(InferInput(name, list(array.shape), kind))
        made[-1].set_data_from_numpy(array)
    return made


def random_rows(random: np.random.Generator) -> Rows:
    return [
        random.integers(5, VOCABULARY, random.integers(1, 40)).tolist()
        for _ in range(random.integers(1, 6))
    ]


def test_each_of_many_callers_gets_the_answers_of_its_own_rows(
    torch_triton: TorchTriton, engine: Any
) -> None:
    def call(number: int) -> None:
        random, client = np.random.default_rng(number), client_of(torch_triton)
        for turn in range(CALLS):
            tensors = tensors_of(random_rows(random), typed=bool(turn % 2))
            answer = client.infer("m", inputs_of(tensors)).as_numpy("embedding")
            np.testing.assert_allclose(answer, engine.run(*tensors), atol=1e-5)

    with ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(call, range(CALLERS)))


def test_what_can_not_be_run_fails_by_itself(torch_triton: TorchTriton, engine: Any) -> None:
    client = client_of(torch_triton)
    bad = tensors_of([[1, VOCABULARY]], typed=False)
    with pytest.raises(InferenceServerException, match="engine: input_ids must be from 0 to"):
        client.infer("m", inputs_of(bad))
    good = tensors_of([[1, 2, 3]], typed=False)
    answer = client.infer("m", inputs_of(good)).as_numpy("embedding")
    np.testing.assert_allclose(answer, engine.run(*good), atol=1e-5)


def test_each_of_two_models_has_its_own_counts_and_goes_on_with_them_when_it_is_loaded_again(
    torch_triton: TorchTriton, weights: Path
) -> None:
    client = client_of(torch_triton)
    place(torch_triton.server.model_repository, "other", weights, WIDTH)
    client.load_model("other", client_timeout=LOAD_SECONDS)
    assert counted(torch_triton, t.TOKENS, "other") == 0
    before = counted(torch_triton, t.TOKENS, "m")
    for model, tokens in (("m", 5), ("other", 7), ("other", 2)):
        client.infer(model, inputs_of(tensors_of([[1] * tokens], typed=False)))
    until("they are told", 60.0, lambda: counted(torch_triton, t.TOKENS, "m") == before + 5)
    until("they are told", 60.0, lambda: counted(torch_triton, t.TOKENS, "other") == 9)
    assert counted(torch_triton, t.MESSAGES, "other") == 2
    assert counted(torch_triton, t.SECONDS, "other") > 0
    client.unload_model("other")
    until("it is unloaded", 60.0, lambda: not client.is_model_ready("other"))
    client.load_model("other", client_timeout=LOAD_SECONDS)
    client.infer("other", inputs_of(tensors_of([[1]], typed=False)))
    until("it goes on", 60.0, lambda: counted(torch_triton, t.TOKENS, "other") == 10)
    assert counted(torch_triton, t.TOKENS, "m") == before + 5
    client.unload_model("other")
    until("its process ends", 60.0, lambda: len(model_processes(torch_triton)) == 1)


def test_callers_that_give_up_take_nobody_elses_answer(
    torch_triton: TorchTriton, engine: Any
) -> None:
    client, random = client_of(torch_triton), np.random.default_rng(3)
    asked = [tensors_of(random_rows(random), typed=False) for _ in range(60)]
    found: dict[int, InferResult | InferenceServerException] = {}
    over = threading.Semaphore(0)

    def heard(number: int, result: InferResult, error: InferenceServerException) -> None:
        found[number] = result or error
        over.release()

    calls = [
        client.async_infer(
            "m",
            inputs_of(tensors),
            lambda result, error, number=number: heard(number, result, error),
        )
        for number, tensors in enumerate(asked)
    ]
    for call in itertools.islice(calls, 0, None, 2):
        call.cancel()
    for _ in asked:
        assert over.acquire(timeout=60)
    answered = {number for number, what in found.items() if isinstance(what, InferResult)}
    assert answered >= set(range(1, len(asked), 2))
    for number in answered:
        answer = found[number].as_numpy("embedding")
        np.testing.assert_allclose(answer, engine.run(*asked[number]), atol=1e-5)


def test_a_model_whose_process_was_killed_answers_again_once_it_is_loaded(
    torch_triton: TorchTriton, engine: Any
) -> None:
    client = client_of(torch_triton)
    tensors = tensors_of([[7, 8, 9]], typed=True)
    (process,) = model_processes(torch_triton)
    os.kill(process, signal.SIGKILL)
    until("it is gone", 60.0, lambda: not model_processes(torch_triton))
    with pytest.raises(InferenceServerException, match=r"stub process|healthy"):
        client.infer("m", inputs_of(tensors), client_timeout=60.0)
    client.unload_model("m")
    until("it is unloaded", 60.0, lambda: not client.is_model_ready("m"))
    client.load_model("m", client_timeout=LOAD_SECONDS)
    answer = client.infer("m", inputs_of(tensors)).as_numpy("embedding")
    np.testing.assert_allclose(answer, engine.run(*tensors), atol=1e-5)


def test_unloading_ends_the_process_and_leaves_no_trace_of_an_error(
    torch_triton: TorchTriton,
) -> None:
    client_of(torch_triton).unload_model("m")
    until("its process ends", 60.0, lambda: not model_processes(torch_triton))
    assert "Traceback" not in torch_triton.log.read_text()
