"""Exports a decoder with its keys and values as inputs and outputs, and lets the original write.

The graph reads some tokens after those that it has read before, and gives the logits of only
the last one. Its names are those of Optimum's exports. But for graphs that are registered so, this
needs torch and transformers, as ``export`` does, whose ``load`` gives the model.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from contracts.manifest import TokenRules
from contracts.tasks import ATTENTION_MASK, INPUT_IDS
from registry.convert.errors import VersionError
from registry.convert.flavours.config import read_json
from registry.convert.flavours.original import OriginalTextModel
from registry.convert.graph import engine_form
from registry.convert.graph.export import TorchModel

POSITIONS = "position_ids"
PAST, PRESENT = "past_key_values", "present"
SOURCE_MASK, SOURCE = "encoder_attention_mask", "encoder_key_values"  # of encoder-decoders
LOGITS = "logits"
_OPSET = 17
_ROWS, _BEFORE, _LENGTH = 2, 3, 4  # of the traced example; all stay variable


def to_onnx(loaded: TorchModel, path: Path) -> None:
    """Writes the graph, with variable rows, tokens read before, and tokens to read.

    Raises:
        VersionError: the model keeps no keys and values, or torch can't export it.
    """
    import torch  # noqa: PLC0415

    network = loaded.network
    try:
        with warnings.catch_warnings(), torch.no_grad():
            # Tracing warns of every branch that it follows; parity is what proves the result.
            warnings.simplefilter("ignore")
            ids = torch.full((_ROWS, _BEFORE), 5, dtype=torch.int64)
            past = flatten_cache(network(input_ids=ids, use_cache=True).past_key_values)
            ids = torch.full((_ROWS, _LENGTH), 5, dtype=torch.int64)
            mask = torch.ones((_ROWS, _BEFORE + _LENGTH), dtype=torch.int64)
            positions = torch.arange(_BEFORE, _BEFORE + _LENGTH)[None].repeat(_ROWS, 1)
            kept = [f"{layer}.{kind}" for layer in range(len(past) // 2) for kind in _KINDS]
            before, after = ([f"{name}.{each}" for each in kept] for name in (PAST, PRESENT))
            torch.onnx.export(
                _make_step(network),
                (ids, mask, positions, *past),
                str(path),
                input_names=[INPUT_IDS, ATTENTION_MASK, POSITIONS, *before],
                output_names=[LOGITS, *after],
                dynamic_axes={
                    INPUT_IDS: {0: "batch", 1: "length"},
                    ATTENTION_MASK: {0: "batch", 1: "total"},
                    POSITIONS: {0: "batch", 1: "length"},
                    LOGITS: {0: "batch"},
                    **{name: {0: "batch", 2: "past"} for name in before},
                    **{name: {0: "batch", 2: "total"} for name in after},
                },
                opset_version=_OPSET,
                dynamo=False,
            )
    except Exception as error:  # torch and the model's own code raise many kinds
        raise VersionError(f"the model can't be exported as a decoder: {error}") from error


_KINDS = ("key", "value")


def keep_last_logits(path: Path) -> onnx.ModelProto:
    """A registered graph of the same form, with the logits of the last token only.

    Raises:
        VersionError: it is of another form.
    """
    model = engine_form.load(path)
    inputs = {each.name for each in model.graph.input}
    past = {name for name in inputs if name.startswith(f"{PAST}.")}
    after = {name.replace(PAST, PRESENT, 1) for name in past}
    if inputs - past != {INPUT_IDS, ATTENTION_MASK, POSITIONS} or not past:
        raise VersionError(
            f"a decoder takes {INPUT_IDS}, {ATTENTION_MASK}, {POSITIONS} and {PAST}, and the graph "
            f"takes {', '.join(sorted(inputs))}"
        )
    outputs = {each.name: each for each in model.graph.output}
    if not {LOGITS, *after} <= outputs.keys():
        raise VersionError(
            f"a decoder gives {LOGITS} and {PRESENT} for each {PAST}, and the graph gives "
            f"{', '.join(sorted(outputs))}"
        )
    if len(outputs[LOGITS].type.tensor_type.shape.dim) == _ALL_TOKENS:
        _keep_last(model, outputs[LOGITS])
    return model


_ALL_TOKENS = 3  # dimensions of logits of all tokens


def _keep_last(model: onnx.ModelProto, logits: onnx.ValueInfoProto) -> None:
    graph = model.graph
    for node in graph.node:
        for place, name in enumerate(node.output):
            if name == LOGITS:
                node.output[place] = f"all_{LOGITS}"
    graph.initializer.append(numpy_helper.from_array(np.array(-1, np.int64), "last_token"))
    graph.node.append(helper.make_node("Gather", [f"all_{LOGITS}", "last_token"], [LOGITS], axis=1))
    del logits.type.tensor_type.shape.dim[1]


def _make_step(network: Any) -> Any:  # noqa: ANN401
    import torch  # noqa: PLC0415
    from transformers.cache_utils import DynamicCache  # noqa: PLC0415

    class DecoderStep(torch.nn.Module):
        """The network with its keys and values by position, as the exporter wants them."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any, mask: Any, positions: Any, *past: Any) -> Any:  # noqa: ANN401
            cache = DynamicCache()
            for layer in range(len(past) // 2):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            result = self.network(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                return_dict=True,
            )
            return (result.logits[:, -1].float(), *flatten_cache(result.past_key_values))

    return DecoderStep().eval()


def flatten_cache(cache: Any) -> list[Any]:  # noqa: ANN401
    """Keys and values of each layer in turn, ``[rows, heads, tokens, width]``."""
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def stop_ids(original: OriginalTextModel) -> tuple[int, ...]:
    """The tokens that end a text, by ``generation_config.json``, else by ``config.json``."""
    for name in ("generation_config.json", "config.json"):
        ends = read_json(original.folder / name).get("eos_token_id")
        if ends is not None:
            return tuple(ends) if isinstance(ends, list) else (int(ends),)
    return ()


_NO_RULES = TokenRules()


def write_continuations(
    loaded: TorchModel,
    prompts: Sequence[Sequence[int]],
    stops: Sequence[int],
    *,
    most: int,
    start: int | None = None,
    rules: TokenRules = _NO_RULES,
) -> tuple[list[list[int]], NDArray[np.float32]]:
    """What the original writes after each prompt, always taking the most likely token.

    Of its ``generation_config.json`` only the ``rules`` are used, as nothing else of it is served.

    Returns:
        The tokens after each prompt, at most that number, and the logits of the first one, float32
        ``[prompts, vocabulary]``.

    Raises:
        VersionError: the original fails on a prompt.
    """
    import torch  # noqa: PLC0415
    from transformers import GenerationConfig  # noqa: PLC0415

    network = loaded.network
    plain = GenerationConfig(
        decoder_start_token_id=start,
        do_sample=False,
        max_new_tokens=most,
        eos_token_id=list(stops) or None,
        pad_token_id=stops[0] if stops else 0,
        output_logits=True,
        return_dict_in_generate=True,
        forced_bos_token_id=rules.forced_bos_token_id,
        forced_eos_token_id=rules.forced_eos_token_id,
        bad_words_ids=[list(words) for words in rules.bad_words_ids] or None,
        no_repeat_ngram_size=rules.no_repeat_ngram_size,
        min_new_tokens=min(most, rules.min_new_tokens) if rules.min_new_tokens else None,
    )
    found: list[list[int]] = []
    first: list[NDArray[np.float32]] = []
    try:
        network.generation_config = plain
        with torch.inference_mode():
            for prompt in prompts:
                ids = torch.tensor([list(prompt)])
                result = network.generate(
                    ids, attention_mask=torch.ones_like(ids), generation_config=plain
                )
                before = 1 if network.config.is_encoder_decoder else len(prompt)
                found.append(result.sequences[0, before:].tolist())
                first.append(result.logits[0][0].float().numpy())
    except Exception as error:
        raise VersionError(f"the original model fails on a prompt: {error}") from error
    return found, np.stack(first)
