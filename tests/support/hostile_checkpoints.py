"""Checkpoints as nobody should write them, and what the libraries make of them.

One is a tiny model of ``tried_models`` that is changed in one or two ways: weights that are gone,
renamed or of another size, fields of configurations set to other values, options of tokenisers,
files beside it. ``by_library`` asks the model's own library, with no code of ours; ``by_headrace``
converts it and asks the engine. It needs torch.
"""

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tried_models import TRIED, Tried, texts, write

from contracts.endpoint import Precision, Serving
from contracts.tasks import Task
from registry.convert import walk
from registry.convert.errors import ConversionError
from registry.convert.flavours import detect
from registry.convert.graph import engine_form
from registry.convert.parity.engine import Engine
from registry.convert.parity.verify import values_of
from registry.convert.steps import encoded
from registry.convert.texts import EvaluationTexts

Values = NDArray[np.float32]
CLASSIFIER = "ForSequenceClassification"
# What an answer is compared on: the longest is longer than any of the models.
ASKED = (
    *texts()[:5], "", "UPPER lower Ünïcode 漢字 😀", "[NEW] <s> </s> [SEP] [MASK]", "word " * 300,
)  # fmt: skip


# Words of a library, or of Python, that tell nobody what to do.
_MISLEADING = re.compile(r"above report|Traceback|KeyError|NoneType|object has no attribute")
_DIFFERENCE = 2e-4  # in float32
_HALF_DIFFERENCE = 2e-2  # where the library computes in the half precision of the files


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


class UndefinedError(Exception):
    """The library has no answer of its own: it fails, or makes weights up."""


def suitable() -> list[Tried]:
    """Those whose library answers in one call: classifiers, rankers and embeddings."""
    return [
        one
        for one in TRIED
        if one.cross_encoder or one.pooling or one.architecture.endswith(CLASSIFIER)
    ]


def by_library(tried: Tried, folder: Path, asked: Sequence[str] = ASKED) -> Values:
    """Answers by transformers' pipeline or sentence-transformers, float32 ``[texts, n]``.

    Raises:
        UndefinedError: there is none.
    """
    import sentence_transformers
    import torch

    torch.set_num_threads(1)
    options: dict[str, Any] = {"device": "cpu", "local_files_only": True}
    try:
        if tried.cross_encoder:
            _require_whole("AutoModelForSequenceClassification", folder)
            ranker = sentence_transformers.CrossEncoder(str(folder), **options)
            pairs = [(text, ASKED[0]) for text in asked]
            return np.asarray(ranker.predict(pairs), np.float32).reshape(len(asked), -1)
        if tried.pooling:
            of_words = tried.architecture.endswith("ForMaskedLM")
            named = "SparseEncoder" if of_words else "SentenceTransformer"
            _require_whole(tried.architecture, folder)
            model = getattr(sentence_transformers, named)(str(folder), **options)
            found = [model.encode([text], convert_to_numpy=False)[0] for text in asked]
            dense = [each.to_dense() if each.is_sparse else each for each in found]
            return np.stack([each.float().numpy() for each in dense])
        return _by_pipeline(folder, asked)
    except UndefinedError:
        raise
    except Exception as error:
        raise UndefinedError(f"{type(error).__name__}: {error}") from error


def _by_pipeline(folder: Path, asked: Sequence[str]) -> Values:
    """Scores in the order of the labels."""
    import transformers

    model = _require_whole("AutoModelForSequenceClassification", folder)
    reader = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ask = transformers.pipeline("text-classification", model=model, tokenizer=reader, top_k=None)
    longest = getattr(model.config, "max_position_embeddings", 512) - 2
    options = {"truncation": True, "max_length": min(reader.model_max_length, longest)}
    rows = []
    for text in asked:
        (found,) = ask([text], **options)
        scores = {each["label"]: each["score"] for each in found}
        rows.append([scores[model.config.id2label[at]] for at in sorted(model.config.id2label)])
    return np.asarray(rows, np.float32)


def _require_whole(loader: str, folder: Path) -> Any:
    import transformers

    model, found = getattr(transformers, loader).from_pretrained(
        folder, local_files_only=True, output_loading_info=True
    )
    lacking = [name for name in found["missing_keys"] if not name.startswith("pooler.")]
    if lacking or found["mismatched_keys"]:
        raise UndefinedError(f"made up: {[*lacking, *found['mismatched_keys']][:2]}")
    if any("lora_" in name or ".base_layer." in name for name in found["unexpected_keys"]):
        raise UndefinedError("an adapter is left out")
    return model


def by_headrace(folder: Path, work: Path) -> Values:
    """Answers of what a conversion makes, float32 ``[texts, n]``; raises ``ConversionError``."""
    work.mkdir()
    request: Any = SimpleNamespace(
        serving=Serving(precision=Precision.FP32), threads=1, allow_pickle=False,
        allow_remote_code=False,
    )  # fmt: skip
    original = detect(folder)
    graph, built, _ = walk._prepare(request, original, work)
    pairs = (ASKED[0],) * len(ASKED) if original.task is Task.TEXT_RANKING else None
    rows = EvaluationTexts(ASKED, "", own=False, pairs=pairs)
    engine = Engine(graph, threads=1)
    outputs = engine.outputs(encoded(rows, built, engine_form.inputs_of(graph)))
    return np.asarray(
        values_of(original.task, outputs, multi_label=original.multi_label), np.float32
    )


def judged(tried: Tried, folder: Path, work: Path) -> Outcome:
    """Asks both, and compares their answers."""
    asked, library, why = ASKED, None, ""
    for asked in (ASKED, ASKED[:-1]):  # some libraries fail on a text that is too long
        try:
            library = by_library(tried, folder, asked)
            break
        except UndefinedError as error:
            why = str(error)
    try:
        ours = by_headrace(folder, work)[: len(asked)]
    except ConversionError as error:
        misleads = f"misleads: {error}" if _MISLEADING.search(str(error)) else ""
        return Outcome(
            "refused" if library is not None else "refused by both", str(error), misleads
        )
    except Exception as error:  # noqa: BLE001 - a conversion must not end by any other
        return Outcome("failed", wrong=f"failed: {type(error).__name__}: {error}")
    if library is None:
        return Outcome("served", wrong=f"served, and its library has no answer: {why}")
    if ours.shape != library.shape:
        return Outcome("served", wrong=f"shapes {ours.shape} and {library.shape}")
    half = any(
        str(_json(folder, "config.json").get(name)).endswith("float16")
        for name in ("dtype", "torch_dtype")
    )
    least = _HALF_DIFFERENCE if half else _DIFFERENCE
    if np.allclose(ours, library, atol=least, rtol=least):
        return Outcome("served")
    rows = np.abs(ours - library).max(axis=1).round(4).tolist()
    return Outcome("served", wrong=f"differs by {rows}")


# What is changed


@dataclass(frozen=True)
class Change:
    """One way to spoil or to vary a checkpoint. ``apply`` says what it did."""

    name: str
    apply: Callable[[Path, random.Random], str]


def _json(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def _set(folder: Path, name: str, **fields: Any) -> str:
    """Writes fields; those that are None go."""
    whole = {**_json(folder, name), **fields}
    kept = {key: value for key, value in whole.items() if value is not None}
    (folder / name).write_text(json.dumps(kept))
    return f"{name}: {fields}"


def _tensors(folder: Path, change: Callable[[dict[str, Any]], str]) -> str:
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    said = change(tensors)
    save_file({key: value.contiguous() for key, value in tensors.items()}, path, {"format": "pt"})
    return said


def _drop(folder: Path, chance: random.Random) -> str:
    def change(tensors: dict[str, Any]) -> str:
        name = chance.choice(sorted(tensors))
        del tensors[name]
        return name

    return _tensors(folder, change)


def _rename(folder: Path, chance: random.Random) -> str:
    def change(tensors: dict[str, Any]) -> str:
        name = chance.choice(sorted(tensors))
        new = chance.choice(
            [f"module.{name}", f"{name}.base_layer", name.replace("layer", "block")]
        )
        tensors[new] = tensors.pop(name)
        return f"{name} -> {new}"

    return _tensors(folder, change)


def _resize(folder: Path, chance: random.Random) -> str:
    def change(tensors: dict[str, Any]) -> str:
        name = chance.choice(sorted(name for name in tensors if tensors[name].dim() > 0))
        tensors[name] = tensors[name][:-1]
        return name

    return _tensors(folder, change)


def _half(folder: Path, _: random.Random) -> str:
    def change(tensors: dict[str, Any]) -> str:
        tensors.update({name: value.half() for name, value in tensors.items()})
        return "float16"

    _set(folder, "config.json", dtype="float16")
    return _tensors(folder, change)


def _extra(folder: Path, chance: random.Random) -> str:
    import torch

    def change(tensors: dict[str, Any]) -> str:
        name = chance.choice(["cls.predictions.bias", "head.weight", "encoder.lora_A.weight"])
        tensors[name] = torch.ones(3, 3)
        return name

    return _tensors(folder, change)


_FIELDS: dict[str, Sequence[Any]] = {
    "hidden_act": ("relu", "gelu_new", "silu"),
    "layer_norm_eps": (1e-3, 1e-12),
    "pad_token_id": (0, 2, 7),
    "num_hidden_layers": (1, 3),
    "num_attention_heads": (1, 4),
    "max_position_embeddings": (32, 64),
    "type_vocab_size": (1, 3),
    "problem_type": ("multi_label_classification", "single_label_classification", "regression"),
    "is_decoder": (True,),
    "tie_word_embeddings": (False, True),
    "vocab_size": (300, 900),
    "classifier_dropout": (0.5,),
    "hidden_size": (16,),
    "torch_dtype": ("float16", "bfloat16"),
    "dtype": ("float16",),
    "id2label": ({"0": "b", "1": "a", "2": "c"}, {"0": "only"}),
    "architectures": (["BertModel"], [], None),
    "model_type": ("bert", "roberta", "nonsense"),
}
_TOKENISER_FIELDS: dict[str, Sequence[Any]] = {
    "model_max_length": (16, 1_000_000, 10**30),
    "truncation_side": ("left",),
    "padding_side": ("left",),
    "do_lower_case": (True, False),
    "add_prefix_space": (True, False),
    "strip_accents": (True, False),
    "clean_up_tokenization_spaces": (True, False),
    "unk_token": ("[NEW]", None),
    "cls_token": ("[NEW]", None),
    "pad_token": ("[NEW]", None),
    "add_bos_token": (True, False),
    "add_eos_token": (True, False),
    "tokenizer_class": ("BertTokenizer", "PreTrainedTokenizerFast", "RobertaTokenizer", "NoSuch"),
    "additional_special_tokens": (["[NEW]"],),
    "model_input_names": (["input_ids"], ["input_ids", "attention_mask", "token_type_ids"]),
}
_PARTS: dict[str, Sequence[Any]] = {
    "truncation": (
        {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
    ),
    "padding": (
        {
            "strategy": {"Fixed": 20}, "direction": "Right", "pad_to_multiple_of": None,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]",
        },
    ),
    "post_processor": (None,),
    "normalizer": (
        {"type": "Lowercase"}, {"type": "NFKC"}, {"type": "Prepend", "prepend": "▁"}, None,
    ),
    "pre_tokenizer": ({"type": "Whitespace"}, {"type": "WhitespaceSplit"}, None),
}  # fmt: skip


def _field(file: str, fields: dict[str, Sequence[Any]]) -> Callable[[Path, random.Random], str]:
    def change(folder: Path, chance: random.Random) -> str:
        name = chance.choice(sorted(fields))
        return _set(folder, file, **{name: chance.choice(list(fields[name]))})

    return change


def _part(folder: Path, chance: random.Random) -> str:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return "no tokenizer.json"
    name = chance.choice(sorted(_PARTS))
    value = chance.choice(list(_PARTS[name]))
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    return f"tokenizer.json: {name} = {value}"


def _add_token(folder: Path, chance: random.Random) -> str:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return "no tokenizer.json"
    whole = json.loads(path.read_text())
    number = chance.choice([max(each["id"] for each in whole["added_tokens"]) + 1, 499, 5000])
    flags = {name: chance.random() < 0.5 for name in ("single_word", "lstrip", "rstrip", "special")}
    token = {"id": number, "content": "[NEW]", "normalized": False, **flags}
    whole["added_tokens"].append(token)
    path.write_text(json.dumps(whole))
    return f"added {token}"


def _modules(folder: Path, chance: random.Random) -> str:
    pooling = next(iter(folder.glob("*_Pooling/config.json")), None)
    if pooling is None:
        return "no modules"
    if chance.random() < 0.3:
        length = chance.choice([8, 64, 512])
        return _set(folder, "sentence_bert_config.json", max_seq_length=length)
    name = str(pooling.relative_to(folder))
    if chance.random() < 0.5:
        mode = chance.choice(["cls", "max", "mean", "lasttoken", "weightedmean", "nonsense"])
        return _set(folder, name, pooling_mode=mode)
    return _set(folder, name, include_prompt=chance.random() < 0.5)


def _prompts(folder: Path, chance: random.Random) -> str:
    prompts = {"query": "query: ", "document": "passage: "}
    usual = chance.choice([None, "query", "nonsense"])
    return _set(
        folder, "config_sentence_transformers.json", prompts=prompts, default_prompt_name=usual
    )


def _beside(folder: Path, chance: random.Random) -> str:
    name = chance.choice(
        ["onnx/model.onnx", "onnx/model_fp16.onnx", "pytorch_model.bin", "adapter_config.json",
         "preprocessor_config.json", "tf_model.h5", "model-00001-of-00002.safetensors"]
    )  # fmt: skip
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"{}")
    return name


CHANGES = [
    Change("weights gone", _drop),
    Change("weights renamed", _rename),
    Change("weights of another size", _resize),
    Change("weights of half precision", _half),
    Change("further weights", _extra),
    Change("config", _field("config.json", _FIELDS)),
    Change("tokenizer_config", _field("tokenizer_config.json", _TOKENISER_FIELDS)),
    Change("parts of tokenizer.json", _part),
    Change("an added token", _add_token),
    Change("modules", _modules),
    Change("prompts", _prompts),
    Change("files beside", _beside),
]


def spoiled(tried: Tried, folder: Path, chance: random.Random) -> list[tuple[str, str]]:
    """Writes a checkpoint and changes it once or twice; the changes and what each did."""
    write(tried, folder)
    changes = chance.sample(CHANGES, chance.choice([1, 1, 2]))
    return [(change.name, change.apply(folder, chance)) for change in changes]
