"""What a flavour finds in a downloaded version: everything that conversion has to know of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from contracts.manifest import SpanSpec
from contracts.tasks import Task


class TokenisedRow(NamedTuple):
    """What a model reads of a text; ``types`` is None if all are 0 or the model takes none."""

    ids: list[int]
    types: list[int] | None


Reader = Callable[[str, str | None], TokenisedRow]  # of a text, or of a pair


class PoolingMode(StrEnum):
    """How token vectors become one, by the names of sentence-transformers.

    Graphs do each in ``graph/pooler.py``, the packed engine in ``triton/packed_model``.
    """

    MEAN = "mean"
    CLS = "cls"
    MAX = "max"
    MEAN_SQRT_LENGTH = "mean_sqrt_len_tokens"
    WEIGHTED_MEAN = "weightedmean"
    LAST_TOKEN = "lasttoken"
    EACH_TOKEN = "tokens"  # as they are
    SPLADE = "splade"  # of logits of the vocabulary: the largest log(1 + relu) of all tokens


@dataclass(frozen=True)
class Dense:
    """A layer after pooling; ``weights`` is the safetensors file with ``linear.weight``."""

    weights: Path
    activation: str


@dataclass(frozen=True)
class Pooling:
    """All that comes after the token vectors. Vectors of several modes are joined end to end."""

    modes: tuple[PoolingMode, ...] = (PoolingMode.MEAN,)
    dense: tuple[Dense, ...] = ()
    normalise: bool = False


@dataclass(frozen=True)
class OriginalSides:
    """How a model of late interaction reads queries and documents, as its files say.

    Attributes:
        query_tokens: longest row of a query; None for the tokeniser's own limit.
        document_tokens: the same of a document.
        positions: tokens that the network has positions for; None if that is not known.
        filled_to: tokens that a query has at least; 0 if it is not filled up.
        is_fixed: whether it has no more either.
        fill_token: what it is filled up with; empty for the mask token, or else the last one.
        attends: whether other tokens see what it is filled up with.
        left_out: tokens that are no part of answers.
        left_out_of: sides that this is so for.
        only: ids of the only tokens that are part of a document's answer; empty for all.
        mean: whether scores are divided by the number of the query's tokens.
    """

    query_tokens: int | None = None
    document_tokens: int | None = None
    positions: int | None = None
    filled_to: int = 0
    is_fixed: bool = False
    fill_token: str = ""
    attends: bool = False
    left_out: tuple[str, ...] = ()
    left_out_of: tuple[str, ...] = ()
    only: tuple[int, ...] = ()
    mean: bool = False


@dataclass(frozen=True)
class OriginalTextModel:
    """A version as it was registered.

    Attributes:
        flavour: the name for people and for the parity report.
        folder: where ``config.json`` and the weights are.
        tokenizer: the folder with the tokeniser's files.
        onnx: the graph, for versions that are ONNX already; None for PyTorch.
        task: what it does.
        labels: in the order of the logits; empty if no file says.
        multi_label: each label on its own.
        pooling: for embeddings, what follows the token vectors; None if a graph ends in vectors.
        max_tokens: longest row that the model takes, special tokens included; None if no file says.
        prompts: what the model's files put before texts, by name.
        default_prompt: the name of the one before texts for which none is named.
        lowercase: whether the model's files lower-case every text.
        loaded_by: the class of sentence-transformers that loads ``folder``; empty if
            transformers does.
        sides: of late interaction, else None.
        spans: how it reads rows, if it finds spans by its caller's labels.
    """

    flavour: str
    folder: Path
    tokenizer: Path
    task: Task
    onnx: Path | None = None
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    pooling: Pooling | None = None
    max_tokens: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    lowercase: bool = False
    loaded_by: str = ""
    sides: OriginalSides | None = None
    spans: SpanSpec | None = None
