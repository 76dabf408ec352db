"""Random encoders of a few kilobytes, of every architecture that the packed engine takes.

It imports torch and transformers when a model is made: only tests marked ``export`` use it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

VOCABULARY = 60
LONGEST = 40
LABELS = 3

# Sizes under the names that each configuration has for them.
_BERT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": LONGEST,
}
_ROBERTA = {**_BERT, "max_position_embeddings": LONGEST + 2, "pad_token_id": 1}
SIZES: Mapping[str, Mapping[str, Any]] = {
    "albert": {**_BERT, "embedding_size": 16},
    "bert": _BERT,
    "camembert": _ROBERTA,
    "distilbert": {
        "dim": 32,
        "hidden_dim": 48,
        "n_layers": 2,
        "n_heads": 4,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": LONGEST,
    },
    "electra": {**_BERT, "embedding_size": 16},
    "eurobert": {**_BERT, "num_key_value_heads": 2, "pad_token_id": 0},
    "gemma3_text": {
        **_BERT,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "query_pre_attn_scalar": 8,
        "use_bidirectional_attention": True,
        "sliding_window": 12,
        "layer_types": ["sliding_attention", "full_attention"],
        "pad_token_id": 0,
    },
    "modernbert": {
        **_BERT,
        "local_attention": 10,
        "global_attn_every_n_layers": 2,
        "pad_token_id": 0,
        "classifier_pooling": "mean",
    },
    "nomic_bert": {**_BERT, "pad_token_id": 0},
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}


def write_encoder(folder: Path, kind: str, loader: str, seed: int = 0, **further: object) -> Path:
    """Saves a random model as transformers does.

    Args:
        folder: made if it is missing.
        kind: ``model_type`` of its configuration.
        loader: class of transformers, such as ``AutoModel``.
        seed: of its weights.
        further: of the configuration, in place of what is usual here.
    """
    import torch
    import transformers

    sizes = {**SIZES[kind], "num_labels": LABELS, **further}
    config = transformers.AutoConfig.for_model(kind, **sizes)
    torch.manual_seed(seed)
    model = getattr(transformers, loader).from_config(config)
    with torch.no_grad():  # far enough from 0 that a token's neighbours matter
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.float().save_pretrained(folder)
    return folder


def write_told(folder: Path, loader: str, **further: object) -> dict[str, object]:
    """Writes ``packed.json`` as the loader does, and returns what it says."""
    told: dict[str, object] = {
        "loader": loader,
        "type_ids": False,
        "modes": [],
        "dense": [],
        "normalise": False,
        "task": "text-embedding",
        "output": "embedding",
        "rank": 2,
        "dtype": "fp32",
        "threads": 1,
        **further,
    }
    (folder / "packed.json").write_text(json.dumps(told), encoding="utf-8")
    return told


def starts_of(lengths: Sequence[int]) -> list[int]:
    """Where rows of such lengths begin, and where the last one ends."""
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    return starts
