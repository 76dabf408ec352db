"""Pairs to scores and texts to entities by one ``model.onnx``: what BentoML computes with.

One thread, no spinning, at most ``ROWS`` rows a run, of like length together and padded to the
longest of them. It imports nothing of Headrace: it runs in the peers' own environments.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

ROWS = 16
PACKAGE = "PEERS_PACKAGE"  # names the folder of the package in the environment

Floats = NDArray[np.float32]
Pair = tuple[str, str]


class Computer:
    """Tokeniser and session of one process."""

    def __init__(self, package: Path, *, rows: int = ROWS) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        manifest = json.loads((package / "manifest.json").read_text(encoding="utf-8"))
        self._labels: list[str] = manifest["labels"]
        self._tokenizer = Tokenizer.from_file(str(package / "tokenizer.json"))
        self._tokenizer.enable_truncation(manifest["tokenizer"]["max_tokens"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session: Any = onnxruntime.InferenceSession(
            str(package / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._names = [each.name for each in self._session.get_inputs()]
        self._rows = rows

    @classmethod
    def from_environment(cls) -> "Computer":
        """The one of the package that the environment names."""
        return cls(Path(os.environ[PACKAGE]))

    def rank(self, pairs: Sequence[Pair]) -> list[float]:
        """The probability of each pair, in their order."""
        logits = np.array([each[0] for each in self._logits(self._encoded(list(pairs)))])
        scores: list[float] = (1 / (1 + np.exp(-logits))).tolist()
        return scores

    def entities(self, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
        """The entities of each text, as the pipeline's strategy ``simple`` has them."""
        encodings = self._encoded(list(texts))
        return [
            self._entities(text, encoding, logits)
            for text, encoding, logits in zip(
                texts, encodings, self._logits(encodings), strict=True
            )
        ]

    def _encoded(self, rows: Sequence[Any]) -> list[Encoding]:
        encodings: list[Encoding] = self._tokenizer.encode_batch(rows)
        return encodings

    def _entities(self, text: str, encoding: Encoding, logits: Floats) -> list[dict[str, Any]]:
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        scores = shifted / shifted.sum(axis=1, keepdims=True)
        best, highest = scores.argmax(axis=1).tolist(), scores.max(axis=1).tolist()
        tokens = [
            (self._labels[best[at]], highest[at], encoding.offsets[at])
            for at in range(len(encoding.ids))
            if not encoding.special_tokens_mask[at]
        ]
        runs: list[tuple[str, list[tuple[str, float, tuple[int, int]]]]] = []
        for token in tokens:
            label = token[0].removeprefix("B-").removeprefix("I-")
            if runs and runs[-1][0] == label and not token[0].startswith("B-"):
                runs[-1][1].append(token)
            else:
                runs.append((label, [token]))
        found = []
        for label, run in runs:
            if label != "O":
                start, end = run[0][2][0], run[-1][2][1]
                score = sum(token[1] for token in run) / len(run)
                found.append({"entity_group": label, "score": score, "word": text[start:end],
                              "start": start, "end": end})  # fmt: skip
        return found

    def _logits(self, encodings: Sequence[Encoding]) -> list[Floats]:
        """Of each row, without those of padding."""
        found: list[Floats] = [np.empty(0, np.float32)] * len(encodings)
        order = sorted(range(len(encodings)), key=lambda at: len(encodings[at].ids))
        for first in range(0, len(order), self._rows):
            part = order[first : first + self._rows]
            logits = self._run([encodings[at] for at in part])
            for at, row in zip(part, logits, strict=True):
                found[at] = row[: len(encodings[at].ids)] if row.ndim == 2 else row
        return found

    def _run(self, encodings: Sequence[Encoding]) -> Floats:
        shape = (len(encodings), max(len(each.ids) for each in encodings))
        feed = {name: np.zeros(shape, dtype=np.int64) for name in self._names}
        for row, each in enumerate(encodings):
            feed["input_ids"][row, : len(each.ids)] = each.ids
            feed["attention_mask"][row, : len(each.ids)] = 1
            if "token_type_ids" in feed:
                feed["token_type_ids"][row, : len(each.ids)] = each.type_ids
        logits: Floats = self._session.run(None, feed)[0]
        return logits
