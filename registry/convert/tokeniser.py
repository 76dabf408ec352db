"""Brings a version's tokeniser to the one form that the gateway reads: ``tokenizer.json``.

The file that is published has no padding and no truncation of its own, since the package's buckets
decide those. It never runs code of the version.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, normalizers

from contracts.endpoint import Serving
from contracts.manifest import TOKENIZER, TokenizerSpec
from preprocess.buckets import automatic_buckets, checked_buckets
from preprocess.encoder import TextEncoder
from preprocess.errors import PreprocessError
from preprocess.expressions import refuse_slow_expressions
from registry.convert.errors import VersionError
from registry.convert.flavours.config import CONFIG, read_json
from registry.convert.flavours.original import Original

_PADS = ("[PAD]", "<pad>", "<PAD>", "[pad]")
_UNKS = ("[UNK]", "<unk>", "<UNK>", "[unk]")


@dataclass(frozen=True)
class Tokeniser:
    """What the package says of texts and rows. ``data`` are the bytes of ``tokenizer.json``."""

    data: bytes
    encoder: TextEncoder
    spec: TokenizerSpec
    buckets: tuple[int, ...]


def build(original: Original, serving: Serving, fast: str | None = None) -> Tokeniser:
    """The version's tokeniser as it will be published.

    Args:
        original: with the folder that holds its files.
        serving: whose limits and buckets hold.
        fast: the content of ``tokenizer.json`` where the version has older files only.

    Raises:
        VersionError: it can't be used.
    """
    path = original.tokenizer / TOKENIZER
    if fast is None and not path.is_file():
        raise VersionError(
            "the version has a tokeniser but no tokenizer.json; save it with a fast tokeniser"
        )
    content = path.read_bytes() if fast is None else fast.encode()
    tokenizer = _read(content, lowercase=original.lowercase)
    spec = _spec(tokenizer, original, requested_tokens=serving.max_tokens)
    data = str(tokenizer.to_str()).encode()
    requested = serving.length_buckets
    try:
        buckets = (
            automatic_buckets(spec.max_tokens)
            if requested == "auto"
            else checked_buckets(requested, spec.max_tokens)
        )
        encoder = TextEncoder(data, spec)
        refuse_slow_expressions(tokenizer, encoder.own_expressions)
        return Tokeniser(data, encoder, spec, buckets)
    except (PreprocessError, ValueError) as error:
        raise VersionError(f"the tokeniser can't be used: {error}") from error


def _read(content: bytes, *, lowercase: bool = False) -> Tokenizer:
    """The tokeniser, with what the model's own files do to texts before it."""
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises Exception itself
        raise VersionError(f"{TOKENIZER} is not a tokeniser that can be read: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if lowercase:
        own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
    return tokenizer


def _spec(tokenizer: Tokenizer, original: Original, *, requested_tokens: int) -> TokenizerSpec:
    """Ids and limits for the manifest."""
    definition = json.loads(tokenizer.to_str())
    named = {
        **read_json(original.tokenizer / "special_tokens_map.json"),
        **read_json(original.tokenizer / "tokenizer_config.json"),
    }
    config = read_json(original.folder / CONFIG)
    pad_id = _id(tokenizer, (_content(named.get("pad_token")), *_PADS))
    if pad_id is None and isinstance(config.get("pad_token_id"), int):
        pad_id = config["pad_token_id"]
    model = definition.get("model") or {}
    unk_id = None
    if not _byte_level(definition):
        own = _content(model.get("unk_token"))
        unk_id = _id(tokenizer, (own, _content(named.get("unk_token")), *_UNKS))
        if isinstance(model.get("unk_id"), int):  # Unigram names it by its index
            unk_id = model["unk_id"]
    return TokenizerSpec(
        max_tokens=min(requested_tokens, original.max_tokens or requested_tokens),
        pad_id=pad_id or 0,
        pad_type_id=0,
        unk_id=unk_id,
        vocabulary=tokenizer.get_vocab_size(with_added_tokens=True),
        prompts=dict(original.prompts),
        default_prompt=original.default_prompt,
    )


def _content(token: object) -> str | None:
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _id(tokenizer: Tokenizer, names: tuple[str | None, ...]) -> int | None:
    for name in names:
        if name is not None and (found := tokenizer.token_to_id(name)) is not None:
            return int(found)
    return None


def _byte_level(definition: Mapping[str, Any]) -> bool:
    """Whether every byte has a token, so that nothing is ever unknown."""
    parts = json.dumps([definition.get("pre_tokenizer"), definition.get("decoder")])
    return '"ByteLevel"' in parts or bool((definition.get("model") or {}).get("byte_fallback"))
