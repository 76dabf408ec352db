"""Reads the configuration of a GLiNER checkpoint: what it is, and whether that is served.

Only models with one encoder for labels and texts, whose spans are represented by their ends
(``markerV0``), are; others are refused as what they are. It never loads weights.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.manifest import SpanSpec
from contracts.tasks import Task
from registry.convert.errors import VersionError
from registry.convert.flavours import config as files
from registry.convert.flavours.original import OriginalTextModel

CONFIG = "gliner_config.json"
_SERVED = "only GLiNER with one encoder and span_mode markerV0 is served"
# What gliner takes if its configuration says nothing.
_USUAL: Mapping[str, Any] = {
    "span_mode": "markerV0",
    "words_splitter_type": "whitespace",
    "subtoken_pooling": "first",
    "max_width": 12,
    "max_types": 25,
    "max_len": 384,
    "ent_token": "<<ENT>>",
    "sep_token": "<<SEP>>",
}
# Fields that only another kind of model sets, and that kind.
_KINDS = (
    ("labels_encoder", "a GLiNER with an encoder of its own for labels (a bi-encoder)"),
    ("labels_decoder", "a GLiNER whose decoder writes labels"),
    ("relations_layer", "a GLiNER that finds relations"),
    ("represent_spans", "a GLiNER that finds tokens and represents spans"),
)
# Parts that change its answers, and that our network lacks.
_PARTS = ("fuse_layers", "post_fusion_schema", "span_encoder_config", "precomputed_prompts_mode")
_MOST_LABELS = 64  # of a row; the task takes no more
_SHOWN = 40


def require_served(folder: Path) -> None:
    """Refuses a GLiNER of another kind; raises ``VersionError`` that says which."""
    config = _config(folder)
    mode = str(config["span_mode"])
    for field, kind in _KINDS:
        if config.get(field):
            raise VersionError(f"this is {kind}, by {field} in {CONFIG}; {_SERVED}")
    if "streaming" in str(config.get("model_type")):
        raise VersionError(f"this is a GLiNER that reads a text piece by piece; {_SERVED}")
    if mode != _USUAL["span_mode"]:
        raise VersionError(f"this is a GLiNER with span_mode {mode[:_SHOWN]!r}; {_SERVED}")
    for field in _PARTS:
        if config.get(field):
            raise VersionError(f"this is a GLiNER with {field}, which is not served: {_SERVED}")
    for field in ("words_splitter_type", "subtoken_pooling"):
        if config[field] != _USUAL[field]:
            raise VersionError(
                f"{field} in {CONFIG} is {str(config[field])[:_SHOWN]!r}, and only GLiNER with "
                f"{_USUAL[field]!r} is served"
            )


def read_model(folder: Path, tokenizer: Path, task: Task | None) -> OriginalTextModel:
    """The version; raises ``VersionError`` if its files lack something, or for another task."""
    config = _config(folder)
    found = Task.ENTITY_RECOGNITION
    if task not in {None, found}:
        raise VersionError(f"the endpoint asks for {task}, but GLiNER does {found}")
    encoder = config.get("encoder_config")
    if not isinstance(encoder, dict):
        raise VersionError(
            f"{CONFIG} names its encoder ({str(config.get('model_name'))[:_SHOWN]!r}) and does not "
            "have its configuration: load it with the gliner package and register what "
            "save_pretrained writes"
        )
    spans = SpanSpec(
        label_mark=str(config["ent_token"]),
        text_mark=str(config["sep_token"]),
        most_words=_number(config, "max_len"),
        widest=_number(config, "max_width"),
        most_labels=min(_MOST_LABELS, max(_USUAL["max_types"], _number(config, "max_types"))),
    )
    return OriginalTextModel(
        flavour="gliner",
        folder=folder,
        tokenizer=tokenizer,
        task=found,
        max_tokens=files.max_tokens_of(
            # Positions that are only relative have no end: the package cuts no text by them.
            encoder if encoder.get("position_biased_input", True) else {},
            files.read_json(tokenizer / "tokenizer_config.json"),
        ),
        spans=spans,
    )


def config_of(folder: Path) -> Mapping[str, Any]:
    """The configuration of the encoder in a folder, of a GLiNER or of any other model."""
    own = files.read_json(folder / files.CONFIG)
    inner = files.read_json(folder / CONFIG).get("encoder_config")
    return inner if isinstance(inner, dict) else own


def _config(folder: Path) -> dict[str, Any]:
    said = files.read_json(folder / CONFIG)
    return {**_USUAL, **{name: value for name, value in said.items() if value is not None}}


def _number(config: Mapping[str, Any], field: str) -> int:
    value = config[field]
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise VersionError(f"{field} in {CONFIG} is {str(value)[:_SHOWN]!r}, not a number from 1")
    return value
