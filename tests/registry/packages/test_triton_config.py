"""Triton's configuration, read back by Triton's own protobuf."""

import json

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from contracts.tasks import Task
from contracts.tensors import Datatype, TensorSpec
from registry.packages.triton_config import THREADS, as_json, render, render_packed, with_split

IDS = TensorSpec(name="input_ids", datatype=Datatype.INT64, shape=(-1, -1))
LOGITS = TensorSpec(name="logits", datatype=Datatype.FP32, shape=(-1, 3))


@given(st.integers(1, 1024), st.integers(1, 64), st.integers(1, 64))
def test_both_backends_get_the_same_model(largest: int, instances: int, threads: int) -> None:
    made = render(inputs=[IDS], outputs=[LOGITS], max_batch_size=largest, threads=1)
    texts = [with_split(text, copies=instances, threads=threads) for text in made]
    python, native = (text_format.Parse(text, model_config_pb2.ModelConfig()) for text in texts)
    assert (python.backend, python.default_model_filename) == ("python", "model.py")
    assert (native.backend, native.default_model_filename) == ("onnxruntime", "model.onnx")
    for config in (python, native):
        assert config.name == ""
        assert config.max_batch_size == largest
        assert [list(tensor.dims) for tensor in config.input] == [[-1]]
        assert [list(tensor.dims) for tensor in config.output] == [[3]]
        assert config.input[0].data_type == model_config_pb2.TYPE_INT64
        assert [group.count for group in config.instance_group] == [instances]
        assert config.parameters[THREADS].string_value == str(threads)
    # See docs/decisions/0008: Triton's batcher stalls under the Python backend.
    assert not python.HasField("dynamic_batching")
    assert native.HasField("dynamic_batching")


def test_a_package_of_an_earlier_release_says_nothing_about_the_copies() -> None:
    text, _ = render(inputs=[IDS], outputs=[LOGITS], max_batch_size=4, threads=1)
    earlier = with_split(text, copies=7, threads=3)
    assert with_split(earlier, copies=2, threads=1) == with_split(text, copies=2, threads=1)


def test_a_tensor_without_a_batch_dimension_is_refused() -> None:
    fixed = TensorSpec(name="x", datatype=Datatype.FP32, shape=(1, 3))
    with pytest.raises(ValueError, match="x has no batch dimension"):
        render(inputs=[IDS], outputs=[fixed], max_batch_size=1, threads=1)


def test_the_load_api_gets_the_same_as_json() -> None:
    text, _ = render(inputs=[IDS], outputs=[LOGITS], max_batch_size=4, threads=1)
    told = json.loads(as_json(with_split(text, copies=2, threads=1)))
    assert told["max_batch_size"] == 4
    assert told["instance_group"][0]["count"] == 2
    assert told["input"][0]["data_type"] == "TYPE_INT64"


def test_a_packed_engine_takes_rows_without_a_batch_dimension() -> None:
    text = render_packed(task=Task.TEXT_EMBEDDING, width=384, type_ids=True, threads=2)
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")
    assert [(each.name, list(each.dims), each.optional) for each in config.input] == [
        ("input_ids", [-1], False),
        ("row_starts", [-1], False),
        ("token_type_ids", [-1], True),
    ]
    assert [(each.name, list(each.dims)) for each in config.output] == [("embedding", [-1, 384])]
