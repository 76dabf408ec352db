"""Two embedding models of one corpus: a text is the mean of its words' vectors.

The second model weighs rare words more, and finds more. Both give 64 numbers, so that nothing
fails if their vectors are mixed in one index.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WIDTH = 64
MOST_WORDS = 8000
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_SPLIT = pre_tokenizers.Whitespace()


def write_model(folder: Path, texts: Sequence[str], *, version: int) -> Path:
    """Writes tokenizer.json, config.json and the graph of version 1 or 2."""
    words, table = table_of(texts, version=version)
    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, "[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = _SPLIT
    ends = [(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, ends)
    made.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 128}))
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        "words",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [None] * 3)],
        [numpy_helper.from_array(table, "table")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        folder / "model.onnx",
    )
    return folder


def table_of(texts: Sequence[str], *, version: int) -> tuple[tuple[str, ...], NDArray[np.float32]]:
    """The words that version 1 or 2 knows, and a vector of each, ``[words, WIDTH]``."""
    found = Counter(word for text in texts for word in {*words_of(text)})
    words = (*SPECIAL, *sorted(found, key=lambda word: (-found[word], word))[:MOST_WORDS])
    table = np.random.default_rng(version).normal(size=(len(words), WIDTH))
    table[: len(SPECIAL)] = 0
    if version == 2:
        rare = [math.log(len(texts) / found[word]) if word in found else 0.0 for word in words]
        table *= np.array(rare)[:, None]
    return words, table.astype(np.float32)


def words_of(text: str) -> list[str]:
    """The words of a text, as the models take it apart."""
    return [word for word, _ in _SPLIT.pre_tokenize_str(text.lower())]
