"""What each version answers to each text, computed beside the stack.

By ONNX Runtime on the graph that was registered, one text at a time.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer
from variants import SENTIMENT, make

from chaos.answers import Expected


class Oracle:
    """Expected answers of variants of the example's classifier."""

    def __init__(self, texts: Sequence[str], max_tokens: int) -> None:
        self._texts = texts
        self._tokenizer = Tokenizer.from_file(str(SENTIMENT / "model" / "tokenizer.json"))
        self._tokenizer.enable_truncation(max_tokens)
        self._tokenizer.no_padding()
        config = json.loads((SENTIMENT / "model" / "config.json").read_text(encoding="utf-8"))
        self._labels = [name for _, name in sorted(_by_number(config["id2label"]).items())]
        self._known: dict[str, dict[str, Expected | None]] = {}

    def of(self, variant: str) -> Mapping[str, Expected | None]:
        """Text -> what the variant answers; computed once."""
        if variant not in self._known:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            options.log_severity_level = 4  # the variant ``failing`` is to fail
            session = onnxruntime.InferenceSession(
                make(variant).SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            self._known[variant] = {text: self._answer(session, text) for text in self._texts}
        return self._known[variant]

    def _answer(self, session: Any, text: str) -> Expected | None:
        encoding = self._tokenizer.encode(text)
        feeds = {
            "input_ids": np.array([encoding.ids], np.int64),
            "attention_mask": np.array([encoding.attention_mask], np.int64),
        }
        try:
            (logits,) = session.run(None, feeds)
        except Exception:  # noqa: BLE001 - ONNX Runtime's errors have no common class
            return None
        scores = np.exp(logits[0] - logits[0].max())
        scores /= scores.sum()
        best = int(scores.argmax())
        return Expected(self._labels[best], float(scores[best]))


def texts(count: int) -> list[tuple[str, str | None]]:
    """Real texts of many lengths with their true label, where people gave one."""
    folder = SENTIMENT / "texts"
    rows = [json.loads(line) for line in _lines(folder / "held_out.jsonl")]
    labelled: list[tuple[str, str | None]] = [(row["text"], row["label"]) for row in rows]
    plain: list[tuple[str, str | None]] = [(line, None) for line in _lines(folder / "replay.txt")]
    half = count // 2
    step = max(1, len(labelled) // half), max(1, len(plain) // half)
    return [*labelled[:: step[0]][:half], *plain[:: step[1]][:half]]


def _by_number(labels: Mapping[str, str]) -> dict[int, str]:
    return {int(number): name for number, name in labels.items()}


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
