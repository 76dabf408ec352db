"""Texts to vectors by the padded ``model.onnx``: what the ensemble computes with.

One thread, no spinning, and texts of like length together, as anybody would who knows ONNX Runtime:
a run takes at most ``ROWS`` rows, padded to its longest. More rows a run gain nothing on a CPU; on
a GPU they are as many as were gathered.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

ROWS = 16
MOST_ROWS = 64  # of what may be gathered for one call
PACKAGE = "PEERS_PACKAGE"  # names the folder of the package in the environment

Vectors = NDArray[np.float32]


class Rows:
    """The package's tokeniser, without padding and cut to the model's limit."""

    def __init__(self, package: Path) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        manifest = json.loads((package / "manifest.json").read_text(encoding="utf-8"))
        self.width = int(manifest["dimension"])
        self._tokenizer = Tokenizer.from_file(str(package / "tokenizer.json"))
        self._tokenizer.enable_truncation(manifest["tokenizer"]["max_tokens"])

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, special ones included."""
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]


class Embedder:
    """Tokeniser and session of one process."""

    def __init__(self, package: Path, *, gpu: bool = False) -> None:
        self._rows = Rows(package)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = ["CPUExecutionProvider"]
        if gpu:
            onnxruntime.preload_dlls()
            providers.insert(0, "CUDAExecutionProvider")
        self._session: Any = onnxruntime.InferenceSession(
            str(package / "model.onnx"), options, providers=providers
        )
        self.providers: list[str] = self._session.get_providers()
        if self.providers[0] != providers[0]:  # ONNX Runtime goes on without it
            raise RuntimeError(f"ONNX Runtime can't use the GPU: it has {self.providers}")
        self._most = MOST_ROWS if gpu else ROWS
        self._names = [each.name for each in self._session.get_inputs()]

    def embed_rows(self, rows: Sequence[Sequence[int]]) -> Vectors:
        """``[rows, width]`` of rows of token ids, in their order."""
        vectors = np.empty((len(rows), self._rows.width), dtype=np.float32)
        order = sorted(range(len(rows)), key=lambda index: len(rows[index]))
        for start in range(0, len(order), self._most):
            part = order[start : start + self._most]
            vectors[part] = self._run([rows[index] for index in part])
        return vectors

    def _run(self, rows: Sequence[Sequence[int]]) -> Vectors:
        shape = (len(rows), max(map(len, rows)))
        feed = {name: np.zeros(shape, dtype=np.int64) for name in self._names}
        for index, row in enumerate(rows):
            feed["input_ids"][index, : len(row)] = row
            feed["attention_mask"][index, : len(row)] = 1
        vectors: Vectors = self._session.run(None, feed)[0]
        return vectors
