"""Runs river's drift detectors; started by ``rivals``, by the interpreter of river's environment.

    python river_worker.py adwin STREAMS.npy 0.002 0.0001

``STREAMS.npy`` is float32 ``[streams, windows, values a window, statistics]``. A detector watches
one statistic of one stream, value by value. Out comes JSON: for each parameter the pairs of
(stream, window) in which any detector of the stream reported a drift. It imports nothing of
Headrace's, which is not installed there.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from river import drift  # type: ignore[import-not-found,unused-ignore]  # not in our environment

# What is tuned: ADWIN's significance, Page-Hinkley's threshold, KSWIN's significance of one test.
DETECTORS: dict[str, Callable[[float], Any]] = {
    "adwin": lambda delta: drift.ADWIN(delta=delta),
    "page-hinkley": lambda threshold: drift.PageHinkley(threshold=threshold),
    "kswin": lambda alpha: drift.KSWIN(alpha=alpha, seed=1),
}


def main() -> None:
    """Reads the command line, runs each parameter, prints."""
    name, file, *parameters = sys.argv[1:]
    streams = np.load(file, mmap_mode="r")
    found = {text: _detections(DETECTORS[name], float(text), streams) for text in parameters}
    json.dump(found, sys.stdout)


def _detections(make: Callable[[float], Any], parameter: float, streams: Any) -> list[list[int]]:  # noqa: ANN401 - mapped
    found = set()
    for number, stream in enumerate(streams):
        _, values, statistics = stream.shape
        for at in range(statistics):
            detector = make(parameter)
            for index, value in enumerate(stream[:, :, at].reshape(-1).tolist()):
                detector.update(value)
                if detector.drift_detected:
                    found.add((number, index // values))
    return sorted([list(pair) for pair in found])


if __name__ == "__main__":
    main()
