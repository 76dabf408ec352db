"""Heads on MiniLM's token vectors, fitted by least squares: what tasks without a trained model get.

No trained cross-encoder, tagger or reader is among the packages that can be installed here. The
heads know lists of words; what they answer means little, but the network below them is real.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from bench import corpus

LABELS = {
    "DEVICE": "player phone camera ipod zen nomad dvd computer unit product device pc",
    "PART": "battery screen button software remote scroll card memory headphones display usb",
    "MEDIA": "music songs song film movie picture pictures album video cd cds photos files",
    "JUDGEMENT": "good great excellent bad easy hard difficult nice best better fine cool",
}
_MOST_CHARACTERS = 900  # of a text: no pair is cut, and no text read in windows
_ROWS = 16
_SURE = 5.0
_RIDGE = 3.0
_QUERY_WORDS = 8

Floats = NDArray[np.float32]
Pair = tuple[str, str]


def texts() -> list[str]:
    """The example's texts without the longest."""
    return [text for text in corpus.replay() if len(text) <= _MOST_CHARACTERS]


def query_of(text: str) -> str:
    """The beginning of a text."""
    return " ".join(text.split()[:_QUERY_WORDS])


def pairs(count: int) -> list[Pair]:
    """Queries with documents: their own text for each third, another one for the others."""
    known = texts()
    return [
        (query_of(known[at]), known[at if at % 3 == 0 else (at * 7 + 1) % len(known)])
        for at in range(count)
    ]


class States:
    """A graph that ends in token vectors, and its tokeniser.

    Args:
        folder: ``model.onnx`` and ``tokenizer.json``.
        most_tokens: of a row; longer texts are cut.
        half: the vectors are float16.
    """

    def __init__(self, folder: Path, most_tokens: int, *, half: bool = False) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(most_tokens)
        self._tokenizer.no_padding()
        graph = onnx.load(str(folder / "model.onnx"))
        if half:
            graph.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
        self._session = onnxruntime.InferenceSession(
            graph.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        self._names = [each.name for each in self._session.get_inputs()]

    def of(self, rows: Sequence[str] | Sequence[Pair]) -> tuple[list[Encoding], list[Floats]]:
        """The tokens of each text or pair, and a vector for each of them."""
        encodings: list[Encoding] = self._tokenizer.encode_batch(list(rows))
        found = [np.empty((0, 0), np.float32)] * len(encodings)
        order = sorted(range(len(encodings)), key=lambda at: len(encodings[at].ids))
        for first in range(0, len(order), _ROWS):
            part = order[first : first + _ROWS]
            shape = (len(part), len(encodings[part[-1]].ids))
            feed = {name: np.zeros(shape, np.int64) for name in self._names}
            for row, at in enumerate(part):
                size = len(encodings[at].ids)
                feed["input_ids"][row, :size] = encodings[at].ids
                feed["attention_mask"][row, :size] = 1
                if "token_type_ids" in feed:
                    feed["token_type_ids"][row, :size] = encodings[at].type_ids
            (states,) = self._session.run(None, feed)
            for row, at in enumerate(part):
                found[at] = states[row, : len(encodings[at].ids)].astype(np.float32)
        return encodings, found


def fitted(features: Floats, wanted: Floats) -> Floats:
    """Weights and, in the last row, a bias, float32 ``[width + 1, outputs]``."""
    wide = np.hstack([features, np.ones((len(features), 1), np.float32)]).astype(np.float64)
    square = wide.T @ wide + _RIDGE * np.eye(wide.shape[1])
    solved: Floats = np.linalg.solve(square, wide.T @ wanted).astype(np.float32)
    return solved


def wanted_labels(rows: Sequence[str], encodings: Sequence[Encoding]) -> Floats:
    """Of each token, for each label and none before them, how sure it is of it."""
    lists = [set(each.split()) for each in LABELS.values()]
    found = []
    for text, encoding in zip(rows, encodings, strict=True):
        for start, end in encoding.offsets:
            word = re.sub(r"\W", "", text[start:end].lower())
            label = next((at + 1 for at, each in enumerate(lists) if word in each), 0)
            found.append([_SURE if label == at else -_SURE for at in range(len(LABELS) + 1)])
    return np.array(found, np.float32)


def wanted_answers(rows: Sequence[Pair], encodings: Sequence[Encoding]) -> Floats:
    """Of each token whether an answer starts and ends there: a device in the second text."""
    devices = set(LABELS["DEVICE"].split())
    found = []
    for (_, context), encoding in zip(rows, encodings, strict=True):
        for kind, (start, end) in zip(encoding.type_ids, encoding.offsets, strict=True):
            sure = _SURE if kind and context[start:end].lower() in devices else -_SURE
            found.append([sure, sure])
    return np.array(found, np.float32)


def shared_words(rows: Sequence[Pair]) -> Floats:
    """How many words of a query are in its document, as a logit ``[rows, 1]``."""
    return np.array(
        [[len({*query.split()} & {*document.split()}) - 4] for query, document in rows], np.float32
    )


def entailed(rows: Sequence[Pair]) -> Floats:
    """Contradiction, neutral, entailment: by what a pair shares, and by who says not."""
    shared = shared_words(rows)[:, 0] + 4
    odd = np.array(
        [any(word in ("not", "no", "don't") for word in document.split()) for _, document in rows]
    )
    best = np.where(shared < 3, 1, np.where(odd, 0, 2))
    return np.where(np.arange(3) == best[:, np.newaxis], _SURE, -_SURE).astype(np.float32)


def sizes(states: Sequence[Floats]) -> list[tuple[int, int]]:
    """Where each text's tokens begin and end in all of them."""
    ends = np.cumsum([0, *map(len, states)]).tolist()
    return list(pairwise(ends))
