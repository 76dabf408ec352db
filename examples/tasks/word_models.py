"""Models that were written down and not trained: a ranker, a finder of entities, and others.

A word's row in a table is all that they know. They answer sensibly about the few words below, take
kilobytes, and need no torch: enough to see each task at work. Real ones are registered alike.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

LABELS: Final = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
PEOPLE: Final = {"jane": 1, "austen": 2, "emma": 1, "ada": 1, "lovelace": 2, "alan": 1, "turing": 2}
PLACES: Final = {"london": 3, "bath": 3, "new": 3, "york": 4, "paris": 3, "river": 3, "thames": 4}
OTHERS: Final = (
    *("a", "about", "and", "at", "born", "book", "bridge", "by", "city", "computer", "england"),
    *("first", "from", "he", "house", "in", "is", "it", "live", "lived", "machine", "method"),
    *("museum", "name", "novel", "of", "on", "programme", "she", "the", "to", "train", "was"),
    *("were", "what", "when", "where", "which", "who", "with", "worked", "wrote", "year"),
    *("books", "computers", "example", "this", "travel"),
)
# What a text may be about, and words that tell: the first one is the topic's name.
TOPICS: Final = (
    ("travel", "bridge", "city", "london", "museum", "paris", "river", "thames", "train", "york"),
    ("books", "austen", "book", "emma", "novel", "wrote"),
    ("computers", "computer", "lovelace", "machine", "programme", "turing"),
)
# What the writer has read; a tale ends with [SEP].
TALES: Final = (
    "ada lovelace wrote the first programme of a computer . [SEP]",
    "jane austen wrote the novel emma in bath . [SEP]",
    "alan turing was born in london . [SEP]",
    "the first programme of a computer was in a book . [SEP]",
)
SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
SIGNS: Final = (".", ",", "?", "!")
WORDS: Final = (*SPECIAL, *SIGNS, *PEOPLE, *PLACES, *OTHERS)
# Words that say nothing of what a text is about.
DULL: Final = {
    *SPECIAL,
    *SIGNS,
    *("a", "about", "and", "at", "by", "from", "he", "in", "is", "it", "of", "on", "she", "the"),
    *("to", "was", "were", "what", "when", "where", "which", "who", "with"),
}
_SURE = 5.0
_OPSET = 17


def write_ranker(folder: Path) -> Path:
    """A cross-encoder: the words that both texts have, less a little for each of the second."""
    table = np.eye(len(WORDS), dtype=np.float32)
    table[[WORDS.index(word) for word in DULL]] = 0
    constants = {
        **_shared_constants(table),
        "slope": np.array(3.0, np.float32),
        "less": np.array(-0.05, np.float32),
        "start": np.array(-2.0, np.float32),
    }
    nodes = [
        *_shared(),
        helper.make_node("ReduceSum", ["second", "tokens"], ["length"], keepdims=1),
        helper.make_node("Mul", ["count", "slope"], ["gain"]),
        helper.make_node("Mul", ["length", "less"], ["loss"]),
        helper.make_node("Add", ["gain", "loss"], ["sum"]),
        helper.make_node("Add", ["sum", "start"], ["logits"]),
    ]
    config = {
        "architectures": ["WordsForSequenceClassification"],
        "id2label": {"0": "relevant"},
        "sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"},
    }
    return _write(folder, nodes, constants, ("batch", 1), config)


def write_sorter(folder: Path) -> Path:
    """A model of entailment: a text entails what is said of the topic of one of its words."""
    table = np.zeros((len(WORDS), len(TOPICS)), np.float32)
    for topic, words in enumerate(TOPICS):
        table[[WORDS.index(word) for word in words], topic] = 1
    constants = {
        **_shared_constants(table),
        "slope": np.array([[-4.0, 0.0, 4.0]], np.float32),
        "start": np.array([[2.0, 0.0, -2.0]], np.float32),
    }
    nodes = [
        *_shared(),
        helper.make_node("Mul", ["count", "slope"], ["gain"]),
        helper.make_node("Add", ["gain", "start"], ["logits"]),
    ]
    config = {
        "architectures": ["WordsForSequenceClassification"],
        "id2label": {"0": "contradiction", "1": "neutral", "2": "entailment"},
    }
    return _write(folder, nodes, constants, ("batch", 3), config)


def write_reader(folder: Path) -> Path:
    """A model that answers who and where, by the names that it knows."""
    asks = np.zeros((len(WORDS), 2), np.float32)
    asks[WORDS.index("who"), 0] = asks[WORDS.index("where"), 1] = 1
    begins, ends = np.zeros_like(asks), np.zeros_like(asks)
    for kind, named in enumerate((PEOPLE, PLACES)):
        for word, label in named.items():
            later = LABELS[label].startswith("I-")
            begins[WORDS.index(word), kind] = _SURE - 2 if later else _SURE
            ends[WORDS.index(word), kind] = _SURE if later else _SURE - 1
    nothing = np.zeros((len(WORDS), 1), np.float32)
    nothing[WORDS.index("[CLS]")] = 2  # how the model says that there is no answer
    constants = {
        "asks": asks,
        "begins": begins,
        "ends": ends,
        "nothing": nothing,
        "tokens": np.array([1], np.int64),
        "last": np.array([2], np.int64),
    }
    nodes = [
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["mask", "types"], ["second"]),
        helper.make_node("Sub", ["mask", "second"], ["first"]),
        helper.make_node("Unsqueeze", ["first", "last"], ["question"]),
        helper.make_node("Gather", ["asks", "input_ids"], ["words-asking"]),
        helper.make_node("Mul", ["words-asking", "question"], ["asking"]),
        helper.make_node("ReduceSum", ["asking", "tokens"], ["asked"], keepdims=1),
        helper.make_node("Gather", ["nothing", "input_ids"], ["none"]),
        helper.make_node("Squeeze", ["none", "last"], ["no-answer"]),
    ]
    for table, output in (("begins", "start_logits"), ("ends", "end_logits")):
        nodes += [
            helper.make_node("Gather", [table, "input_ids"], [f"{table}-known"]),
            helper.make_node("Mul", [f"{table}-known", "asked"], [f"{table}-wanted"]),
            helper.make_node(
                "ReduceSum", [f"{table}-wanted", "last"], [f"{table}-sum"], keepdims=0
            ),
            helper.make_node("Add", [f"{table}-sum", "no-answer"], [output]),
        ]
    config = {"architectures": ["WordsForQuestionAnswering"]}
    shape: tuple[str | int, ...] = ("batch", "length")
    outputs = {"start_logits": shape, "end_logits": shape}
    return _write(folder, nodes, constants, outputs, config)


def write_finder(folder: Path) -> Path:
    """A model that labels tokens: each word by its row."""
    table = np.zeros((len(WORDS), len(LABELS)), np.float32)
    named = PEOPLE | PLACES
    for row, word in enumerate(WORDS):
        table[row, named.get(word, 0)] = _SURE
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["known"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["wide"]),
        helper.make_node("Mul", ["known", "wide"], ["logits"]),
    ]
    config = {
        "architectures": ["WordsForTokenClassification"],
        "id2label": {str(place): label for place, label in enumerate(LABELS)},
    }
    constants = {"table": table, "last": np.array([2], np.int64)}
    shape = ("batch", "length", len(LABELS))
    return _write(folder, nodes, constants, shape, config, types=False)


def write_expander(folder: Path) -> Path:
    """A masked language model: each word, and at half its weight the topic that it belongs to."""
    table = np.zeros((len(WORDS), len(WORDS)), np.float32)
    for row, word in enumerate(WORDS):
        if word not in DULL:
            table[row, row] = np.expm1(2.0)
    for words in TOPICS:
        for word in words[1:]:
            table[WORDS.index(word), WORDS.index(words[0])] = np.expm1(1.0)
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["logits"])]
    config = {"architectures": ["WordsForMaskedLM"]}
    shape = ("batch", "length", len(WORDS))
    return _write(folder, nodes, {"table": table}, shape, config, types=False)


def write_hybrid(folder: Path) -> Path:
    """Three kinds of vectors of one run: topics of the text and of each word, and the words."""
    table = np.full((len(WORDS), len(TOPICS)), 0.05, np.float32)
    for topic, words in enumerate(TOPICS):
        table[[WORDS.index(word) for word in words], topic] = 1
    table[[WORDS.index(word) for word in DULL]] = 0
    told = np.array([[word not in DULL] for word in WORDS], np.float32)
    constants = {
        "table": table,
        "told": told,
        "tokens": np.array([1], np.int64),
        "one": np.array([1], np.int64),
        "far": np.array([2**31], np.int64),
    }
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["vectors"]),
        helper.make_node("ReduceSum", ["vectors", "tokens"], ["dense_vecs"], keepdims=0),
        helper.make_node("Slice", ["vectors", "one", "far", "tokens"], ["colbert_vecs"]),
        helper.make_node("Gather", ["told", "input_ids"], ["sparse_vecs"]),
    ]
    outputs: dict[str, tuple[str | int, ...]] = {
        "dense_vecs": ("batch", len(TOPICS)),
        "colbert_vecs": ("batch", "further", len(TOPICS)),
        "sparse_vecs": ("batch", "length", 1),
    }
    config = {"architectures": ["WordsModel"]}
    return _write(folder, nodes, constants, outputs, config, types=False)


def write_writer(folder: Path) -> Path:
    """A decoder that writes the word which most often follows the last one in ``TALES``.

    It keeps each word, as decoders keep keys and values, and looks at the last one alone.
    """
    following = np.zeros((len(WORDS), len(WORDS)), np.float32)
    for tale in TALES:
        ids = [WORDS.index(word) for word in tale.split()]
        for word, then in pairwise(ids):
            following[word, then] += _SURE
    kept = {"past_key_values.0.key": "keys", "past_key_values.0.value": "values"}
    constants = {"following": following, "last": np.array(-1), "shape": np.array([0, 1, -1, 1])}
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["numbers", "shape"], ["new"]),
        *(helper.make_node("Concat", [name, "new"], [_present(name)], axis=2) for name in kept),
        helper.make_node("Gather", ["input_ids", "last"], ["word"], axis=1),
        helper.make_node("Gather", ["following", "word"], ["logits"]),
    ]
    taken = ("input_ids", "length"), ("attention_mask", "total"), ("position_ids", "length")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        folder.name,
        [
            *(info(name, TensorProto.INT64, ["batch", length]) for name, length in taken),
            *(info(name, TensorProto.FLOAT, ["batch", 1, "past", 1]) for name in kept),
        ],
        [
            info("logits", TensorProto.FLOAT, ["batch", len(WORDS)]),
            *(info(_present(name), TensorProto.FLOAT, ["batch", 1, "all", 1]) for name in kept),
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    config = {"architectures": ["WordsForCausalLM"], "eos_token_id": WORDS.index("[SEP]")}
    made = tokenizer()
    made.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    made.add_special_tokens(list(SPECIAL))
    return _save(folder, graph, config, made)


def _present(name: str) -> str:
    return name.replace("past_key_values", "present")


def write_embedder(folder: Path) -> Path:
    """A sentence-transformers folder with prompts; the first of 16 numbers tell the topic."""
    width = 16
    random = np.random.default_rng(1)
    table = random.normal(0, 0.25, (len(WORDS), width)).astype(np.float32)
    table[:, : len(TOPICS)] = 0
    for topic, words in enumerate(TOPICS):
        table[[WORDS.index(word) for word in words], topic] = 1
    table[[WORDS.index(word) for word in DULL]] = 0
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])]
    outputs: dict[str, tuple[str | int, ...]] = {"last_hidden_state": ("batch", "length", width)}
    config = {"architectures": ["WordsModel"], "hidden_size": width}
    _write(folder, nodes, {"table": table}, outputs, config, types=False)
    kind = "sentence_transformers.models"
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"{kind}.{name}"}
        for at, (path, name) in enumerate(
            (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
        )
    ]
    pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
    prompts = {"prompts": {words[0]: f"about {words[0]} " for words in TOPICS}}
    (folder / "1_Pooling").mkdir(exist_ok=True)
    for name, content in (
        ("modules.json", modules),
        ("1_Pooling/config.json", pooling),
        ("config_sentence_transformers.json", prompts),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    # int8 needs to know which values each number of a vector usually has: of texts like these.
    told = [word for word in WORDS if word not in DULL]
    texts = [" ".join(told[at : at + 1 + at % 4]) for at in range(len(told))]
    (folder / "evaluation_texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    return folder


def tokenizer() -> Tokenizer:
    """Whole words, in lower case, with BERT's special tokens."""
    made = Tokenizer(
        models.WordPiece({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return made


def _shared_constants(table: NDArray[np.float32]) -> dict[str, Any]:
    return {
        "table": table,
        "one": np.array(1.0, np.float32),
        "words": np.array([2], np.int64),
        "tokens": np.array([1], np.int64),
    }


def _shared() -> list[Any]:
    """How many columns of the table are in words of both texts, ``count`` ``[batch, 1]``."""
    return [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["mask", "types"], ["second"]),
        helper.make_node("Sub", ["mask", "second"], ["first"]),
        *_bag("first", "query"),
        *_bag("second", "document"),
        helper.make_node("Min", ["query", "document"], ["shared"]),
        helper.make_node("ReduceSum", ["shared", "tokens"], ["count"], keepdims=1),
    ]


def _bag(mask: str, name: str) -> list[Any]:
    """Whether one of the texts has each column of the table, ``[batch, columns]``."""
    return [
        helper.make_node("Unsqueeze", [mask, "words"], [f"{name}-mask"]),
        helper.make_node("Mul", ["rows", f"{name}-mask"], [f"{name}-rows"]),
        helper.make_node("ReduceSum", [f"{name}-rows", "tokens"], [f"{name}-counts"], keepdims=0),
        helper.make_node("Min", [f"{name}-counts", "one"], [name]),
    ]


def _write(
    folder: Path,
    nodes: list[Any],
    constants: dict[str, Any],
    outputs: tuple[str | int, ...] | dict[str, tuple[str | int, ...]],
    config: dict[str, Any],
    *,
    types: bool = True,
) -> Path:
    """The model as a folder in Hugging Face's layout; shapes are of logits, or by name."""
    shapes = outputs if isinstance(outputs, dict) else {"logits": outputs}
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
    graph = helper.make_graph(
        nodes,
        folder.name,
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
            for name in names
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
            for name, shape in shapes.items()
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return _save(folder, graph, config, tokenizer())


def _save(folder: Path, graph: onnx.GraphProto, config: dict[str, Any], tokens: Tokenizer) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(folder / "model.onnx"))
    tokens.save(str(folder / "tokenizer.json"))
    config = {**config, "max_position_embeddings": 128}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return folder
