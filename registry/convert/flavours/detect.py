"""Tells what a downloaded version is.

By files alone, so that a plain folder and MLflow's own layouts are read the same way. Nothing of
the version is run, and no weights are read.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from contracts.tasks import Task
from registry.convert.errors import VersionError
from registry.convert.flavours import gliner
from registry.convert.flavours.config import (
    CODE_MAPS,
    CONFIG,
    is_cross_encoder,
    is_multi_label,
    labels_of,
    max_tokens_of,
    read_json,
    task_of,
)
from registry.convert.flavours.hints import read_hints
from registry.convert.flavours.original import OriginalTextModel, Pooling, PoolingMode
from registry.convert.flavours.pooling import MODULES, read_pooling, require_transformer_only
from registry.convert.flavours.sentences import (
    MULTI_VECTOR_ENCODER,
    longest_of,
    prompts_of,
    require_class,
    transformer_config,
)
from registry.convert.flavours.sides import DOCUMENT, prompts_by_side, read_sides
from registry.convert.flavours.unserved import (
    refuse_adapters,
    refuse_broken_merges,
    refuse_older_colbert,
    refuse_other_inputs,
)
from registry.convert.forms import FORMS, TaskForm

PICKLES = (".bin", ".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".joblib")
# Pickles are only here if the operator allowed them: otherwise they are not downloaded.
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_ADAPTER = "adapter_model"  # its weights are no model's
SAFETENSORS = ".safetensors"
_OTHER_CODE = re.compile(r'"([^"]+)--')
_TOKENISER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model",
                    "spiece.model", "tokenizer.model", "spm.model")  # fmt: skip
# Where the known layouts keep things, from the version's folder; the first that fits counts.
_MODEL_FOLDERS = ("", "model", "model.sentence_transformer", "extra_files", "components/model")
_TOKENISER_FOLDERS = ("", "tokenizer", "extra_files", "extra_files/tokenizer",
                     "components/tokenizer", "../tokenizer")  # fmt: skip


def is_pickle(path: str) -> bool:
    """Whether loading a file of this name could run code."""
    return path.lower().endswith(PICKLES)


def detect(
    folder: Path,
    *,
    refused: Sequence[str] = (),
    tokenizers: Iterable[Path] = (),
    task: Task | None = None,
    usual: Task | None = None,
    allow_pickle: bool = False,
    allow_remote_code: bool = False,
) -> OriginalTextModel:
    """What the version in ``folder`` is.

    Args:
        folder: the version's artifacts.
        refused: names of files that were not downloaded, being pickles.
        tokenizers: other folders in which the run may have left a tokeniser.
        task: what the endpoint asks for.
        usual: what the endpoint's stable version does, for files that fit two tasks.
        allow_pickle: whether weights may be pickles.
        allow_remote_code: whether the model's own Python code may be run.

    Raises:
        VersionError: it is nothing that can be served, with the reason.
    """
    folders = [folder / candidate for candidate in _MODEL_FOLDERS if (folder / candidate).is_dir()]
    spans = next((path for path in folders if (path / gliner.CONFIG).is_file()), None)
    if spans is not None:
        gliner.require_served(spans)
        refuse_adapters(folder, has_model=any(_weights(spans)))
        _require_weights(folder, spans, refused)
        return gliner.read_model(spans, _tokenizer(folder, spans, tokenizers), task)
    weights = next((p for p in folders if any(_weights(p))), None)
    sentences = next(
        (p for p in folders if (p / MODULES).is_file() and not is_cross_encoder(p)), None
    )
    refuse_older_colbert(folders)
    # Weights are the original: a graph beside them may be of others. The three heads of a hybrid
    # embedding are in graphs only.
    has_weights = weights is not None or _has_weights(sentences)
    by_graph = not has_weights or any(FORMS[wish].joined for wish in (task, usual) if wish)
    graph = _graph(folder) if by_graph else None
    refuse_adapters(folder, has_model=has_weights or graph is not None)
    if graph is None and weights is None and sentences is None:
        raise VersionError(_explain_unrecognised(folder, refused))
    model_folder = sentences or weights or _config_folder(graph, folders)
    transformer, pooling = (model_folder, None) if sentences is None else read_pooling(sentences)
    if graph is None:  # whose own inputs say what it reads
        _require_weights(folder, transformer, refused)
    tokenizer_folder = _tokenizer(folder, transformer, tokenizers)
    if not allow_pickle:
        _refuse_other_weights(model_folder, transformer)
    own = (model_folder, transformer, tokenizer_folder)
    _refuse_own_code(*own, allowed=allow_remote_code, runs=graph is None)
    found, labels, multi_label = _meaning(transformer, graph, pooling, task, usual)
    form = FORMS[found]
    pooling = _pooling_of(form, pooling)
    ranks = sentences is None and is_cross_encoder(transformer)
    if ranks:
        require_transformer_only(transformer)
    written = ranks or sentences is not None
    loaded_by = form.sentences_class if written and ranks == form.one_label else ""
    if sentences is not None and graph is None:
        require_class(sentences, loaded_by)
    prompts, usual_prompt = prompts_of(model_folder) if written else ({}, None)
    sided = loaded_by == MULTI_VECTOR_ENCODER
    sentence_config = transformer_config(transformer, sided=sided) if written else {}
    sides = None
    if sided:
        _require_no_graph(graph)
        sides = read_sides(model_folder, transformer, sentence_config, tokenizer_folder)
        prompts, usual_prompt = prompts_by_side(prompts), DOCUMENT
    return OriginalTextModel(
        flavour=_flavour(folder, graph, sentences),
        folder=model_folder if loaded_by or sentences is None else transformer,
        tokenizer=tokenizer_folder,
        task=found,
        onnx=graph,
        labels=labels,
        multi_label=multi_label,
        pooling=pooling,
        max_tokens=_longest(transformer, tokenizer_folder, longest_of(sentence_config)),
        prompts=prompts,
        default_prompt=usual_prompt,
        lowercase=bool(sentence_config.get("do_lower_case")),
        loaded_by=loaded_by,
        sides=sides,
    )


def _meaning(
    transformer: Path,
    graph: Path | None,
    pooling: Pooling | None,
    requested: Task | None,
    usual: Task | None,
) -> tuple[Task, tuple[str, ...], bool]:
    """Task, labels, and whether each label is judged on its own."""
    if graph is None:
        refuse_other_inputs(transformer, has_tokeniser=True)
    if pooling is not None:
        meant = (task for task, form in FORMS.items() if form.pooling in pooling.modes)
        return next(meant, Task.TEXT_EMBEDDING), (), False
    config = read_json(transformer / CONFIG)
    if graph is not None and not config:
        return (*read_hints(graph, requested), False)
    if not config:
        raise VersionError(f"there are weights but no {CONFIG} beside them")
    found = task_of(config, requested, usual, cross_encoder=is_cross_encoder(transformer))
    labels = labels_of(config) if FORMS[found].has_labels else ()
    return found, labels, is_multi_label(config)


def _pooling_of(form: TaskForm, pooling: Pooling | None) -> Pooling | None:
    """Of embeddings the mean, which sentence-transformers takes of a plain folder."""
    if not form.pooling:
        return None
    return pooling or Pooling((PoolingMode(form.pooling),))


def _require_no_graph(graph: Path | None) -> None:
    if graph is not None:
        raise VersionError(
            f"a {MULTI_VECTOR_ENCODER} is served from its safetensors, and there is only a graph: "
            "register what save_pretrained writes"
        )


def _longest(transformer: Path, tokenizer: Path, own: int | None) -> int | None:
    config = read_json(transformer / CONFIG)
    limit = max_tokens_of(config, read_json(tokenizer / "tokenizer_config.json"))
    return limit if own is None else min(limit or own, own)


def _refuse_own_code(*folders: Path, allowed: bool, runs: bool) -> None:
    for path in (folder / name for folder in folders for name in CODE_MAPS):
        if (asking := read_json(path).get("auto_map")) and not allowed:
            raise VersionError(
                f"{path.name} asks for code of its own (auto_map), which only an operator allows: "
                "conversion.allowRemoteCode in the chart, or headrace up --allow-remote-code"
            )
        if runs and (other := _OTHER_CODE.search(json.dumps(asking))):
            raise VersionError(
                f"{path.name} takes its code from {other[1]} (auto_map), which is never "
                f"downloaded: put its .py files beside it, and take {other[1]}-- out of auto_map"
            )


def _refuse_other_weights(*folders: Path) -> None:
    """Indices of weights in several files may name only safetensors: others are unpickled."""
    for index in {path for folder in folders for path in folder.glob(f"*{SAFETENSORS}.index.json")}:
        weights = read_json(index).get("weight_map")
        named = set(map(str, weights.values())) if isinstance(weights, dict) else set()
        if others := sorted(name for name in named if not name.endswith(SAFETENSORS)):
            raise VersionError(f"{index.name} names {others[0][:80]!r}, which is not safetensors")


def _weights(candidate: Path) -> Iterable[Path]:
    found = (path for pattern in _WEIGHTS for path in candidate.glob(pattern))
    return (path for path in found if not path.name.startswith(_ADAPTER))


def _require_weights(folder: Path, transformer: Path, refused: Sequence[str]) -> None:
    if not any(_weights(transformer)):
        raise VersionError(_explain_unrecognised(folder, refused))


def _has_weights(sentences: Path | None) -> bool:
    return sentences is not None and any(_weights(read_pooling(sentences)[0]))


def _graph(folder: Path) -> Path | None:
    """The version's ONNX graph: where MLflow says, else the only one there is."""
    graphs = sorted(folder.rglob("*.onnx"))
    plain = [path for path in graphs if path.name == "model.onnx"]
    if len(graphs) > 1 and len(plain) != 1:
        names = ", ".join(str(path.relative_to(folder)) for path in graphs)
        raise VersionError(f"there are several ONNX graphs ({names}); name one of them model.onnx")
    return next(iter(plain or graphs), None)


def _config_folder(graph: Path | None, folders: Sequence[Path]) -> Path:
    around = [] if graph is None else [graph.parent, graph.parent.parent]
    candidates = [*around, *folders]
    return next(
        (candidate for candidate in candidates if (candidate / CONFIG).is_file()), candidates[0]
    )


def _tokenizer(folder: Path, transformer: Path, others: Iterable[Path]) -> Path:
    candidates = [transformer / candidate for candidate in _TOKENISER_FOLDERS]
    candidates += [folder / candidate for candidate in _TOKENISER_FOLDERS]
    candidates += others
    for name in _TOKENISER_FILES:
        for candidate in candidates:
            if (candidate / name).is_file():
                refuse_broken_merges(candidate)
                return candidate.resolve()
    refuse_other_inputs(transformer, has_tokeniser=False)
    raise TokenizerNotFoundError(
        "there is no tokeniser: put tokenizer.json beside the model, or log it with the run "
        "in a folder called tokenizer"
    )


class TokenizerNotFoundError(VersionError):
    """The version is a model without a tokeniser, perhaps because that is still on its way."""


def _flavour(folder: Path, graph: Path | None, sentences: Path | None) -> str:
    if graph is not None:
        return "onnx"
    if sentences is not None:
        return "sentence-transformers"
    return "transformers" if (folder / "MLmodel").is_file() else "transformers folder"


def _explain_unrecognised(folder: Path, refused: Sequence[str]) -> str:
    if refused:
        return (
            f"the weights are in {', '.join(sorted(refused)[:3])}, a pickle, which can run code "
            "when loaded and is refused; save the model as safetensors"
        )
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    held = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return (
        "this is none of: a transformers or sentence-transformers model with safetensors, an ONNX "
        f"graph with a tokeniser, a Hugging Face folder; it holds {held or 'no files'}"
    )
