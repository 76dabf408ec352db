"""A random BERT classifier in transformers' own files, written without torch.

Of a few kilobytes, with the words of ``tiny_models``. A test that registers it needs torch only in
the conversion's own environment.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tiny_models import VOCABULARY, asking_tokenizer
from weight_files import safetensors

LABELS = ("negative", "neutral", "positive")
LONGEST = 64
_HIDDEN, _INNER, _LAYERS = 32, 48, 2


def write_classifier(folder: Path, seed: int = 0) -> Path:
    """The folder, with ``config.json``, ``model.safetensors`` and ``tokenizer.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification"],
        "vocab_size": VOCABULARY,
        "hidden_size": _HIDDEN,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": 4,
        "intermediate_size": _INNER,
        "max_position_embeddings": LONGEST,
        "type_vocab_size": 2,
        "pad_token_id": 0,
        "id2label": {str(number): label for number, label in enumerate(LABELS)},
        "label2id": {label: number for number, label in enumerate(LABELS)},
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_text(asking_tokenizer().to_str(), encoding="utf-8")
    # Or transformers would make BERT's own tokeniser of it, which splits "..." in three.
    special = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special}), encoding="utf-8"
    )
    _write(folder / "model.safetensors", _weights(np.random.default_rng(seed)))
    return folder


def _weights(chance: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    shapes: dict[str, tuple[int, ...]] = {
        "bert.embeddings.word_embeddings.weight": (VOCABULARY, _HIDDEN),
        "bert.embeddings.position_embeddings.weight": (LONGEST, _HIDDEN),
        "bert.embeddings.token_type_embeddings.weight": (2, _HIDDEN),
        **_linear("bert.pooler.dense", _HIDDEN, _HIDDEN),
        **_linear("classifier", _HIDDEN, len(LABELS)),
    }
    norms = ["bert.embeddings.LayerNorm"]
    for number in range(_LAYERS):
        layer = f"bert.encoder.layer.{number}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= _linear(f"{layer}.attention.{part}", _HIDDEN, _HIDDEN)
        shapes |= _linear(f"{layer}.intermediate.dense", _HIDDEN, _INNER)
        shapes |= _linear(f"{layer}.output.dense", _INNER, _HIDDEN)
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    made = {name: chance.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    for name in norms:
        made[f"{name}.weight"] = np.ones(_HIDDEN, np.float32)
        made[f"{name}.bias"] = np.zeros(_HIDDEN, np.float32)
    return made


def _linear(name: str, taken: int, given: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (given, taken), f"{name}.bias": (given,)}


def _write(path: Path, tensors: dict[str, NDArray[np.float32]]) -> None:
    packed = {name: ("F32", list(each.shape), each.tobytes()) for name, each in tensors.items()}
    path.write_bytes(safetensors(packed))
