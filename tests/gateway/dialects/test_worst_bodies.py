"""What a request makes of itself in memory is bounded by its size, in every dialect."""

import gc
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from front_fakes import Behind, asked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb
from worst_bodies import GRPC, WORST, endpoints, many

from gateway.app import create_app
from gateway.dialects.grpc_fields import INTEGER_BYTES, count_parts
from gateway.dialects.reading import FREE_BYTES, GROWTH
from gateway.http.body import HttpLimits

pytestmark = pytest.mark.slow

_SUPPORT = Path(__file__).parents[2] / "support"
_MEBIBYTES = 8


# A long name is that of no endpoint, and a long id is one that the answer repeats.
_EXPECTED = ("200", "400", "404", "413", "422", "OK", "INVALID_ARGUMENT", "NOT_FOUND")


@pytest.fixture(scope="module")
def taken() -> dict[str, tuple[float, str]]:
    """Memory in MiB and status of each of the worst bodies, in a process of their own."""
    program = [sys.executable, "-P", "-m", "memory_of_bodies", str(_MEBIBYTES - 0.01)]
    environment = os.environ | {"PYTHONPATH": str(_SUPPORT)}
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    return {name: (mebibytes, status) for name, mebibytes, status in lines}


@pytest.mark.parametrize("name", [worst.name for worst in WORST])
def test_no_body_takes_more_than_a_multiple_of_itself(
    taken: dict[str, tuple[float, str]], name: str
) -> None:
    mebibytes, status = taken[name]
    assert mebibytes <= GROWTH * _MEBIBYTES + FREE_BYTES / 1024 / 1024, (name, mebibytes)
    assert status in _EXPECTED, (name, status)


def test_every_dialect_has_a_worst_body() -> None:
    routes = {
        route.path
        for route in create_app(Behind().front).described
        if route.method == "POST" and "versions" not in route.path
    }
    asked_for = {worst.path for worst in WORST}
    names = endpoints().views
    # The second name of a route, those that take a quarter of a megabyte at most, and one that
    # holds no body whole (``test_openai_batches``).
    alike = {"/endpoints/{endpoint}/embeddings", "/endpoints/{endpoint}/v1/embeddings"}
    small = {"/feedback", "/v1/files", "/v1/batches", "/v1/batches/{batch}/cancel"}
    for pattern in routes - alike - small:
        assert asked_for & {pattern.replace("{endpoint}", name) for name in names}, pattern
    assert GRPC in asked_for


_values = st.recursive(
    st.sampled_from([None, True, 1, 257, 1.5, "", "a", "é", "\U0001f600"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=1), inner, max_size=2)
    ),
    max_leaves=4,
)
_PLACES = [
    ("/endpoints/sentiment", '{"inputs":[', "]}"),
    ("/endpoints/sentiment", '{"inputs":"a","options":{"x":[', "]}}"),
    ("/endpoints/sentiment", '{"inputs":"a","x":[', "]}"),
    ("/v1/models/sentiment:predict", '{"instances":["a"],"parameters":{"x":[', "]}}"),
    ("/v1/models/sentiment:predict", '{"instances":[', "]}"),
    ("/v1/models/sentiment:predict", '{"instances":[{"text":"a","x":[', "]}]}"),
    ("/v1/models/table:predict", '{"instances":[', "]}"),
    ("/v2/models/sentiment/infer", '{"inputs":[', "]}"),
    (
        "/v2/models/table/infer",
        '{"inputs":[{"name":"m","shape":[1,8],"datatype":"FP32","data":[',
        "]}]}",
    ),
    ("/v1/embeddings", '{"model":"minilm","input":[', "]}"),
    ("/v1/rerank", '{"model":"reranker","query":"a","documents":[', "]}"),
    ("/endpoints/minilm/embed", '{"inputs":[', "]}"),
    ("/endpoints/sentiment/predict", '{"inputs":[', "]}"),
    ("/endpoints/minilm/decode", '{"ids":[', "]}"),
]


@pytest.fixture
def behind() -> Iterator[Behind]:
    made = Behind(endpoints(), limits=HttpLimits())
    made.predictor.keep_calls = False
    assert made.app is not None
    yield made
    made.front.large.close()


@given(value=_values, place=st.sampled_from(_PLACES))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_whatever_is_many_in_a_body_is_bounded(
    behind: Behind, value: Any, place: tuple[str, str, str]
) -> None:
    path, before, after = place
    size = 2 * 1024 * 1024
    body = many(before, json.dumps(value, ensure_ascii=False, separators=(",", ":")), after)(size)
    await asked(behind, "POST", path, content=body[:1000])
    gc.collect()
    tracemalloc.start()
    try:
        answer = await asked(behind, "POST", path, content=body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answer.status_code in (200, 400, 413, 422), answer.text
    assert peak <= GROWTH * size + FREE_BYTES, (peak, body[:200])


def test_parts_of_messages_are_counted_up_to_what_is_too_many() -> None:
    inputs = b"\x2a\x04\x0a\x00\x22\x00"  # an input with a name and a parameter
    assert count_parts(inputs * 5 + b"\x32\x00" + b"\x0a\x01a", 100) == 17
    assert count_parts(b"\x2a\x00" * 1_000_000, 1000) == 1001
    assert count_parts(b"\x2a", 10) == 1  # cut short: the library says what is wrong


def test_what_the_library_takes_long_to_read_counts_and_what_it_copies_does_not() -> None:
    number = 300_000
    contents = pb.InferTensorContents
    counted = [
        contents(bytes_contents=[b""] * number),
        contents(bool_contents=[True] * number * INTEGER_BYTES),
        contents(int_contents=[1] * number * INTEGER_BYTES),
        contents(int64_contents=[2**62] * number),
        contents(uint_contents=[200] * number * INTEGER_BYTES),
        contents(uint64_contents=[2**63] * number),
    ]
    tensors = [pb.ModelInferRequest.InferInputTensor(contents=each) for each in counted]
    tensors.append(pb.ModelInferRequest.InferInputTensor(shape=[1] * number * INTEGER_BYTES))
    for tensor in tensors:
        message = pb.ModelInferRequest(model_name="a", inputs=[tensor]).SerializeToString()
        assert count_parts(message, 2 * number) > number / 2, tensor.ListFields()[0][0].name
    copied = [
        contents(fp32_contents=[1.0] * number),
        contents(fp64_contents=[1.0] * number),
        contents(bytes_contents=[b"a" * number]),
    ]
    tensors = [pb.ModelInferRequest.InferInputTensor(contents=each) for each in copied]
    request = pb.ModelInferRequest(inputs=tensors, raw_input_contents=[b"\1" * number])
    assert count_parts(request.SerializeToString(), number) == 3 * 3 + 1


@given(st.binary(max_size=60))
def test_no_bytes_are_too_odd_to_be_counted(message: bytes) -> None:
    assert 0 <= count_parts(message, 20) <= 21
