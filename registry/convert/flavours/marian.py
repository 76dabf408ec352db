"""Makes ``tokenizer.json`` of the files that Marian's models (opus-mt) have in its place.

Those are ``source.spm``, which says how a text is cut into pieces, and ``vocab.json``, which has
the numbers of both languages' pieces. A piece that only the target language has is never read out
of a text, and is only written: its name in the file begins with a sign that no text has, which
decoding removes. A single character that only the target language has is read, as the original
reads it; several in a row are one unknown piece there, and each its own here. It needs neither
torch nor the library sentencepiece.
"""

import logging
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from registry.convert.errors import VersionError
from registry.convert.flavours.config import parse_json, read_json

log = logging.getLogger(__name__)

SOURCE, VOCABULARY = "source.spm", "vocab.json"
_END, _UNKNOWN, _PADDING = "</s>", "<unk>", "<pad>"
_WRITTEN_ALONE, _NEVER = "\ue000", "\ue001"  # of Unicode's private use
_UNIGRAM = 1  # sentencepiece's numbers
_NORMAL, _USER_DEFINED = 1, 4
_UNKNOWN_COSTS = 10.0


def has_files(folder: Path) -> bool:
    """Whether a folder has such files, and no ``tokenizer.json``."""
    return (
        all((folder / name).is_file() for name in (SOURCE, VOCABULARY))
        and not (folder / "tokenizer.json").is_file()
    )


def tokenizer_json(folder: Path) -> str:
    """The content of ``tokenizer.json``; raises ``VersionError`` for what can't be made one."""
    if read_json(folder / "tokenizer_config.json").get("separate_vocabs"):
        raise VersionError(
            "its two languages have vocabularies of their own, which one tokenizer.json can't hold"
        )
    pieces, model = _pieces(folder), _source(folder / SOURCE)
    scores = {each.piece: each.score for each in model.pieces if each.type == _NORMAL}
    kept = scores.keys() & set(pieces)
    if not kept:
        raise VersionError(f"no piece of {SOURCE} is in {VOCABULARY}")
    if len(kept) < len(scores):
        fields = {"reason": f"{len(scores) - len(kept)} of {len(scores)}"}
        log.warning("pieces of a text that the model has no number for are not used", extra=fields)
    special = {_END, _UNKNOWN, _PADDING, *(each for each in pieces if _is_language(each))}
    lowest = min(scores[each] for each in kept)

    def named_of(piece: str) -> tuple[str, float]:
        if piece in kept:
            return piece, scores[piece]
        if piece in special:
            return piece, lowest
        if len(piece) == 1 and piece not in scores:
            # It costs what sentencepiece has an unknown character cost: there is no other piece.
            return piece, lowest - _UNKNOWN_COSTS
        return _WRITTEN_ALONE + piece, lowest

    named = [named_of(each) for each in pieces]
    made = Tokenizer(models.Unigram(named, unk_id=pieces.index(_UNKNOWN)))
    steps: list[Any] = [normalizers.Replace(_WRITTEN_ALONE, _NEVER)]
    rules = model.normalizer_spec
    if rules.precompiled_charsmap:
        steps.append(normalizers.Precompiled(rules.precompiled_charsmap))
    if rules.remove_extra_whitespaces:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    made.normalizer = normalizers.Sequence(steps)
    scheme = "always" if rules.add_dummy_prefix else "never"
    made.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme)
    made.decoder = decoders.Sequence(
        [decoders.Replace(_WRITTEN_ALONE, ""), decoders.Metaspace("▁", prepend_scheme="always")]
    )
    made.post_processor = processors.TemplateProcessing(
        single=f"$A {_END}", special_tokens=[(_END, pieces.index(_END))]
    )
    made.add_special_tokens(
        [AddedToken(each, normalized=False, rstrip=_is_language(each)) for each in sorted(special)]
    )
    return str(made.to_str())


def _pieces(folder: Path) -> list[str]:
    try:
        numbers: dict[str, int] = parse_json((folder / VOCABULARY).read_bytes(), VOCABULARY)
        pieces = sorted(numbers, key=numbers.__getitem__)
        whole = [numbers[each] for each in pieces] == list(range(len(pieces)))
    except (ValueError, TypeError, AttributeError) as error:
        raise VersionError(f"{VOCABULARY} can't be read: {error}") from error
    if not whole or not {_END, _UNKNOWN, _PADDING} <= numbers.keys():
        raise VersionError(
            f"{VOCABULARY} has to number its pieces from 0 and to hold {_END}, {_UNKNOWN} and "
            f"{_PADDING}"
        )
    return pieces


def _is_language(piece: str) -> bool:
    """Whether it stands before a text for the language into which it is translated."""
    return piece.startswith(">>") and piece.endswith("<<")


def _source(path: Path) -> Any:  # noqa: ANN401 - protobuf makes the class
    """A model of sentencepiece; of its fields those that are used here."""
    model = _MODEL()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise VersionError(f"{path.name} is no model of sentencepiece: {error}") from error
    if model.trainer_spec.model_type != _UNIGRAM:
        raise VersionError(f"{path.name} is not of sentencepiece's unigram kind")
    if any(each.type == _USER_DEFINED for each in model.pieces):
        raise VersionError(f"{path.name} has pieces that its author defined, which are not served")
    return model


def _model_class() -> Any:  # noqa: ANN401 - as above
    """``sentencepiece_model.proto``, by number: of each message the fields that are used here."""
    kinds = descriptor_pb2.FieldDescriptorProto
    messages: dict[str, list[tuple[str, int, int, str]]] = {
        "Piece": [
            ("piece", 1, kinds.TYPE_STRING, ""),
            ("score", 2, kinds.TYPE_FLOAT, ""),
            ("type", 3, kinds.TYPE_INT32, "1"),
        ],
        "Trainer": [("model_type", 3, kinds.TYPE_INT32, "1")],
        "Normalizer": [
            ("precompiled_charsmap", 2, kinds.TYPE_BYTES, ""),
            ("add_dummy_prefix", 3, kinds.TYPE_BOOL, "true"),
            ("remove_extra_whitespaces", 4, kinds.TYPE_BOOL, "true"),
        ],
        "Model": [
            ("pieces", 1, kinds.TYPE_MESSAGE, ".spm.Piece"),
            ("trainer_spec", 2, kinds.TYPE_MESSAGE, ".spm.Trainer"),
            ("normalizer_spec", 3, kinds.TYPE_MESSAGE, ".spm.Normalizer"),
        ],
    }
    file = descriptor_pb2.FileDescriptorProto(name="spm.proto", package="spm", syntax="proto2")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, number, kind, more in fields:
            repeated = field == "pieces"
            made = message.field.add(
                name=field,
                number=number,
                type=kind,
                label=kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL,
            )
            if kind == kinds.TYPE_MESSAGE:
                made.type_name = more
            elif more:
                made.default_value = more
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("spm.Model"))


_MODEL = _model_class()
