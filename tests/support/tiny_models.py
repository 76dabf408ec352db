"""Models of a few kilobytes in the layouts that people register, made without torch."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

TEXT = "the a good bad film was not very and warm soup cold i it rain sun no yes"
WORDS = tuple(TEXT.split())
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
VOCABULARY = len(SPECIAL) + len(WORDS)
WIDTH = 16
TEXTS = (
    "yes",
    "the film was good",
    "the soup was cold and not very good",
    "it was a very good film and a very bad soup",
    "no",
    "i was not warm and the rain was cold and the sun was not very warm",
) * 4


def tokenizer() -> Tokenizer:
    """Whole words, with BERT's special tokens around them."""
    words = Tokenizer(
        models.WordLevel(
            {word: place for place, word in enumerate((*SPECIAL, *WORDS))}, unk_token="[UNK]"
        )
    )
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return words


def asking_tokenizer() -> Tokenizer:
    """The same that sets two texts apart, as BERT's does."""
    made = tokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return made


def reader(*, stacked: bool = False, seed: int = 0) -> onnx.ModelProto:
    """A graph that ends in ``start_logits`` and ``end_logits``, or in both as columns."""
    random = np.random.default_rng(seed)
    shapes = {"table": (VOCABULARY, WIDTH), "head": (WIDTH, 2)}
    constants = [
        numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["looked_up"]),
        helper.make_node("Tanh", ["looked_up"], ["states"]),
        helper.make_node("MatMul", ["states", "head"], ["logits"]),
    ]
    if stacked:
        return _model(nodes, constants, {"logits": 3})
    constants.append(numpy_helper.from_array(np.array([2], np.int64), "last"))
    nodes += [
        helper.make_node("Split", ["logits"], ["starts", "ends"], axis=2),
        helper.make_node("Squeeze", ["starts", "last"], ["start_logits"]),
        helper.make_node("Squeeze", ["ends", "last"], ["end_logits"]),
    ]
    return _model(nodes, constants, {"start_logits": 2, "end_logits": 2})


def token_vectors(*, opset: int = 17, seed: int = 0, width: int = WIDTH) -> onnx.ModelProto:
    """A graph that ends in ``last_hidden_state`` ``[batch, length, width]``, one product deep."""
    random = np.random.default_rng(seed)
    constants = [
        numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name)
        for name, shape in (("table", (VOCABULARY, WIDTH)), ("mixing", (WIDTH, width)))
    ]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["looked_up"]),
        helper.make_node("MatMul", ["looked_up", "mixing"], ["mixed"]),
        helper.make_node("Tanh", ["mixed"], ["last_hidden_state"]),
    ]
    return _model(nodes, constants, {"last_hidden_state": 3}, opset=opset)


def hybrid(*, seed: int = 0) -> onnx.ModelProto:
    """A graph of three outputs: a dense vector, one of each token but the first, and weights."""
    model = token_vectors(seed=seed)
    graph = model.graph
    del graph.output[:]
    constants = {"first": 0, "one": [1], "far": [2**31], "middle": [1], "last": [2]}
    for name, value in constants.items():
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
    graph.node.extend(
        [
            helper.make_node("Gather", ["last_hidden_state", "first"], ["dense_vecs"], axis=1),
            helper.make_node(
                "Slice", ["last_hidden_state", "one", "far", "middle"], ["colbert_vecs"]
            ),
            helper.make_node("ReduceSum", ["last_hidden_state", "last"], ["sums"], keepdims=1),
            helper.make_node("Relu", ["sums"], ["sparse_vecs"]),
        ]
    )
    for name, rank in (("dense_vecs", 2), ("colbert_vecs", 3), ("sparse_vecs", 3)):
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank))
    return model


def decoder(*, seed: int = 0, positions: int = 64, vocabulary: int = VOCABULARY) -> onnx.ModelProto:
    """A decoder of one layer whose last token looks at all, with its keys and values.

    In the form of ``registry.convert.graph.decoder``: logits ``[rows, vocabulary]`` of the last
    token.
    """
    random = np.random.default_rng(seed)
    constants = [
        numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name)
        for name, shape in (
            ("table", (vocabulary, WIDTH)),
            ("places", (positions, WIDTH)),
            ("head", (WIDTH, vocabulary)),
        )
    ]
    numbers = {"first": [1], "both": [1, 2], "end": -1, "one": 1.0, "far": -1e9}
    constants += [
        numpy_helper.from_array(
            np.array(value, np.float32 if isinstance(value, float) else np.int64), name
        )
        for name, value in numbers.items()
    ]
    make = helper.make_node
    nodes = [
        make("Gather", ["table", "input_ids"], ["words"]),
        make("Gather", ["places", "position_ids"], ["placed"]),
        make("Add", ["words", "placed"], ["rows"]),
        make("Unsqueeze", ["rows", "first"], ["new"]),
        make("Concat", ["past_key_values.0.key", "new"], ["present.0.key"], axis=2),
        make("Concat", ["past_key_values.0.value", "new"], ["present.0.value"], axis=2),
        make("Gather", ["rows", "end"], ["last"], axis=1),
        make("Unsqueeze", ["last", "both"], ["asking"]),
        make("Transpose", ["present.0.key"], ["keys"], perm=[0, 1, 3, 2]),
        make("MatMul", ["asking", "keys"], ["seen"]),
        make("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        make("Sub", ["one", "mask"], ["hidden"]),
        make("Mul", ["hidden", "far"], ["lowered"]),
        make("Unsqueeze", ["lowered", "both"], ["lower"]),
        make("Add", ["seen", "lower"], ["scores"]),
        make("Softmax", ["scores"], ["shares"], axis=-1),
        make("MatMul", ["shares", "present.0.value"], ["mixed"]),
        make("Squeeze", ["mixed", "both"], ["flat"]),
        make("Tanh", ["flat"], ["state"]),
        make("MatMul", ["state", "head"], ["logits"]),
    ]
    cache = ["batch", 1, "past", WIDTH]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", length])
        for name, length in (
            ("input_ids", "length"),
            ("attention_mask", "total"),
            ("position_ids", "length"),
        )
    ] + [
        helper.make_tensor_value_info(f"past_key_values.0.{kind}", TensorProto.FLOAT, cache)
        for kind in ("key", "value")
    ]
    outputs = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", vocabulary]),
        *(
            helper.make_tensor_value_info(f"present.0.{kind}", TensorProto.FLOAT, [None] * 4)
            for kind in ("key", "value")
        ),
    ]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def encoder_decoder(
    *, seed: int = 0, counted: bool = False
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """An encoder, and ``decoder``, which looks at what the encoder read too.

    In the form of ``registry.convert.graph.encoder_decoder``: a word's key and value are one row.
    Positions are taken only where they are ``counted``.
    """
    writing = decoder(seed=seed)
    graph = writing.graph
    if not counted:
        for each in list(graph.input):
            if each.name == "position_ids":
                graph.input.remove(each)
        (placing,) = (node for node in graph.node if "placed" in node.output)
        graph.node.remove(placing)
        (adding,) = (node for node in graph.node if "rows" in node.output)
        adding.op_type, adding.input[1] = "Identity", ""
        del adding.input[1]
    (ending,) = (node for node in graph.node if "state" in node.output)
    ending.input[0] = "both_read"
    make = helper.make_node
    further = [
        make("Transpose", ["encoder_key_values.0.key"], ["source_keys"], perm=[0, 1, 3, 2]),
        make("MatMul", ["asking", "source_keys"], ["source_seen"]),
        make("Cast", ["encoder_attention_mask"], ["source_mask"], to=TensorProto.FLOAT),
        make("Sub", ["one", "source_mask"], ["source_hidden"]),
        make("Mul", ["source_hidden", "far"], ["source_lowered"]),
        make("Unsqueeze", ["source_lowered", "both"], ["source_lower"]),
        make("Add", ["source_seen", "source_lower"], ["source_scores"]),
        make("Softmax", ["source_scores"], ["source_shares"], axis=-1),
        make("MatMul", ["source_shares", "encoder_key_values.0.value"], ["source_mixed"]),
        make("Squeeze", ["source_mixed", "both"], ["source_flat"]),
        make("Add", ["flat", "source_flat"], ["both_read"]),
    ]
    place = list(graph.node).index(ending)
    for node in reversed(further):
        graph.node.insert(place, node)
    value = helper.make_tensor_value_info
    graph.input.append(value("encoder_attention_mask", TensorProto.INT64, ["batch", "source"]))
    kept = [
        value(f"encoder_key_values.0.{kind}", TensorProto.FLOAT, ["batch", 1, "source", WIDTH])
        for kind in ("key", "value")
    ]
    graph.input.extend(kept)
    table = numpy_helper.from_array(
        np.random.default_rng(seed + 1).normal(size=(VOCABULARY, WIDTH)).astype(np.float32), "table"
    )
    first = numpy_helper.from_array(np.array([1], np.int64), "first")
    reading = helper.make_graph(
        [
            make("Gather", ["table", "input_ids"], ["words"]),
            make("Unsqueeze", ["words", "first"], ["encoder_key_values.0.key"]),
            make("Identity", ["encoder_key_values.0.key"], ["encoder_key_values.0.value"]),
        ],
        "encoder",
        [
            value(name, TensorProto.INT64, ["batch", "source"])
            for name in ("input_ids", "attention_mask")
        ],
        kept,
        [table, first],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(reading, opset_imports=opset, ir_version=8), writing


def labeller(*, labels: int = 3, seed: int = 0) -> onnx.ModelProto:
    """A graph that ends in logits ``[batch, length, labels]``, by each token alone."""
    random = np.random.default_rng(seed)
    shapes = {"table": (VOCABULARY, WIDTH), "mixing": (WIDTH, WIDTH), "head": (WIDTH, labels)}
    constants = [
        numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["looked_up"]),
        helper.make_node("MatMul", ["looked_up", "mixing"], ["mixed"]),
        helper.make_node("Tanh", ["mixed"], ["states"]),
        helper.make_node("MatMul", ["states", "head"], ["logits"]),
    ]
    return _model(nodes, constants, {"logits": 3})


def classifier(
    *, labels: int = 2, output: str = "logits", masked: bool = True, seed: int = 0
) -> onnx.ModelProto:
    """A graph that ends in logits ``[batch, labels]``; unmasked, padding changes its answers."""
    random = np.random.default_rng(seed)
    shapes = {"table": (VOCABULARY, WIDTH), "mixing": (WIDTH, WIDTH), "head": (WIDTH, labels)}
    constants = [
        numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    constants.append(numpy_helper.from_array(np.array([2], np.int64), "last"))
    constants.append(numpy_helper.from_array(np.array([1], np.int64), "middle"))
    weight = "mask" if masked else "ones"
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["looked_up"]),
        helper.make_node("MatMul", ["looked_up", "mixing"], ["mixed"]),
        helper.make_node("Tanh", ["mixed"], ["states"]),
        helper.make_node("Cast", ["attention_mask"], ["float_mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["float_mask", "last"], ["mask"]),
        helper.make_node("Div", ["mask", "mask"], ["ones"]),
        helper.make_node("Mul", ["states", weight], ["counted"]),
        helper.make_node("ReduceSum", ["counted", "middle"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", [weight, "middle"], ["count"], keepdims=0),
        helper.make_node("Div", ["sum", "count"], ["mean"]),
        helper.make_node("MatMul", ["mean", "head"], [output]),
    ]
    if not masked:
        # No token is left out: the mask is an input that changes nothing.
        nodes[5] = helper.make_node("Equal", ["mask", "mask"], ["same"])
        nodes.insert(6, helper.make_node("Cast", ["same"], ["ones"], to=TensorProto.FLOAT))
    return _model(nodes, constants, {output: 2})


def _model(
    nodes: list[Any], constants: list[Any], outputs: dict[str, int], *, opset: int = 17
) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "attention_mask")
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank)
        for name, rank in outputs.items()
    ]
    graph = helper.make_graph(nodes, "tiny", inputs, ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def write_json(path: Path, data: object) -> None:
    """Writes one of the small files of a Hugging Face folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf-8")


def write_onnx_version(
    folder: Path,
    model: onnx.ModelProto | None = None,
    *,
    labels: tuple[str, ...] = ("bad", "good"),
    architecture: str = "TinyForSequenceClassification",
    with_tokenizer: bool = True,
) -> Path:
    """A version as ``mlflow.onnx`` leaves it, with its extra files beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "MLmodel").write_text("flavors:\n  onnx:\n    data: model.onnx\n")
    onnx.save(model or classifier(labels=len(labels)), str(folder / "model.onnx"))
    extra = folder / "extra_files"
    config = {
        "architectures": [architecture],
        "id2label": {str(place): label for place, label in enumerate(labels)},
        "max_position_embeddings": 24,
    }
    write_json(extra / "config.json", config)
    if with_tokenizer:
        tokenizer().save(str(extra / "tokenizer.json"))
    return folder
