"""The two Python models of the Triton ensemble: a tokeniser, then the engine.

After Triton's pages "Ensemble Models", "Batchers" (dynamic batching in both, no delay, as its
recommended process begins) and "Ragged Batching": rows of different lengths come to the engine as
they are, and it pads what it runs together.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from bench.peers.servers.embedder import PACKAGE, Embedder, Rows

ABSENT = -1  # fills a request's shorter rows on their way between the models


class TokenizerModel:
    """TEXT ``[n, 1]`` to IDS ``[n, longest]``."""

    def initialize(self, args: dict[str, str]) -> None:
        """See Triton's Python backend."""
        del args
        self._rows = Rows(Path(os.environ[PACKAGE]))

    def execute(self, requests: list[Any]) -> list[Any]:
        """Tokenises all requests in one call."""
        texts = [
            [text.decode() for text in _array(request, "TEXT").reshape(-1)] for request in requests
        ]
        rows = iter(self._rows.ids([text for each in texts for text in each]))
        return [_response("IDS", _padded([next(rows) for _ in each])) for each in texts]


class EngineModel:
    """IDS to VECTORS ``[n, width]``."""

    def initialize(self, args: dict[str, str]) -> None:
        """See Triton's Python backend."""
        gpu = args["model_instance_kind"] == "GPU"
        self._embedder = Embedder(Path(os.environ[PACKAGE]), gpu=gpu)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Runs the rows of all requests together."""
        rows: list[list[int]] = []
        ends = []
        for request in requests:
            rows += [row[row != ABSENT].tolist() for row in _array(request, "IDS")]
            ends.append(len(rows))
        vectors = self._embedder.embed_rows(rows)
        return [_response("VECTORS", part) for part in np.split(vectors, ends[:-1])]


def _array(request: Any, name: str) -> Any:  # noqa: ANN401 - Triton's have no types
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()


def _response(name: str, array: Any) -> Any:  # noqa: ANN401
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array)])


def _padded(rows: list[list[int]]) -> Any:  # noqa: ANN401
    array = np.full((len(rows), max(map(len, rows))), ABSENT, dtype=np.int64)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array
