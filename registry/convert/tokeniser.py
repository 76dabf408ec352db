"""Brings a version's tokeniser to the one form that the gateway reads: ``tokenizer.json``.

Called by the walk. The file that is published has no padding and no truncation of its own, since
the package's buckets decide those. It never runs code of the version.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers

from contracts.manifest import TokenizerSpec
from registry.convert.errors import VersionError
from registry.flavours.config import CONFIG, read_json
from registry.flavours.original import Original

_PADS = ("[PAD]", "<pad>", "<PAD>", "[pad]")
_UNKS = ("[UNK]", "<unk>", "<UNK>", "[unk]")


def read(path: Path, *, prompt: str = "", lowercase: bool = False) -> Tokenizer:
    """The tokeniser, with what the model's own files do to texts before it.

    Raises:
        VersionError: not a tokeniser file.
    """
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise VersionError(f"{path.name} is not a tokeniser that can be read: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    before = []
    if prompt:
        before.append(normalizers.Prepend(prompt))
    if lowercase:
        before.append(normalizers.Lowercase())
    if before:
        own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([*before, *own])
    return tokenizer


def spec_for(tokenizer: Tokenizer, original: Original, *, wished_tokens: int) -> TokenizerSpec:
    """Ids and limits for the manifest.

    Args:
        tokenizer: as it will be published.
        original: whose files name the special tokens and the model's own limit.
        wished_tokens: the endpoint's limit.
    """
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
        if isinstance(model.get("unk_id"), int):  # Unigram names it by its place
            unk_id = model["unk_id"]
    return TokenizerSpec(
        max_tokens=min(wished_tokens, original.max_tokens or wished_tokens),
        pad_id=pad_id or 0,
        pad_type_id=0,
        unk_id=unk_id,
        vocabulary=tokenizer.get_vocab_size(with_added_tokens=True),
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
