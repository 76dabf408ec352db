"""Random GLiNER checkpoints of a few kilobytes, made by the package's own classes.

It needs torch, transformers and gliner: only tests marked ``export`` use it.
"""

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

LABELS = ("person", "city", "e-mail address", "in")
TEXT = "Maria works at Berlin-Mitte, in the city; mail m@x.de"
_PIECES = ("the", "in", "Maria", "Berlin", "person", "city", "email", "works", "at", "address")
_SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
_ENCODER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 512,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "pad_token_id": 0,
}
ENCODERS: dict[str, dict[str, Any]] = {
    "deberta-v2": {
        **_ENCODER,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
        "position_buckets": 16,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
    },
    "bert": _ENCODER,
}


def words() -> Tokenizer:
    """Pieces of words with a mark of their beginning, as DeBERTa-v3 has them.

    A zero-width space has no token.
    """
    letters = string.ascii_letters + string.digits + string.punctuation
    pieces = [(name, 0.0) for name in _SPECIAL] + [("▁", -2.0)]
    pieces += [(letter, -4.0) for letter in letters] + [(f"▁{word}", -5.0) for word in _PIECES]
    made = Tokenizer(models.Unigram(pieces, unk_id=3))
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("\u200b", "")])
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    return made


def write_gliner(folder: Path, kind: str = "deberta-v2", *, seed: int = 0, **config: Any) -> Path:
    """Saves a model as ``save_pretrained`` of the package does.

    Args:
        folder: made if it is missing.
        kind: of its encoder.
        seed: of its weights.
        config: fields of ``gliner_config.json``, in place of what is usual here.
    """
    import torch
    import transformers
    from gliner import GLiNER

    base = folder.parent / f"{folder.name}-base"
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words(), pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        unk_token="[UNK]", model_max_length=512,
    )  # fmt: skip
    tokenizer.save_pretrained(base)
    encoder = transformers.AutoConfig.for_model(kind, vocab_size=len(tokenizer), **ENCODERS[kind])
    encoder.save_pretrained(base)
    model = GLiNER.from_config(
        {
            "model_name": str(base), "hidden_size": 24, "max_width": 5, "max_len": 60,
            "max_types": 7, "encoder_config": encoder.to_dict(), **config,
        },
        backbone_from_pretrained=False,
    )  # fmt: skip
    torch.manual_seed(seed)
    with torch.no_grad():  # so that some spans fit a label and others do not
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape)
            wide = "attention" in name or "embeddings" in name
            parameter.copy_(drawn * (1.0 if wide else 0.1 if "bias" in name else 0.3))
    model.save_pretrained(folder, safe_serialization=True)
    return folder


def open_gliner(folder: Path) -> Any:
    """The package's own model."""
    from gliner import GLiNER

    return GLiNER.from_pretrained(str(folder), local_files_only=True)


def found_by(model: Any, texts: Sequence[str], **options: Any) -> list[list[tuple[Any, ...]]]:
    """Start, end, label, text and score of what the package finds in each text."""
    return [
        [
            (each["start"], each["end"], each["label"], each["text"], each["score"])
            for each in model.predict_entities(text, list(LABELS), **options)
        ]
        for text in texts
    ]
