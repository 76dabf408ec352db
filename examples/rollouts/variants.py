"""Versions of the sentiment classifier that a rollout should promote, roll back or refuse.

Each is the shipped ``model.onnx`` with a few nodes behind or beside its logits, made with ``onnx``
alone, so that the fault is exactly the one that its name says and nothing else changes. Nothing is
trained here.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
SENTIMENT = ROOT / "examples" / "sentiment"
REPLAY = SENTIMENT / "texts" / "replay.txt"
SEEN_AT_CONVERSION = (
    SENTIMENT / "texts" / "held_out.jsonl",
    ROOT / "registry" / "convert" / "texts.txt",
)

FLIPPED_ONE_IN = 4
POSITIVE_BIAS = 4.0
SLOW_WIDTH = 384
SLOW_PRODUCTS = 24
FAILING_SHARE = (0.02, 0.06)  # of the replayed texts


def baseline(model: Any) -> None:  # noqa: ANN401 - onnx has no types
    """The classifier as it was trained."""


def better(model: Any) -> None:  # noqa: ANN401
    """The same labels with confidences nearer to how often they are right (temperature 1.34)."""
    training = json.loads((SENTIMENT / "model" / "training.json").read_text(encoding="utf-8"))
    raw = _behind_logits(model)
    _constant(model, "temperature", np.array(training["temperature"], np.float32))
    _node(model, "Div", [raw, "temperature"], _output(model))


def worse(model: Any) -> None:  # noqa: ANN401
    """Answers the opposite for one text in four, chosen by its tokens: classes keep their shares.

    Neither errors nor latency nor the shares of the classes show it. Labels do.
    """
    raw = _behind_logits(model)
    _constant(model, "worse_modulus", np.array(FLIPPED_ONE_IN, np.int64))
    _constant(model, "worse_zero", np.array(0, np.int64))
    _constant(model, "worse_axis", np.array([1], np.int64))
    _node(model, "ReduceSum", ["input_ids", "worse_axis"], "worse_sum", keepdims=1)
    _node(model, "Mod", ["worse_sum", "worse_modulus"], "worse_rest")
    _node(model, "Equal", ["worse_rest", "worse_zero"], "worse_chosen")
    _node(model, "Neg", [raw], "worse_opposite")
    _node(model, "Where", ["worse_chosen", "worse_opposite", raw], _output(model))


def collapsed(model: Any) -> None:  # noqa: ANN401
    """Says ``positive`` of nearly everything."""
    raw = _behind_logits(model)
    _constant(model, "collapsed_bias", np.array([0.0, POSITIVE_BIAS], np.float32))
    _node(model, "Add", [raw, "collapsed_bias"], _output(model))


def slow(model: Any) -> None:  # noqa: ANN401
    """The same answers after products of large matrices that nobody needs.

    Every product goes through a value of the request, so that no optimiser can do it beforehand;
    its largest value times zero is added to the logits.
    """
    raw = _behind_logits(model)
    weights = np.random.default_rng(7).standard_normal((SLOW_WIDTH, SLOW_WIDTH)) / SLOW_WIDTH
    _constant(model, "slow_weights", weights.astype(np.float32))
    _constant(model, "slow_nothing", np.array(0.0, np.float32))
    _node(model, "ReduceMax", [raw], "slow_seed", keepdims=0)
    _node(model, "Mul", ["slow_weights", "slow_seed"], "slow_0")
    for step in range(SLOW_PRODUCTS):
        _node(model, "MatMul", [f"slow_{step}", "slow_weights"], f"slow_product_{step}")
        _node(model, "Tanh", [f"slow_product_{step}"], f"slow_{step + 1}")
    _node(model, "ReduceMax", [f"slow_{SLOW_PRODUCTS}"], "slow_result", keepdims=0)
    _node(model, "Mul", ["slow_result", "slow_nothing"], "slow_zero")
    _node(model, "Add", [raw, "slow_zero"], _output(model))


def failing(model: Any) -> None:  # noqa: ANN401
    """Fails at run time where a certain token is among the inputs.

    No text that conversion is verified on holds that token; a few of the replayed ones do.
    """
    token, _ = failing_token()
    raw = _behind_logits(model)
    _constant(model, "failing_token", np.array(token, np.int64))
    _constant(model, "failing_table", np.zeros(1, np.float32))
    _node(model, "Equal", ["input_ids", "failing_token"], "failing_found")
    _node(model, "Cast", ["failing_found"], "failing_found_int", to=TensorProto.INT64)
    # The table has one row: an index of 1 is out of bounds.
    _node(model, "ReduceMax", ["failing_found_int"], "failing_index", keepdims=0)
    _node(model, "Gather", ["failing_table", "failing_index"], "failing_zero")
    _node(model, "Add", [raw, "failing_zero"], _output(model))


def unconvertible(model: Any) -> None:  # noqa: ANN401
    """Uses an operator that no engine here knows."""
    raw = _behind_logits(model)
    model.opset_import.append(helper.make_opsetid("com.example.research", 1))
    node = helper.make_node(
        "SecretActivation", [raw], [_output(model)], domain="com.example.research"
    )
    model.graph.node.append(node)


VARIANTS: dict[str, Callable[[Any], None]] = {
    "baseline": baseline,
    "better": better,
    "worse": worse,
    "slow": slow,
    "failing": failing,
    "collapsed": collapsed,
    "unconvertible": unconvertible,
}


def make(variant: str) -> Any:  # noqa: ANN401
    """The graph of a variant, checked."""
    model = onnx.load(SENTIMENT / "model" / "model.onnx")
    VARIANTS[variant](model)
    onnx.checker.check_model(model)
    return model


def failing_token() -> tuple[int, float]:
    """The token at which ``failing`` fails, and the share of replayed texts that hold it."""
    tokenizer = Tokenizer.from_file(str(SENTIMENT / "model" / "tokenizer.json"))
    seen = {token for path in SEEN_AT_CONVERSION for ids in _ids(tokenizer, path) for token in ids}
    texts = list(_ids(tokenizer, REPLAY))
    held = Counter(token for ids in texts for token in set(ids) - seen)
    low, high = (share * len(texts) for share in FAILING_SHARE)
    fitting = {token: count for token, count in held.items() if count <= high}
    token, count = max(fitting.items(), key=lambda item: (item[1], -item[0]))
    if count < low:
        raise LookupError(f"no token is in {FAILING_SHARE[0]:.0%} of the replayed texts alone")
    return token, count / len(texts)


def _ids(tokenizer: Any, path: Path) -> Iterable[list[int]]:  # noqa: ANN401
    lines = path.read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines] if path.suffix == ".jsonl" else lines
    return (encoding.ids for encoding in tokenizer.encode_batch(texts))


# Graph surgery


def _output(model: Any) -> str:  # noqa: ANN401
    (output,) = model.graph.output
    return str(output.name)


def _behind_logits(model: Any) -> str:  # noqa: ANN401
    """Renames what makes the graph's output, so that more can follow it; the new name."""
    output = _output(model)
    raw = f"{output}_as_trained"
    for node in model.graph.node:
        node.output[:] = [raw if name == output else name for name in node.output]
        node.input[:] = [raw if name == output else name for name in node.input]
    return raw


def _constant(model: Any, name: str, value: np.ndarray[Any, Any]) -> None:  # noqa: ANN401
    model.graph.initializer.append(numpy_helper.from_array(value, name))


def _node(model: Any, kind: str, inputs: list[str], output: str, **attributes: int) -> None:  # noqa: ANN401
    model.graph.node.append(helper.make_node(kind, inputs, [output], **attributes))
