"""Exports an encoder-decoder as two graphs: one that reads a prompt, and one that writes after it.

The encoder's graph ends in the keys and values that each layer of the decoder has of the prompt, so
that a step does not make them again. The decoder's is that of ``decoder`` with these as further
inputs. Rows of several lengths lie in one array, and the code of BART and Marian counts tokens from
the array's beginning: so such a decoder is given its positions, as one without an encoder is. One
whose positions are relative, as T5's, needs none. Parity compares a row among others with the same
row by itself. This needs torch and transformers.
"""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contracts.manifest import TokenRules
from contracts.tasks import ATTENTION_MASK, INPUT_IDS
from registry.convert.errors import VersionError
from registry.convert.flavours.config import CONFIG, read_json
from registry.convert.flavours.original import OriginalTextModel
from registry.convert.graph.decoder import (
    LOGITS,
    PAST,
    POSITIONS,
    PRESENT,
    SOURCE,
    SOURCE_MASK,
    flatten_cache,
)
from registry.convert.graph.export import OPSET, TorchModel

log = logging.getLogger(__name__)

_MOST_SEQUENCES = 1000  # that may be forbidden; each is looked at in every step
_ROWS, _BEFORE, _LENGTH = 2, 3, 5  # of the traced example; all stay variable


def start_id(original: OriginalTextModel) -> int:
    """The token before the first one that is written.

    Raises:
        VersionError: the files name none.
    """
    config = read_json(original.folder / CONFIG)
    start = read_json(original.folder / "generation_config.json").get("decoder_start_token_id")
    start = config.get("decoder_start_token_id") if start is None else start
    if not isinstance(start, int):
        raise VersionError(
            f"neither generation_config.json nor {CONFIG} has decoder_start_token_id"
        )
    return start


# Of a generation config: what changes the most likely text and is not served, with the values at
# which it changes nothing.
_LEFT_OUT: Mapping[str, tuple[Any, ...]] = {
    "num_beams": (1,),
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "encoder_no_repeat_ngram_size": (0,),
    "exponential_decay_length_penalty": (),
    "sequence_bias": (),
    "guidance_scale": (1.0,),
    "begin_suppress_tokens": ([],),
    "watermarking_config": (),
}


def token_rules(config: Mapping[str, Any]) -> TokenRules:
    """What a version's generation config forces and forbids.

    What weighs tokens, or follows several texts at once, is left out and named in the log: callers
    get the most likely tokens that are not forbidden, or choose by chance among them.

    Raises:
        VersionError: a field is not of the form that ``generate`` takes, or has too much in it.
    """
    left = [
        name
        for name, neutral in _LEFT_OUT.items()
        if config.get(name) is not None and config[name] not in neutral
    ]
    if left:
        log.info("left out of the generation config", extra={"reason": ", ".join(left)})
    try:
        return _rules(config)
    except (TypeError, ValueError) as error:
        raise VersionError(f"the generation config can't be used: {error}") from error


def _rules(config: Mapping[str, Any]) -> TokenRules:
    ends = _ids(config.get("eos_token_id"))
    never = [[int(each) for each in words] for words in config.get("bad_words_ids") or ()]
    never += [[each] for each in _ids(config.get("suppress_tokens"))]
    never = [words for words in never if words and words not in [[end] for end in ends]]
    if len(never) > _MOST_SEQUENCES:
        raise VersionError(
            f"the generation config forbids {len(never)} sequences of tokens; {_MOST_SEQUENCES} "
            "may be forbidden"
        )
    fewest = config.get("min_new_tokens")
    if fewest is None:  # the other one counts the token before the text
        fewest = (config.get("min_length") or 0) - 1
    last = _ids(config.get("forced_eos_token_id"))
    return TokenRules(
        forced_bos_token_id=config.get("forced_bos_token_id"),
        forced_eos_token_id=min(last) if last else None,
        bad_words_ids=tuple(tuple(words) for words in never),
        no_repeat_ngram_size=config.get("no_repeat_ngram_size") or None,
        min_new_tokens=fewest if fewest > 0 else None,
    )


def _ids(given: int | Sequence[int] | None) -> list[int]:
    """One token or several, as transformers' configurations have them."""
    if given is None:
        return []
    return [given] if isinstance(given, int) else [int(each) for each in given]


def positions_of(network: Any) -> Any:  # noqa: ANN401
    """The decoder's table of positions; None for one whose positions are relative.

    Raises:
        VersionError: it has positions of another kind.
    """
    if hasattr(network.config, "relative_attention_num_buckets"):
        return None
    table = getattr(network.get_decoder(), "embed_positions", None)
    if not hasattr(table, "num_embeddings"):
        raise VersionError(
            "of encoder-decoders those with relative positions are served, as T5, and those with a "
            f"table of positions, as BART; a {network.config.model_type} counts them otherwise"
        )
    return table


@contextmanager
def _place_positions(network: Any, table: Any) -> Iterator[Any]:  # noqa: ANN401
    """The decoder takes the positions that are set at ``at``, int64 ``[rows, length]``.

    ``table`` is its own, which it has again afterwards; None leaves the decoder as it is.
    """
    if table is None:
        yield None
        return
    import torch  # noqa: PLC0415

    class PositionLookup(torch.nn.Module):
        """Looks up what it was given, where the original would count."""

        at: Any = None

        def __init__(self) -> None:
            super().__init__()
            self.table = table

        def forward(self, *_counted: Any, **_options: Any) -> Any:  # noqa: ANN401
            offset = getattr(table, "offset", 0)  # rows before the first position's, as BART has
            return torch.nn.functional.embedding(self.at + offset, table.weight)

    decoder = network.get_decoder()
    placed = PositionLookup()
    decoder.embed_positions = placed
    try:
        yield placed
    finally:
        decoder.embed_positions = table


def to_onnx(loaded: TorchModel, encoder: Path, decoder: Path) -> None:
    """Writes both graphs, with variable rows and lengths.

    Raises:
        VersionError: torch can't export the model, or it counts its positions in another way.
    """
    import torch  # noqa: PLC0415

    network = loaded.network
    table = positions_of(network)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            # Tracing warns of every branch that it follows; parity is what proves the result.
            warnings.simplefilter("ignore")
            ids = torch.full((_ROWS, _LENGTH), 5, dtype=torch.int64)
            mask = torch.ones_like(ids)
            reading = _make_reader(network)
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
            counted = {} if table is None else {POSITIONS: torch.full((_ROWS, 1), _BEFORE)}
            with _place_positions(network, table) as placed:
                torch.onnx.export(
                    _make_writer(network, placed),
                    (ids[:, :1], own, mask, *counted.values(), *past, *sources),
                    str(decoder),
                    input_names=[INPUT_IDS, ATTENTION_MASK, SOURCE_MASK, *counted, *before, *read],
                    output_names=[LOGITS, *after],
                    dynamic_axes={
                        INPUT_IDS: {0: "batch", 1: "length"},
                        ATTENTION_MASK: {0: "batch", 1: "total"},
                        SOURCE_MASK: rows,
                        LOGITS: {0: "batch"},
                        **{name: {0: "batch", 1: "length"} for name in counted},
                        **{name: {0: "batch", 2: "past"} for name in before},
                        **{name: {0: "batch", 2: "source"} for name in read},
                        **{name: {0: "batch", 2: "total"} for name in after},
                    },
                    opset_version=OPSET,
                    dynamo=False,
                )
    except Exception as error:  # torch and the model's own code raise many kinds
        raise VersionError(f"the model can't be exported as an encoder-decoder: {error}") from error


def _make_reader(network: Any) -> Any:  # noqa: ANN401
    """What reads a prompt, with its tensors by position, as the exporter wants them."""
    import torch  # noqa: PLC0415

    class PromptReader(torch.nn.Module):
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
            return tuple(flatten_cache(result.past_key_values.cross_attention_cache))

    return PromptReader().eval()


def _make_writer(network: Any, placed: Any) -> Any:  # noqa: ANN401
    """What writes, in the same way; ``placed`` takes the positions, None if there are none."""
    import torch  # noqa: PLC0415
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache  # noqa: PLC0415

    width = network.config.d_model

    class TokenWriter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Any, mask: Any, source_mask: Any, *kept: Any) -> tuple[Any, ...]:  # noqa: ANN401
            if placed is not None:
                placed.at, kept = kept[0], kept[1:]
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
            return (result.logits[:, -1].float(), *flatten_cache(after))

    return TokenWriter().eval()
