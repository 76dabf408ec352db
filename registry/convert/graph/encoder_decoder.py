"""Exports an encoder-decoder as two graphs: one that reads a prompt, and one that writes after it.

The encoder's graph ends in the keys and values that each layer of the decoder has of the prompt, so
that a step does not make them again. The decoder's is that of ``decoder`` with these as further
inputs. Only models whose positions are relative, as T5's, are served: rows of several lengths lie
in one array, and a model that counts its tokens from the array's beginning would count wrong.
Parity holds a row among others to the same row alone. This needs torch and transformers.
"""

import warnings
from pathlib import Path
from typing import Any

from contracts.tasks import ATTENTION_MASK, INPUT_IDS
from registry.convert.errors import VersionError
from registry.convert.flavours.config import CONFIG, read_json
from registry.convert.flavours.original import Original
from registry.convert.graph.decoder import LOGITS, PAST, PRESENT, SOURCE, SOURCE_MASK
from registry.convert.graph.export import OPSET, Loaded

_ROWS, _BEFORE, _LENGTH = 2, 3, 5  # of the traced example; all stay variable


def start_id(original: Original) -> int:
    """The token before the first one that is written.

    Raises:
        VersionError: the files name none, or positions are not relative.
    """
    config = read_json(original.folder / CONFIG)
    if "relative_attention_num_buckets" not in config:
        raise VersionError(
            f"of encoder-decoders those with relative positions are served, as T5; a "
            f"{config.get('model_type')} counts its positions"
        )
    start = read_json(original.folder / "generation_config.json").get("decoder_start_token_id")
    start = config.get("decoder_start_token_id") if start is None else start
    if not isinstance(start, int):
        raise VersionError(
            f"neither generation_config.json nor {CONFIG} has decoder_start_token_id"
        )
    return start


def to_onnx(loaded: Loaded, encoder: Path, decoder: Path) -> None:
    """Writes both graphs, with variable rows and lengths.

    Raises:
        VersionError: torch can't export the model.
    """
    import torch  # noqa: PLC0415

    network = loaded.network
    try:
        with warnings.catch_warnings(), torch.no_grad():
            # Tracing warns of every branch that it follows; parity is what proves the result.
            warnings.simplefilter("ignore")
            ids = torch.full((_ROWS, _LENGTH), 5, dtype=torch.int64)
            mask = torch.ones_like(ids)
            reading, writing = _modules(network)
            sources = reading(ids, mask)
            kept = [f"{place // 2}.{('key', 'value')[place % 2]}" for place in range(len(sources))]
            read, before, after = (
                [f"{name}.{k}" for k in kept] for name in (SOURCE, PAST, PRESENT)
            )
            rows = {0: "batch", 1: "source"}
            torch.onnx.export(
                reading,
                (ids, mask),
                str(encoder),
                input_names=[INPUT_IDS, ATTENTION_MASK],
                output_names=read,
                dynamic_axes={
                    INPUT_IDS: rows,
                    ATTENTION_MASK: rows,
                    **{name: {0: "batch", 2: "source"} for name in read},
                },
                opset_version=OPSET,
                dynamo=False,
            )
            heads, width = sources[0].shape[1], sources[0].shape[3]
            past = [torch.zeros((_ROWS, heads, _BEFORE, width)) for _ in kept]
            own = torch.ones((_ROWS, _BEFORE + 1), dtype=torch.int64)
            torch.onnx.export(
                writing,
                (ids[:, :1], own, mask, *past, *sources),
                str(decoder),
                input_names=[INPUT_IDS, ATTENTION_MASK, SOURCE_MASK, *before, *read],
                output_names=[LOGITS, *after],
                dynamic_axes={
                    INPUT_IDS: {0: "batch", 1: "length"},
                    ATTENTION_MASK: {0: "batch", 1: "total"},
                    SOURCE_MASK: rows,
                    LOGITS: {0: "batch"},
                    **{name: {0: "batch", 2: "past"} for name in before},
                    **{name: {0: "batch", 2: "source"} for name in read},
                    **{name: {0: "batch", 2: "total"} for name in after},
                },
                opset_version=OPSET,
                dynamo=False,
            )
    except MemoryError:
        raise
    except Exception as error:  # torch and the model's own code raise many kinds
        raise VersionError(f"the model can't be exported as an encoder-decoder: {error}") from error


def _modules(network: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """What reads and what writes, each with its tensors by position, as the exporter wants them."""
    import torch  # noqa: PLC0415
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache  # noqa: PLC0415

    width = network.config.d_model

    class Reading(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = network.get_encoder(), network.get_decoder()

        def forward(self, ids: Any, mask: Any) -> tuple[Any, ...]:  # noqa: ANN401
            states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            # The decoder makes keys and values of them with whatever token it begins.
            result = self.decoder(
                input_ids=torch.zeros_like(ids[:, :1]),
                encoder_hidden_states=states,
                encoder_attention_mask=mask,
                use_cache=True,
            )
            return _flat(result.past_key_values.cross_attention_cache)

    class Writing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any, mask: Any, source_mask: Any, *kept: Any) -> tuple[Any, ...]:  # noqa: ANN401
            layers = len(kept) // 4
            own, cross = DynamicCache(), DynamicCache()
            for layer in range(layers):
                at, beside = 2 * layer, 2 * (layers + layer)
                own.update(kept[at], kept[at + 1], layer)
                cross.update(kept[beside], kept[beside + 1], layer)
            cache = EncoderDecoderCache(own, cross)
            cache.is_updated = dict.fromkeys(range(layers), True)
            # What the encoder made is in the cache; these stand for it and are not looked at.
            states = torch.zeros((*source_mask.shape, width))
            result = self.network(
                decoder_input_ids=ids,
                decoder_attention_mask=mask,
                encoder_outputs=(states,),
                attention_mask=source_mask,
                past_key_values=cache,
                use_cache=True,
            )
            after = result.past_key_values.self_attention_cache
            return (result.logits[:, -1].float(), *_flat(after))

    return Reading().eval(), Writing().eval()


def _flat(cache: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Keys and values of each layer in turn, ``[rows, heads, tokens, width]``."""
    return tuple(tensor for layer in cache.layers for tensor in (layer.keys, layer.values))
