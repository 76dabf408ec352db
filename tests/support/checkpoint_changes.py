"""Ways in which checkpoints are spoiled, or are as few people write them.

A tiny model of ``tried_models`` is changed in one or two ways: weights that are gone, renamed,
doubled or of another size, fields of configurations set to other values, options of tokenisers,
modules, files beside it. It asks no library what it makes of the result, and needs torch.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tried_models import Tried, write

WEIGHTS = "model.safetensors"
_SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@dataclass(frozen=True)
class Change:
    """One way to spoil or to vary a checkpoint. ``apply`` says what it did."""

    name: str
    apply: Callable[[Path, random.Random], str]


def spoiled(tried: Tried, folder: Path, chance: random.Random) -> list[tuple[str, str]]:
    """Writes a checkpoint and changes it once or twice; the changes and what each did."""
    write(tried, folder)
    changes = chance.sample(CHANGES, chance.choice([1, 1, 2]))
    # Weights that are in several files are changed no more.
    changes.sort(key=lambda change: change.name == "weights in several files")
    return [(change.name, change.apply(folder, chance)) for change in changes]


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


def _tensors(path: Path, change: Callable[[dict[str, Any]], str]) -> str:
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    said = change(tensors)
    save_file({key: value.contiguous() for key, value in tensors.items()}, path, {"format": "pt"})
    return said


def _drop(folder: Path, chance: random.Random) -> str:
    def change(tensors: dict[str, Any]) -> str:
        name = chance.choice(sorted(tensors))
        del tensors[name]
        return name

    return _tensors(folder / WEIGHTS, change)


def _rename(folder: Path, chance: random.Random) -> str:
    def change(tensors: dict[str, Any]) -> str:
        name = chance.choice(sorted(tensors))
        new = chance.choice(
            [f"module.{name}", f"{name}.base_layer", name.replace("layer", "block")]
        )
        tensors[new] = tensors.pop(name)
        return f"{name} -> {new}"

    return _tensors(folder / WEIGHTS, change)


def _rename_all(folder: Path, chance: random.Random) -> str:
    """What wrappers of training, and older releases, make of every name."""

    def change(tensors: dict[str, Any]) -> str:
        way = chance.choice(["module.", "model.", "base_model.model.", "gamma", "no prefix"])
        for name in sorted(tensors):
            if way == "gamma":
                new = name.replace("LayerNorm.weight", "LayerNorm.gamma")
                new = new.replace("LayerNorm.bias", "LayerNorm.beta")
            elif way == "no prefix":
                new = name.split(".", 1)[-1]
            else:
                new = f"{way}{name}"
            tensors[new] = tensors.pop(name)
        return way

    return _tensors(folder / WEIGHTS, change)


def _double(folder: Path, chance: random.Random) -> str:
    """One layer's weights twice, under names that libraries may take for the same."""
    import torch

    def change(tensors: dict[str, Any]) -> str:
        name = chance.choice(sorted(tensors))
        prefixes = ["bert.", "roberta.", "model.", "transformer.", "base_model.", "encoder."]
        inner = name.split(".", 1)[-1]
        new = chance.choice([inner, *(f"{prefix}{name}" for prefix in prefixes)])
        if new not in tensors:
            tensors[new] = torch.randn(tensors[name].shape)
        return f"{name} and {new}"

    return _tensors(folder / WEIGHTS, change)


def _resize(folder: Path, chance: random.Random) -> str:
    def change(tensors: dict[str, Any]) -> str:
        name = chance.choice(sorted(name for name in tensors if tensors[name].dim() > 0))
        tensors[name] = tensors[name][:-1]
        return name

    return _tensors(folder / WEIGHTS, change)


def _narrow(folder: Path, chance: random.Random) -> str:
    """Numbers of fewer bits, in all or some of the weights, and the config says so or not."""
    import torch

    kind = chance.choice(["float16", "bfloat16", "float64"])
    share = chance.choice([1.0, 1.0, 0.5])

    def change(tensors: dict[str, Any]) -> str:
        for name in sorted(tensors):
            if tensors[name].is_floating_point() and chance.random() < share:
                tensors[name] = tensors[name].to(getattr(torch, kind))
        return f"{kind} of {share:.0%}"

    if chance.random() < 0.5:
        _set(folder, "config.json", dtype=kind)
    return _tensors(folder / WEIGHTS, change)


def _not_a_number(folder: Path, chance: random.Random) -> str:
    def change(tensors: dict[str, Any]) -> str:
        name = chance.choice(sorted(tensors))
        tensors[name] = tensors[name].clone().fill_(chance.choice([float("nan"), float("inf"), 0]))
        return name

    return _tensors(folder / WEIGHTS, change)


def _extra(folder: Path, chance: random.Random) -> str:
    import torch

    def change(tensors: dict[str, Any]) -> str:
        name = chance.choice(
            ["cls.predictions.bias", "head.weight", "encoder.lora_A.weight", "lm_head.weight",
             "cls.predictions.decoder.weight", "classifier.modules_to_save.default.weight",
             "embeddings.position_ids"]
        )  # fmt: skip
        tensors[name] = torch.ones(3, 3)
        return name

    return _tensors(folder / WEIGHTS, change)


def _shard(folder: Path, chance: random.Random) -> str:
    """Weights in two files with an index, which may say what is not so."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / WEIGHTS)
    names = sorted(tensors)
    half = len(names) // 2
    parts = [{name: tensors[name] for name in each} for each in (names[:half], names[half:])]
    index = {name: file for file, part in zip(_SHARDS, parts, strict=True) for name in part}
    way = chance.choice(
        ["well", "well", "in both", "in both, unindexed", "not in the index", "no such file",
         "wrong file", "whole file beside"]
    )  # fmt: skip
    name = names[0]
    if way.startswith("in both"):
        parts[1][name] = torch.randn(tensors[name].shape).to(tensors[name].dtype)
        index[name] = _SHARDS[1 if way == "in both" else 0]
    elif way == "not in the index":
        del index[name]
    elif way == "no such file":
        index[name] = "model-00003-of-00003.safetensors"
    elif way == "wrong file":
        index[name] = _SHARDS[1]
    for file, part in zip(_SHARDS, parts, strict=True):
        save_file(part, folder / file, {"format": "pt"})
    whole = {"metadata": {"total_size": 1}, "weight_map": index}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(whole))
    if way == "whole file beside":
        changed = {key: value.clone() for key, value in tensors.items()}
        changed[name] = torch.randn(tensors[name].shape).to(tensors[name].dtype)
        save_file(changed, folder / WEIGHTS, {"format": "pt"})
    else:
        (folder / WEIGHTS).unlink()
    return f"{way}: {name}"


_FIELDS: dict[str, Sequence[Any]] = {
    "hidden_act": ("relu", "gelu_new", "silu"),
    "hidden_activation": ("relu", "silu"),
    "layer_norm_eps": (1e-3, 1e-12),
    "norm_eps": (1e-3,),
    "rope_theta": (100.0,),
    "pad_token_id": (0, 2, 7, -1),
    "eos_token_id": (0, 5, [1, 2]),
    "num_hidden_layers": (1, 3),
    "num_attention_heads": (1, 4),
    "max_position_embeddings": (32, 64, 256),
    "type_vocab_size": (1, 3),
    "position_embedding_type": ("relative_key",),
    "problem_type": ("multi_label_classification", "single_label_classification", "regression"),
    "is_decoder": (True,),
    "add_cross_attention": (True,),
    "tie_word_embeddings": (False, True),
    "vocab_size": (300, 900),
    "classifier_dropout": (0.5,),
    "classifier_pooling": ("mean", "cls"),
    "hidden_size": (16,),
    "sliding_window": (4,),
    "local_attention": (4,),
    "relative_attention": (False,),
    "position_buckets": (4,),
    "torch_dtype": ("float16", "bfloat16"),
    "dtype": ("float16", "nonsense"),
    "num_labels": (1, 2, 5),
    "id2label": (
        {"0": "b", "1": "a", "2": "c"}, {"0": "only"}, {"0": "b", "2": "a", "3": "c"},
        {"0": "a", "1": "a", "2": "c"},
    ),
    "architectures": (["BertModel"], ["BertForPreTraining"], [], None),
    "model_type": ("bert", "roberta", "nonsense", None),
    "output_hidden_states": (True,),
    "return_dict": (False,),
    "chunk_size_feed_forward": (8,),
    "quantization_config": ({"load_in_8bit": True}, {"quant_method": "nonsense"}),
    "pruned_heads": ({"0": [1]},),
    "attn_implementation": ("sdpa",),
}  # fmt: skip
_TOKENISER_FIELDS: dict[str, Sequence[Any]] = {
    "model_max_length": (16, 1_000_000, 10**30),
    "truncation_side": ("left",),
    "padding_side": ("left",),
    "do_lower_case": (True, False),
    "add_prefix_space": (True, False),
    "strip_accents": (True, False),
    "split_special_tokens": (True,),
    "clean_up_tokenization_spaces": (True, False),
    "unk_token": ("[NEW]", None),
    "cls_token": ("[NEW]", None),
    "pad_token": ("[NEW]", None),
    "eos_token": ("[NEW]", None),
    "add_bos_token": (True, False),
    "add_eos_token": (True, False),
    "tokenizer_class": ("BertTokenizer", "PreTrainedTokenizerFast", "RobertaTokenizer", "NoSuch"),
    "additional_special_tokens": (["[NEW]"],),
    "extra_special_tokens": (["word"], {"image_token": "[NEW]"}),
    "model_input_names": (["input_ids"], ["input_ids", "attention_mask", "token_type_ids"]),
    "added_tokens_decoder": (
        {"7": {"content": "film", "lstrip": True, "rstrip": False, "normalized": False,
               "single_word": False, "special": True}},
    ),
}  # fmt: skip
_PARTS: dict[str, Sequence[Any]] = {
    "truncation": (
        {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
        {"direction": "Left", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
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
    "pre_tokenizer": (
        {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "Digits",
        "individual_digits": True}, None,
    ),
}  # fmt: skip
_MODEL_PARTS: dict[str, Sequence[Any]] = {
    "dropout": (0.3,),
    "unk_token": ("[NEW]", None),
    "unk_id": (None, 7),
    "byte_fallback": (True,),
    "fuse_unk": (True, False),
    "ignore_merges": (True,),
    "max_input_chars_per_word": (3,),
    "continuing_subword_prefix": ("@@",),
}


def _field(file: str, fields: dict[str, Sequence[Any]]) -> Callable[[Path, random.Random], str]:
    def change(folder: Path, chance: random.Random) -> str:
        name = chance.choice(sorted(fields))
        return _set(folder, file, **{name: chance.choice(list(fields[name]))})

    return change


def _part(folder: Path, chance: random.Random) -> str:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return "no tokenizer.json"
    whole = json.loads(path.read_text())
    inside = chance.random() < 0.4
    parts, target = (_MODEL_PARTS, whole["model"]) if inside else (_PARTS, whole)
    known = sorted(name for name in parts if not inside or name in target)
    name = chance.choice(known)
    target[name] = chance.choice(list(parts[name]))
    path.write_text(json.dumps(whole))
    return f"tokenizer.json: {'model.' if inside else ''}{name} = {target[name]}"


def _add_token(folder: Path, chance: random.Random) -> str:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return "no tokenizer.json"
    whole = json.loads(path.read_text())
    number = chance.choice([max(each["id"] for each in whole["added_tokens"]) + 1, 499, 5000])
    flags = {name: chance.random() < 0.5 for name in ("single_word", "lstrip", "rstrip", "special")}
    token = {"id": number, "content": "[NEW]", "normalized": chance.random() < 0.3, **flags}
    whole["added_tokens"].append(token)
    path.write_text(json.dumps(whole))
    return f"added {token}"


def _map_tokens(folder: Path, chance: random.Random) -> str:
    """Files of older releases beside ``tokenizer.json``, which say other things."""
    if chance.random() < 0.5:
        token = chance.choice(["unk_token", "pad_token", "cls_token", "eos_token"])
        return _set(folder, "special_tokens_map.json", **{token: chance.choice(["[NEW]", "word"])})
    if chance.random() < 0.5:
        return _set(folder, "added_tokens.json", **{"[NEW]": chance.choice([500, 7, 5000])})
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nword\n")
    return "vocab.txt"


def _pool(folder: Path, chance: random.Random) -> str:
    pooling = next(iter(folder.glob("*_Pooling/config.json")), None)
    if pooling is None:
        return "no modules"
    name = str(pooling.relative_to(folder))
    way = chance.choice(["mode", "mode", "two modes", "flags", "include_prompt"])
    modes = ["cls", "max", "mean", "lasttoken", "weightedmean", "mean_sqrt_len_tokens", "nonsense"]
    if way == "mode":
        return _set(folder, name, pooling_mode=chance.choice(modes))
    if way == "two modes":
        return _set(folder, name, pooling_mode=chance.sample(modes[:-1], 2))
    if way == "flags":
        flags = {f"pooling_mode_{mode}": chance.random() < 0.5
                 for mode in ("cls_token", "max_tokens", "mean_tokens", "lasttoken")}  # fmt: skip
        return _set(folder, name, pooling_mode=None, **flags)
    return _set(folder, name, include_prompt=chance.random() < 0.5)


def _modules(folder: Path, chance: random.Random) -> str:
    """Modules gone, twice, in another order, or of other paths."""
    path = folder / "modules.json"
    if not path.is_file():
        return "no modules"
    modules = json.loads(path.read_text())
    way = chance.choice(["gone", "twice", "order", "numbers", "older names", "path"])
    if way == "gone":
        del modules[chance.randrange(len(modules))]
    elif way == "twice":
        modules.append(chance.choice(modules))
    elif way == "order":
        chance.shuffle(modules)
    elif way == "numbers":
        for module in modules:
            module["idx"] = len(modules) - module["idx"]
    elif way == "older names":
        for module in modules:
            kind = module["type"].rpartition(".")[-1]
            module["type"] = f"sentence_transformers.models.{kind}"
    else:
        chance.choice(modules)["path"] = chance.choice(["", "9_Nothing", "../v"])
    path.write_text(json.dumps(modules))
    return f"{way}: {[module['type'].rpartition('.')[-1] for module in modules]}"


def _dense(folder: Path, chance: random.Random) -> str:
    import torch

    found = sorted(folder.glob("*_Dense"))
    if not found:
        return "no Dense"
    layer = chance.choice(found)
    config = str((layer / "config.json").relative_to(folder))
    way = chance.choice(["bits", "bias", "gone", "size", "extra", "config", "pickle"])
    if way == "config":
        fields: dict[str, Sequence[Any]] = {
            "activation_function": ("torch.nn.modules.activation.Tanh", "torch.nn.ReLU", None,
                                    "torch.nn.modules.activation.GELU", "os.system"),
            "in_features": (7,),
            "out_features": (7,),
            "bias": (True,),
            "use_residual": (True, False),
            "module_input_name": ("token_embeddings",),
        }  # fmt: skip
        name = chance.choice(sorted(fields))
        return _set(folder, config, **{name: chance.choice(list(fields[name]))})
    if way == "pickle":
        from safetensors.torch import load_file

        torch.save(load_file(layer / WEIGHTS), layer / "pytorch_model.bin")
        (layer / WEIGHTS).unlink()
        return "pytorch_model.bin alone"

    def change(tensors: dict[str, Any]) -> str:
        weight = tensors["linear.weight"]
        if way == "bits":
            kind = chance.choice([torch.float16, torch.bfloat16, torch.float64])
            tensors["linear.weight"] = weight.to(kind)
        elif way == "bias":
            tensors["linear.bias"] = torch.ones(weight.shape[0])
            if chance.random() < 0.7:
                _set(folder, config, bias=True)
        elif way == "gone":
            tensors["weight"] = tensors.pop("linear.weight")
        elif way == "size":
            tensors["linear.weight"] = weight[:-1]
        else:
            tensors["residual.weight"] = torch.ones(weight.shape)
        return f"{layer.name}: {way}"

    return _tensors(layer / WEIGHTS, change)


def _transformer(folder: Path, chance: random.Random) -> str:
    fields: dict[str, Sequence[Any]] = {
        "max_seq_length": (8, 64, 512, None),
        "do_lower_case": (True, False),
        "model_args": ({"dtype": "float16"}, {"attn_implementation": "sdpa"}),
        "config_args": ({"num_hidden_layers": 1}, {"layer_norm_eps": 0.1}),
        "tokenizer_args": ({"model_max_length": 9}, {"padding_side": "left"},
                           {"do_lower_case": True}, {"add_prefix_space": True}),
        "processor_kwargs": ({"text": {"max_length": 9}},),
        "transformer_task": ("fill-mask", "feature-extraction", "text-generation"),
        "nonsense": (1,),
    }  # fmt: skip
    if not (folder / "modules.json").is_file():
        return "no modules"
    name = chance.choice(sorted(fields))
    value = chance.choice(list(fields[name]))
    return _set(folder, "sentence_bert_config.json", **{name: value})


def _prompts(folder: Path, chance: random.Random) -> str:
    prompts = chance.choice(
        [{"query": "query: ", "document": "passage: "}, {"query": ""}, {"query": "[NEW] Ä  "}]
    )
    usual = chance.choice([None, "query", "nonsense", ""])
    return _set(
        folder, "config_sentence_transformers.json", prompts=prompts, default_prompt_name=usual
    )


def _sentences(folder: Path, chance: random.Random) -> str:
    fields: dict[str, Sequence[Any]] = {
        "truncate_dim": (8, None),
        "similarity_fn_name": ("dot", "euclidean"),
        "max_active_dims": (4,),
        "model_type": ("SentenceTransformer", "CrossEncoder", "SparseEncoder", "nonsense"),
        "activation_fn": ("torch.nn.modules.linear.Identity",),
        "nonsense": (1,),
    }
    if not (folder / "config_sentence_transformers.json").is_file():
        return "no sentence-transformers"
    name = chance.choice(sorted(fields))
    value = chance.choice(list(fields[name]))
    return _set(folder, "config_sentence_transformers.json", **{name: value})


def _beside(folder: Path, chance: random.Random) -> str:
    name = chance.choice(
        ["onnx/model.onnx", "onnx/model_fp16.onnx", "pytorch_model.bin", "adapter_config.json",
         "preprocessor_config.json", "tf_model.h5", _SHARDS[0], "adapter_model.safetensors",
         "2_Dense/model.safetensors", "generation_config.json", "consolidated.safetensors"]
    )  # fmt: skip
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"{}")
    return name


CHANGES = [
    Change("weights gone", _drop),
    Change("weights renamed", _rename),
    Change("all weights renamed", _rename_all),
    Change("weights doubled", _double),
    Change("weights of another size", _resize),
    Change("weights of other bits", _narrow),
    Change("weights that are no numbers", _not_a_number),
    Change("further weights", _extra),
    Change("weights in several files", _shard),
    Change("config", _field("config.json", _FIELDS)),
    Change("config, again", _field("config.json", _FIELDS)),
    Change("tokenizer_config", _field("tokenizer_config.json", _TOKENISER_FIELDS)),
    Change("parts of tokenizer.json", _part),
    Change("an added token", _add_token),
    Change("older tokeniser files", _map_tokens),
    Change("pooling", _pool),
    Change("modules", _modules),
    Change("dense layers", _dense),
    Change("the transformer's module", _transformer),
    Change("prompts", _prompts),
    Change("sentence-transformers", _sentences),
    Change("files beside", _beside),
]
