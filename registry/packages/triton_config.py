"""Writes Triton's model configuration, from Triton's own protobuf.

A configuration carries no name: the folder names the model. It never looks at a graph: what it says
about tensors is what the manifest says.
"""

from collections.abc import Sequence

from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

from contracts.endpoint import Precision
from contracts.loading import DeviceKind
from contracts.manifest import MODEL_ONNX, GenerationSpec, Manifest, PackedSpec, TokenRules
from contracts.tasks import (
    ENGINE_OUTPUT,
    INPUT_IDS,
    MAX_TOKENS,
    SEED,
    STOP_IDS,
    TEMPERATURE,
    TOKEN_TYPE_IDS,
    TOP_P,
    Task,
    packed_inputs,
)
from contracts.tensors import Datatype, TensorSpec
from preprocess.buckets import fixed_shapes

MODEL_PY = "model.py"
VERSION_FOLDER = "1"
THREADS = "intra_op_thread_count"  # the native backend's own name; the Python model reads the same
# That ``triton/generation_model`` reads.
CONTEXT, ROWS, START, RULES = "context", "rows", "start", "rules"
ASK, ANSWER = "ask", "device"  # that ``triton/device_probe`` reads and gives
BACKEND_PYTHON = "python"
BACKEND_ONNXRUNTIME = "onnxruntime"

# Gateways have batched already; Triton only joins what different gateways sent at one moment. Not
# in the Python backend: there Triton's batcher now and then sleeps through a wake-up, for half a
# second (docs/decisions/0008-triton-batcher.md).
QUEUE_DELAY_MICROSECONDS = 100
# Batches waiting in Triton can no longer be refused by the gateway, so they are few.
QUEUE_LIMIT = 256

_DATATYPES = {
    Datatype.BYTES: model_config_pb2.TYPE_STRING,
    Datatype.BOOL: model_config_pb2.TYPE_BOOL,
    Datatype.UINT8: model_config_pb2.TYPE_UINT8,
    Datatype.INT32: model_config_pb2.TYPE_INT32,
    Datatype.INT64: model_config_pb2.TYPE_INT64,
    Datatype.FP16: model_config_pb2.TYPE_FP16,
    Datatype.FP32: model_config_pb2.TYPE_FP32,
    Datatype.FP64: model_config_pb2.TYPE_FP64,
}


def render(
    *,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    max_batch_size: int,
    threads: int,
) -> tuple[str, str]:
    """The configuration of one engine, for each of Triton's backends that can run it.

    How many copies run, and by how many threads, is in the end not the package's to say:
    ``with_split`` does where it is placed.

    Args:
        inputs: the graph's inputs; the first dimension of each shape is the batch.
        outputs: the graph's outputs, in the same form.
        max_batch_size: rows that one execution takes at most.
        threads: CPU threads that one execution uses.

    Returns:
        The texts for the Python backend and for the native ONNX Runtime backend.

    Raises:
        ValueError: a tensor without a batch dimension.
    """
    base = model_config_pb2.ModelConfig(max_batch_size=max_batch_size)
    for spec in inputs:
        base.input.add(name=spec.name, data_type=_DATATYPES[spec.datatype], dims=_dims(spec))
    for spec in outputs:
        base.output.add(name=spec.name, data_type=_DATATYPES[spec.datatype], dims=_dims(spec))
    base.instance_group.add(kind=model_config_pb2.ModelInstanceGroup.KIND_AUTO, count=1)
    base.parameters[THREADS].string_value = str(threads)
    python = _text(base, backend=BACKEND_PYTHON, filename=MODEL_PY)
    base.dynamic_batching.max_queue_delay_microseconds = QUEUE_DELAY_MICROSECONDS
    base.dynamic_batching.default_queue_policy.max_queue_size = QUEUE_LIMIT
    return python, _text(base, backend=BACKEND_ONNXRUNTIME, filename=MODEL_ONNX)


def render_packed(*, task: Task, width: int, type_ids: bool, threads: int) -> str:
    """The configuration of a packed engine, which Triton's Python backend runs.

    Requests have no batch dimension: the model itself joins what gateways send.

    Args:
        task: names the output.
        width: values of a row, or of a token.
        type_ids: whether the model reads ``token_type_ids``; they may be left out of a request.
        threads: CPU threads of one run, on a machine without a GPU.
    """
    base = model_config_pb2.ModelConfig(max_batch_size=0)
    for spec in packed_inputs(type_ids=type_ids):
        base.input.add(
            name=spec.name,
            data_type=_DATATYPES[spec.datatype],
            dims=spec.shape,
            optional=spec.name == TOKEN_TYPE_IDS,
        )
    output = ENGINE_OUTPUT[task]
    base.output.add(name=output.name, data_type=_DATATYPES[output.datatype], dims=[-1, width])
    base.instance_group.add(kind=model_config_pb2.ModelInstanceGroup.KIND_AUTO, count=1)
    base.parameters[THREADS].string_value = str(threads)
    return _text(base, backend=BACKEND_PYTHON, filename=MODEL_PY)


def packed_settings(
    spec: PackedSpec, *, task: Task, precision: Precision, threads: int
) -> dict[str, object]:
    """What ``triton/packed_model`` reads in ``packed.json``, beside the package's files.

    Args:
        spec: the manifest's.
        task: tells the output's name, and whether there is one for each token.
        precision: that it computes in.
        threads: CPU threads of one run, on a machine without a GPU.
    """
    output = ENGINE_OUTPUT[task]
    return {
        "loader": spec.loader,
        "type_ids": spec.type_ids,
        "modes": list(spec.modes),
        "dense": [{"file": each.file, "activation": each.activation} for each in spec.dense],
        "normalise": spec.normalise,
        "task": task.value,
        "output": output.name,
        "rank": len(output.shape),
        "dtype": precision.value,
        "threads": threads,
    }


def fixed_settings(manifest: Manifest) -> dict[str, object]:
    """What ``triton/fixed_model`` reads of a graph in fixed shapes.

    Raises:
        ValueError: the manifest names no shapes.
    """
    if manifest.fixed is None:
        raise ValueError("the manifest names no fixed shapes")
    (output,) = manifest.outputs
    tokenizer = manifest.tokenizer
    fill = {INPUT_IDS: tokenizer.pad_id, TOKEN_TYPE_IDS: tokenizer.pad_type_id}
    return {
        "shapes": fixed_shapes(manifest.fixed.rows, manifest.length_buckets),
        "fill": {spec.name: fill.get(spec.name, 0) for spec in manifest.inputs},
        "output": output.name,
        "rank": len(output.shape),
        "width": output.shape[-1],
    }


# Of ``triton/generation_model``: datatype, elements (-1: any number), whether it may be left out.
_PROMPT = {
    INPUT_IDS: (Datatype.INT64, -1, False),
    MAX_TOKENS: (Datatype.INT32, 1, False),
    TEMPERATURE: (Datatype.FP32, 1, True),
    TOP_P: (Datatype.FP32, 1, True),
    SEED: (Datatype.INT64, 1, True),
    STOP_IDS: (Datatype.INT64, -1, True),
}
_PLAIN = GenerationSpec()


def render_generation(
    *, context: int, rows: int, threads: int, generation: GenerationSpec = _PLAIN
) -> str:
    """The configuration of a model that generates, which only Triton's Python backend can run.

    Args:
        context: tokens that a prompt and what is generated may have together.
        rows: requests that are stepped together.
        threads: CPU threads that one step uses.
        generation: how a text begins and goes on; if it has a ``start_id``, prompt and text have
            ``context`` each.
    """
    base = model_config_pb2.ModelConfig(max_batch_size=0)
    base.model_transaction_policy.decoupled = True
    for name, (datatype, count, optional) in _PROMPT.items():
        base.input.add(name=name, data_type=_DATATYPES[datatype], dims=[count], optional=optional)
    for name in (ENGINE_OUTPUT[Task.TEXT_GENERATION].name, "finish"):
        base.output.add(name=name, data_type=_DATATYPES[Datatype.INT32], dims=[1])
    base.instance_group.add(kind=model_config_pb2.ModelInstanceGroup.KIND_AUTO, count=1)
    rules = (
        generation.rules.model_dump_json(exclude_defaults=True)
        if generation.rules != TokenRules()
        else None
    )
    values = {
        THREADS: threads,
        CONTEXT: context,
        ROWS: rows,
        START: generation.start_id,
        RULES: rules,
    }
    for name, value in values.items():
        if value is not None:
            base.parameters[name].string_value = str(value)
    return _text(base, backend=BACKEND_PYTHON, filename=MODEL_PY)


def render_probe() -> str:
    """The configuration of ``triton/device_probe``: it says what Triton's machine computes with.

    It runs on the CPU and gives JSON as bytes; what it is asked makes no difference.
    """
    base = model_config_pb2.ModelConfig(max_batch_size=0)
    base.input.add(name=ASK, data_type=_DATATYPES[Datatype.INT32], dims=[1])
    base.output.add(name=ANSWER, data_type=_DATATYPES[Datatype.UINT8], dims=[-1])
    base.instance_group.add(kind=model_config_pb2.ModelInstanceGroup.KIND_CPU, count=1)
    return _text(base, backend=BACKEND_PYTHON, filename=MODEL_PY)


def render_witness() -> tuple[str, str]:
    """The configuration of ``triton/witness``, as ``render`` gives it: it returns ids as floats."""
    ids = TensorSpec(name=INPUT_IDS, datatype=Datatype.INT64, shape=(-1, -1))
    found = TensorSpec(name="ids", datatype=Datatype.FP32, shape=(-1, -1))
    return render(inputs=[ids], outputs=[found], max_batch_size=8, threads=1)


def generates(text: str) -> bool:
    """Whether it is the configuration of a model that generates; raises ``ParseError``."""
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    return bool(config.model_transaction_policy.decoupled)


_KINDS = {
    None: model_config_pb2.ModelInstanceGroup.KIND_AUTO,
    DeviceKind.CPU: model_config_pb2.ModelInstanceGroup.KIND_CPU,
    DeviceKind.GPU: model_config_pb2.ModelInstanceGroup.KIND_GPU,
}


def with_split(text: str, *, copies: int, threads: int, device: DeviceKind | None = None) -> str:
    """The configuration with this number of copies, on each GPU or on the CPU.

    Each execution uses this number of CPU threads.

    Args:
        text: the configuration.
        copies: of the model; on each GPU.
        threads: of one execution.
        device: None leaves it to Triton, which takes each GPU if it sees one, else the CPU.

    Raises:
        google.protobuf.text_format.ParseError: not a model configuration.
    """
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    del config.instance_group[:]
    config.instance_group.add(kind=_KINDS[device], count=copies)
    config.parameters[THREADS].string_value = str(threads)
    return str(text_format.MessageToString(config))


def as_json(text: str) -> str:
    """The same configuration as the load API takes it; raises ``ParseError``."""
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    return str(json_format.MessageToJson(config, preserving_proto_field_name=True, indent=None))


def _dims(spec: TensorSpec) -> list[int]:
    if not spec.shape or spec.shape[0] != -1:
        raise ValueError(f"tensor {spec.name} has no batch dimension: {list(spec.shape)}")
    return list(spec.shape[1:])


def _text(base: model_config_pb2.ModelConfig, *, backend: str, filename: str) -> str:
    config = model_config_pb2.ModelConfig()
    config.CopyFrom(base)
    config.backend = backend
    config.default_model_filename = filename
    return str(text_format.MessageToString(config))
