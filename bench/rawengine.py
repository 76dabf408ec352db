"""The engine with nothing around it: ONNX Runtime on one thread, over the texts of the load.

Run by the suite ``endtoend`` as ``python -P -m bench.rawengine PACKAGE SECONDS [SIZE ...]``, pinned
to the core that Triton's engine has. It prints one JSON object: sequences a second, in batches of
texts sorted by length, for each batch size, of these or of ``SIZES``. The best of these is what the
whole path is held to.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from bench import corpus
from contracts.manifest import MANIFEST, MODEL_ONNX, TOKENIZER, Manifest
from contracts.tasks import ATTENTION_MASK, INPUT_IDS
from preprocess.encoder import TextEncoder

SIZES = (1, 4, 8, 16, 32, 64)


def main() -> None:
    """Measures each batch size for its share of the time."""
    package, seconds = Path(sys.argv[1]), float(sys.argv[2])
    manifest = Manifest.model_validate_json((package / MANIFEST).read_bytes())
    encoder = TextEncoder((package / TOKENIZER).read_bytes(), manifest.tokenizer)
    rows = encoder.encode(corpus.replay()).ids
    names = [spec.name for spec in manifest.inputs]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        package / MODEL_ONNX, options, providers=["CPUExecutionProvider"]
    )
    rates = {}
    sizes = [int(word) for word in sys.argv[3:]] or SIZES
    for size in sizes:
        batches = [feeds(part, names) for part in sorted_parts(rows, size)]
        rates[str(size)] = _rate(session, batches, size, seconds / len(sizes))
    print(json.dumps({"precision": manifest.precision.value, "rates": rates}))


def sorted_parts(rows: Sequence[list[int]], size: int) -> list[list[list[int]]]:
    """Whole batches of rows of like length, in an order that mixes lengths."""
    ordered = sorted(rows, key=len)
    parts = [list(ordered[at : at + size]) for at in range(0, len(rows) - size + 1, size)]
    order = np.random.default_rng(7).permutation(len(parts))
    return [parts[index] for index in order]


def feeds(part: Sequence[list[int]], names: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """A batch padded to its longest row."""
    shape = (len(part), max(map(len, part)))
    arrays = {name: np.zeros(shape, dtype=np.int64) for name in names}
    for index, row in enumerate(part):
        arrays[INPUT_IDS][index, : len(row)] = row
        arrays[ATTENTION_MASK][index, : len(row)] = 1
    return arrays


def _rate(session: Any, batches: Sequence[Any], size: int, seconds: float) -> float:  # noqa: ANN401
    for batch in batches[:10]:
        session.run(None, batch)
    done, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        session.run(None, batches[done % len(batches)])
        done += 1
    return done * size / passed


if __name__ == "__main__":
    main()
