"""What Headrace and the libraries make of a checkpoint, side by side.

``by_library`` asks the model's own library, with no code of ours; ``by_headrace`` converts the
checkpoint and asks the engine; ``judged`` compares them. It changes no file and needs torch.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tried_models import TRIED, Tried, texts

from contracts.endpoint import Precision, ServingOptions
from contracts.tasks import Task
from registry.convert import padded
from registry.convert.errors import ConversionError, refuse_panics
from registry.convert.flavours import detect
from registry.convert.graph import engine_form
from registry.convert.parity.engine import GraphEngine
from registry.convert.parity.proof import Comparison, require_equal_answers
from registry.convert.parity.verify import values_of
from registry.convert.steps import encode_texts, signature_of
from registry.convert.texts import EvaluationTexts

Values = NDArray[np.float32]
Ask = Callable[[str], Any]  # a row of values
Own = int | None  # a library's longest row; None for one without end

CLASSIFIER = "ForSequenceClassification"
EMPTY = ""
# What an answer is compared on: the longest is longer than any of the models.
ASKED = (
    *texts()[:5], EMPTY, "UPPER lower Ünïcode 漢字 😀",
    "[NEW] <s> </s> [SEP] [MASK]", "word " * 300,
)  # fmt: skip
_DIFFERENCE = 2e-4
_USUAL_LENGTH = 64  # where Headrace does not say one
_PLACES = 8  # that some models leave out before the first token's
# Words of a library, or of Python, that tell nobody what to do.
_MISLEADING = re.compile(
    r"above report|Traceback|KeyError|NoneType|object has no attribute|unexpected keyword"
    r"|ignore_mismatched_sizes|from_pt|raise an issue|does not answer as the original"
    r"|submit a PR|\x1b"
)


class UndefinedError(Exception):
    """The library has no answer of its own: it fails, or makes weights up."""


@dataclass(frozen=True)
class Outcome:
    """What became of one checkpoint.

    Attributes:
        name: ``served``, ``refused``, ``refused by both`` or ``failed``.
        reason: of the refusal.
        wrong: what must not be; empty if all is well.
    """

    name: str
    reason: str = ""
    wrong: str = ""


@dataclass(frozen=True)
class Served:
    """A converted checkpoint: its answers to ``ASKED``, and its longest row."""

    values: Values
    max_tokens: int


def suitable() -> list[Tried]:
    """Those whose library answers in one call: classifiers, rankers and embeddings."""
    return [
        one
        for one in TRIED
        if not one.own
        and (one.cross_encoder or one.pooling or one.architecture.endswith(CLASSIFIER))
    ]


def judged(tried: Tried, folder: Path, work: Path) -> Outcome:
    """Asks both, and compares their answers."""
    try:
        with refuse_panics():
            ours = by_headrace(folder, work)
    except ConversionError as error:
        reason = str(error)
        if "library breaks off" in reason:  # and would end this process
            return Outcome("refused by both", reason)
        try:
            by_library(tried, folder, _USUAL_LENGTH)
        except UndefinedError:
            name = "refused by both"
        else:
            name = "refused"
        misleads = f"misleads: {reason}" if _MISLEADING.search(reason) else ""
        return Outcome(name, reason, misleads)
    except Exception as error:  # noqa: BLE001 - a conversion must not end by any other
        return Outcome("failed", wrong=f"failed: {type(error).__name__}: {error}")
    try:
        rows, own = by_library(tried, folder, ours.max_tokens)
    except UndefinedError as error:
        return Outcome("served", wrong=f"served, and its library has no answer: {error}")
    wrong = _difference(ours.values, rows)
    config = json.loads((folder / "config.json").read_bytes())
    limits = (own, config.get("max_position_embeddings"), ServingOptions().max_tokens)
    least = min(each for each in limits if each) - _PLACES
    if ours.max_tokens < least:
        wrong = wrong or f"rows have {ours.max_tokens} tokens, and could have {least}"
    return Outcome("served", wrong=wrong)


def _difference(ours: Values, library: Sequence[Values | None]) -> str:
    """Where answers are not the library's, in words; empty if they are."""
    for at, (text, one, other) in enumerate(zip(ASKED, ours, library, strict=True)):
        if other is None:
            continue
        if one.shape != other.shape:
            return f"{one.shape[0]} values, and its library {other.shape[0]}"
        if not np.allclose(one, other, atol=_DIFFERENCE, rtol=_DIFFERENCE):
            apart = float(np.abs(one - other).max())
            return f"text {at} ({text[:40]!r}) differs by {apart:.2g}"
    return ""


def by_headrace(folder: Path, work: Path) -> Served:
    """What a conversion in float32 makes, or its refusal; raises ``ConversionError``."""
    work.mkdir()
    request: Any = SimpleNamespace(
        serving=ServingOptions(precision=Precision.FP32), threads=1, allow_pickle=False,
        allow_remote_code=False, stable=None,
    )  # fmt: skip
    original = detect(folder)
    graph, built, answers = padded.prepare(request, original, work)
    pairs = (ASKED[0],) * len(ASKED) if original.task is Task.TEXT_RANKING else None
    rows = EvaluationTexts(ASKED, "", own=False, pairs=pairs)
    given = encode_texts(rows, built, engine_form.inputs_of(graph))
    reference, name = answers(rows)
    signature_of(request, original, built, reference.shape[1])
    engine = GraphEngine(graph, threads=1)
    multi_label = original.multi_label
    comparison = Comparison(original.task, multi_label, given, reference, name)
    require_equal_answers(comparison, engine)
    values = values_of(original.task, engine.outputs(given), multi_label=multi_label)
    return Served(np.asarray(values, np.float32), built.spec.max_tokens)


def by_library(tried: Tried, folder: Path, max_tokens: int) -> tuple[list[Values | None], Own]:
    """Answers of transformers' pipeline or of sentence-transformers, and their longest row.

    There is a row of values a text of ``ASKED``, loaded and computed in float32 whatever the files
    are in.
    That of the empty text is None if the library fails on it. Tokens are cut to ``max_tokens``.

    Raises:
        UndefinedError: it fails on another one, or can't load the checkpoint.
    """
    try:
        with refuse_panics():
            try:
                return _by_library(tried, folder, max_tokens, {})
            except ValueError as error:  # what a file asks for, and not every network knows
                if "attention implementation" not in str(error):
                    raise
                return _by_library(tried, folder, max_tokens, {"attn_implementation": "eager"})
    except UndefinedError:
        raise
    except Exception as error:
        raise UndefinedError(f"{type(error).__name__}: {error}") from error


def _by_library(
    tried: Tried, folder: Path, max_tokens: int, options: dict[str, Any]
) -> tuple[list[Values | None], Own]:
    config = json.loads((folder / "config.json").read_bytes())
    named = [str(name) for name in config.get("architectures") or ()]
    if tried.cross_encoder:
        ask, own = _ranker(folder, max_tokens, options)
    elif tried.pooling:
        ask, own = _encoder(tried.architecture, folder, max_tokens, options)
    elif not any(name.endswith(CLASSIFIER) for name in named):
        ask, own = _encoder(
            "AutoModel", folder, max_tokens, options
        )  # it says that it is no classifier
    else:
        ask, own = _pipeline(folder, max_tokens, options)
    return [_answer(ask, text) for text in ASKED], own


def _answer(ask: Ask, text: str) -> Values | None:
    try:
        row = np.asarray(ask(text), np.float32).reshape(-1)
    except Exception:
        if text == EMPTY:
            return None
        raise
    return row if np.isfinite(row).all() or text != EMPTY else None


def _ranker(folder: Path, max_tokens: int, options: dict[str, Any]) -> tuple[Ask, Own]:
    import sentence_transformers
    import torch

    _require_whole("AutoModelForSequenceClassification", folder, options)
    ranker = sentence_transformers.CrossEncoder(
        str(folder),
        device="cpu",
        local_files_only=True,
        model_kwargs={"dtype": torch.float32, **options},
    )
    own, ranker.max_seq_length = ranker.max_seq_length, max_tokens
    asked: dict[str, Any] = {"activation_fn": torch.nn.Identity(), "show_progress_bar": False}
    return lambda text: ranker.predict([(text, ASKED[0])], **asked), own


def _encoder(
    architecture: str, folder: Path, max_tokens: int, options: dict[str, Any]
) -> tuple[Ask, Own]:
    import sentence_transformers
    import torch

    sparse = architecture.endswith("ForMaskedLM")
    _require_whole(architecture, folder, options)
    named = "SparseEncoder" if sparse else "SentenceTransformer"
    model = getattr(sentence_transformers, named)(
        str(folder),
        device="cpu",
        local_files_only=True,
        model_kwargs={"dtype": torch.float32, **options},
    )
    own, model.max_seq_length = model.max_seq_length, max_tokens

    def ask(text: str) -> Any:
        vector = model.encode([text], convert_to_tensor=True, show_progress_bar=False)
        return (vector.to_dense() if vector.is_sparse else vector)[0].numpy()

    return ask, own


def _pipeline(folder: Path, max_tokens: int, options: dict[str, Any]) -> tuple[Ask, Own]:
    """Scores in the order of the labels."""
    import transformers

    model = _require_whole("AutoModelForSequenceClassification", folder, options)
    reader = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    pipe = transformers.pipeline("text-classification", model=model, tokenizer=reader, top_k=None)
    names = [model.config.id2label[at] for at in sorted(model.config.id2label)]

    def ask(text: str) -> Any:
        (found,) = pipe([text], truncation=True, max_length=max_tokens)
        scores = {each["label"]: each["score"] for each in found}
        return [scores[name] for name in names]

    longest = getattr(model.config, "max_position_embeddings", None) or reader.model_max_length
    return ask, min(longest, reader.model_max_length)


def _require_whole(loader: str, folder: Path, options: dict[str, Any]) -> Any:
    """The network in float32, if the files have all of it; raises ``UndefinedError``."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model, found = getattr(transformers, loader).from_pretrained(
        folder, local_files_only=True, output_loading_info=True, dtype=torch.float32, **options
    )
    lacking = [name for name in found["missing_keys"] if not name.startswith("pooler.")]
    if lacking or found["mismatched_keys"]:
        raise UndefinedError(f"made up: {[*lacking, *found['mismatched_keys']][:2]}")
    if any("lora_" in name or ".base_layer." in name for name in found["unexpected_keys"]):
        raise UndefinedError("an adapter is left out")
    return model
