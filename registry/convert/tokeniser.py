"""Brings a version's tokeniser to the one form that the gateway reads: ``tokenizer.json``.

The file that is published has no padding and no truncation of its own, since the package's buckets
decide those. It never runs code of the version.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from contracts.endpoint import ServingOptions
from contracts.manifest import TOKENIZER, QueryDocumentSpec, TokenizerSpec
from contracts.tasks import QUERY
from preprocess.buckets import automatic_buckets, cut_buckets
from preprocess.encoder import TextEncoder
from preprocess.errors import PreprocessError
from preprocess.expressions import refuse_slow_expressions
from preprocess.labelled_words import EntityEncoder
from preprocess.late_interaction import QueryDocumentEncoder
from registry.convert.errors import VersionError
from registry.convert.flavours.config import read_json
from registry.convert.flavours.gliner import config_of
from registry.convert.flavours.original import OriginalSides, OriginalTextModel
from registry.convert.flavours.sides import DOCUMENT

_PADS = ("[PAD]", "<pad>", "<PAD>", "[pad]")
_UNKS = ("[UNK]", "<unk>", "<UNK>", "[unk]")
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
# Of scripts that few vocabularies have; one is enough to be an unknown character.
_RARE = ("ꙮ", "𓀀", "ᚠ", "☃", "a ꙮ 𓀀.")
_LEFT = (
    "its tokeniser cuts long texts from the left (truncation_side), and only their beginning is "
    "served: save it with truncation_side right if the model was trained so"
)


@dataclass(frozen=True)
class Tokeniser:
    """What the package says of texts and rows. ``data`` are the bytes of ``tokenizer.json``.

    ``longest``: row that endpoint and network allow, to which an original is held; of late
    interaction, whose files say how long rows are, not how long ours are.
    """

    data: bytes
    encoder: TextEncoder
    spec: TokenizerSpec
    buckets: tuple[int, ...]
    longest: int


def build(
    original: OriginalTextModel,
    serving: ServingOptions,
    fast: str | None = None,
    *,
    pad_id: int | None = None,
    rows: int | None = None,
) -> Tokeniser:
    """The version's tokeniser as it will be published.

    Args:
        original: with the folder that holds its files.
        serving: whose limits and buckets hold.
        fast: the content of ``tokenizer.json`` if the version has older files only.
        pad_id: the network's own padding id, if it is known; None to read it from the files.
        rows: how many tokens the network has a row for, if that is known.

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
    if rows is not None:
        tokenizer = _with_rows(tokenizer, rows)
    if _truncation_side(original, content).lower() != "right":
        raise VersionError(_LEFT)
    _require_total(tokenizer)
    spec = _spec(tokenizer, original, requested_tokens=serving.max_tokens, pad_id=pad_id)
    longest = spec.max_tokens
    if original.sides is not None:
        longest = min(serving.max_tokens, original.sides.positions or serving.max_tokens)
        sides = _sides(tokenizer, original, spec, requested_tokens=serving.max_tokens, rows=rows)
        most = max(sides.query_tokens, sides.document_tokens)
        spec = spec.model_copy(update={"sides": sides, "max_tokens": most})
    data = str(tokenizer.to_str()).encode()
    requested = serving.length_buckets
    try:
        buckets = (
            automatic_buckets(spec.max_tokens)
            if requested == "auto"
            else cut_buckets(requested, spec.max_tokens)
        )
        encoder = _kind_of(spec)(data, spec)
        refuse_slow_expressions(tokenizer, encoder.own_expressions)
        return Tokeniser(data, encoder, spec, buckets, longest)
    except (PreprocessError, ValueError) as error:
        raise VersionError(f"the tokeniser can't be used: {error}") from error


def _kind_of(spec: TokenizerSpec) -> type[TextEncoder]:
    if spec.sides is not None:
        return QueryDocumentEncoder
    return TextEncoder if spec.spans is None else EntityEncoder


def _with_rows(tokenizer: Tokenizer, rows: int) -> Tokenizer:
    """The same without special tokens that the network has no row for.

    Classes of transformers add such a one if a vocabulary lacks it (BERT's ``[MASK]``); as a
    text it would be an error, and break its neighbours in the batch.

    Raises:
        VersionError: other tokens have none.
    """
    definition = json.loads(tokenizer.to_str())
    added = definition.get("added_tokens") or []
    lacking = [each for each in added if each["id"] >= rows]
    vocabulary = (definition.get("model") or {}).get("vocab") or {}
    pieces = vocabulary if isinstance(vocabulary, dict) else {
        each[0]: at for at, each in enumerate(vocabulary)
    }  # fmt: skip
    special = {each["content"] for each in lacking if each.get("special")}
    names = [each["content"] for each in lacking] + [
        piece for piece, at in pieces.items() if at >= rows
    ]
    if others := [name for name in dict.fromkeys(names) if name not in special]:
        raise VersionError(
            f"tokens of its vocabulary have no row among the network's {rows}, such as "
            f"{', '.join(map(repr, others[:3]))}: resize its embeddings "
            "(resize_token_embeddings), or take the tokens out"
        )
    if not lacking:
        return tokenizer
    definition["added_tokens"] = [each for each in added if each["id"] < rows]
    return Tokenizer.from_str(json.dumps(definition))


def _read(content: bytes, *, lowercase: bool = False) -> Tokenizer:
    """The tokeniser, with what the model's own files do to texts before it."""
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises Exception itself
        raise VersionError(f"{TOKENIZER} is not a tokeniser that can be read: {error}") from error
    if chance := getattr(tokenizer.model, "dropout", None):
        raise VersionError(
            f"{TOKENIZER} has a dropout of {chance:.3g}, by which it takes a text apart otherwise "
            "each time: set it to null"
        )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if lowercase:
        own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
    return tokenizer


def _truncation_side(original: OriginalTextModel, content: bytes) -> str:
    """Where long texts are cut, by the rule of transformers: what the config says goes first."""
    said = read_json(original.tokenizer / "tokenizer_config.json").get("truncation_side")
    return str(said or (json.loads(content).get("truncation") or {}).get("direction") or "right")


def _require_total(tokenizer: Tokenizer) -> None:
    """Refuses a vocabulary without an unknown token that can't do without; ``VersionError``."""
    for text in _RARE:
        try:
            tokenizer.encode(text)
        except Exception as error:  # the library raises Exception itself
            raise VersionError(
                "the tokeniser fails on a text with characters that it does not know, such as "
                f"{text!r} ({error}): give its model an unknown token"
            ) from error


def _spec(
    tokenizer: Tokenizer, original: OriginalTextModel, *, requested_tokens: int, pad_id: int | None
) -> TokenizerSpec:
    definition = json.loads(tokenizer.to_str())
    named = _read_names(original)
    config = config_of(original.folder)
    vocabulary = tokenizer.get_vocab_size(with_added_tokens=True)
    if pad_id is None:
        pad_id = _pad_id(config, vocabulary)
    if pad_id is None:
        pad_id = _id(tokenizer, (_content(named.get("pad_token")), *_PADS))
    model = definition.get("model") or {}
    unk_id = None
    if not _has_every_byte(definition):
        own = _content(model.get("unk_token"))
        unk_id = _id(tokenizer, (own, _content(named.get("unk_token")), *_UNKS))
        if isinstance(model.get("unk_id"), int):  # Unigram names it by its index
            unk_id = model["unk_id"]
    return TokenizerSpec(
        max_tokens=min(requested_tokens, original.max_tokens or requested_tokens),
        pad_id=pad_id or 0,
        pad_type_id=0,
        unk_id=unk_id,
        vocabulary=vocabulary,
        prompts=dict(original.prompts),
        default_prompt=original.default_prompt,
        spans=original.spans,
    )


def _sides(
    tokenizer: Tokenizer,
    original: OriginalTextModel,
    spec: TokenizerSpec,
    *,
    requested_tokens: int,
    rows: int | None,
) -> QueryDocumentSpec:
    """Lengths and ids of late interaction for the manifest; raises ``VersionError``."""
    sides = original.sides or OriginalSides()

    def limit(length: int | None) -> int:
        if length is None:
            return spec.max_tokens
        return min(requested_tokens, length, sides.positions or length)

    query_tokens = limit(sides.filled_to if sides.is_fixed else sides.query_tokens)
    if query_tokens < sides.filled_to:
        raise VersionError(
            f"its queries are filled up to {sides.filled_to} tokens, and the longest row has "
            f"{query_tokens}: raise spec.serving.max_tokens"
        )
    fill_id = None
    if sides.filled_to:
        named = _read_names(original)
        fillers = (sides.fill_token,) if sides.fill_token else tuple(
            _content(named.get(f"{name}_token")) for name in ("mask", "eos")
        )  # fmt: skip
        fill_id = _id(tokenizer, fillers)
        if fill_id is None or (rows is None and not sides.attends):
            raise VersionError(
                f"its queries are filled up with {sides.fill_token or 'a mask token'!r}, which its "
                "tokeniser does not have"
            )
        if not sides.attends:
            fill_id = rows  # no token's: the graph reads it as the filler that nothing attends to
    ids = {word: tokenizer.token_to_id(word) for word in sides.left_out}
    return QueryDocumentSpec(
        query_tokens=query_tokens,
        document_tokens=limit(sides.document_tokens),
        filled_to=sides.filled_to,
        fill_id=fill_id,
        # Words that are no token are not looked for, as in the library.
        left_out=tuple(sorted({at for at in ids.values() if at is not None})),
        left_out_of_queries=QUERY in sides.left_out_of,
        left_out_of_documents=DOCUMENT in sides.left_out_of,
        only=sides.only,
        mean=sides.mean,
    )


def _read_names(original: OriginalTextModel) -> dict[str, Any]:
    return {
        **read_json(original.tokenizer / "special_tokens_map.json"),
        **read_json(original.tokenizer / "tokenizer_config.json"),
    }


def _content(token: object) -> str | None:
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _id(tokenizer: Tokenizer, names: tuple[str | None, ...]) -> int | None:
    for name in names:
        if name is not None and (found := tokenizer.token_to_id(name)) is not None:
            return int(found)
    return None


def _pad_id(config: Mapping[str, Any], vocabulary: int) -> int | None:
    """The network's padding id by its config: some look for it in rows, and none by a name."""
    found, rows = config.get("pad_token_id"), config.get("vocab_size")
    if not isinstance(found, int) or isinstance(found, bool):
        return None
    return found if 0 <= found < max(vocabulary, rows if isinstance(rows, int) else 0) else None


def _has_every_byte(definition: Mapping[str, Any]) -> bool:
    """Whether every byte has a token, so that nothing is ever unknown."""
    model = definition.get("model") or {}
    if model.get("type") not in {"BPE", "Unigram"}:
        return False
    vocabulary = model.get("vocab") or {}
    pieces = vocabulary.keys() if isinstance(vocabulary, dict) else {each[0] for each in vocabulary}
    if model.get("byte_fallback") and pieces >= set(_BYTES):
        return True
    parts = json.dumps([definition.get("normalizer"), definition.get("pre_tokenizer")])
    return '"ByteLevel"' in parts and pieces >= set(pre_tokenizers.ByteLevel.alphabet())
