"""Small graphs whose rows attend, and the files of ``triton/fixed_model``."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
from loaded_script import loaded
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from registry.packages.triton_files import triton_file

VOCABULARY, WIDTH, HEADS, PAD = 20, 16, 2, 0
IDS, MASK, OUTPUT = "input_ids", "attention_mask", "embedding"
CONTRIB = "com.microsoft"

Batch = dict[str, NDArray[np.int64]]


def fixed_shapes() -> ModuleType:
    """``fixed_shapes``, as Triton's Python backend imports it."""
    return loaded(triton_file("fixed_model", "fixed_shapes.py"))


def write_attending(path: Path, *, by_token: bool = False) -> Path:
    """A graph of one fused attention: a vector for each token, or their mean over the mask."""
    random = np.random.default_rng(0)
    shapes = {"table": (VOCABULARY, WIDTH), "qkv": (WIDTH, 3 * WIDTH), "bias": (3 * WIDTH,)}
    constants = [
        numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    constants += [numpy_helper.from_array(np.array([1], np.int64), "first"),
                  numpy_helper.from_array(np.array([2], np.int64), "last")]  # fmt: skip
    make = helper.make_node
    nodes = [
        make("Gather", ["table", IDS], ["states"]),
        make("Cast", [MASK], ["seen"], to=TensorProto.INT32),
        make(
            "Attention", ["states", "qkv", "bias", "seen"], ["tokens"],
            domain=CONTRIB, num_heads=HEADS,
        ),
        make("Cast", [MASK], ["weights"], to=TensorProto.FLOAT),
        make("Unsqueeze", ["weights", "last"], ["column"]),
        make("Mul", ["tokens", "column"], ["weighted"]),
        make("ReduceSum", ["weighted", "first"], ["sums"], keepdims=0),
        make("ReduceSum", ["weights", "first"], ["counts"], keepdims=1),
        make("Div", ["sums", "counts"], ["mean"]),
        make("Identity", ["tokens" if by_token else "mean"], [OUTPUT]),
    ]  # fmt: skip
    batch = ["batch", "length"]
    graph = helper.make_graph(
        nodes,
        "attending",
        [helper.make_tensor_value_info(name, TensorProto.INT64, batch) for name in (IDS, MASK)],
        [
            helper.make_tensor_value_info(
                OUTPUT, TensorProto.FLOAT, [*(batch if by_token else batch[:1]), WIDTH]
            )
        ],
        constants,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(CONTRIB, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return path


def told(shapes: Sequence[tuple[int, int]], *, by_token: bool = False) -> dict[str, object]:
    """What such a graph's ``shapes.json`` says."""
    return {
        "shapes": [list(shape) for shape in shapes],
        "fill": {IDS: PAD, MASK: 0},
        "output": OUTPUT,
        "rank": 3 if by_token else 2,
        "width": WIDTH,
    }


def batch_of(
    rows: Sequence[Sequence[int]], length: int | None = None
) -> dict[str, NDArray[np.int64]]:
    """Rows as a gateway pads them: to the longest, or to ``length``."""
    length = length or max(map(len, rows))
    ids, mask = (np.zeros((len(rows), length), np.int64) for _ in range(2))
    for at, row in enumerate(rows):
        ids[at, : len(row)], mask[at, : len(row)] = row, 1
    return {IDS: ids, MASK: mask}


def write_told(folder: Path, shapes: Sequence[tuple[int, int]]) -> None:
    """Writes it beside the graph."""
    (folder / "shapes.json").write_text(json.dumps(told(shapes)))
