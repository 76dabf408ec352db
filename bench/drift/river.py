"""river's drift detectors on the streams that all methods see.

river runs in an environment of its own (``locks/peers.txt``), started here as a process. Its ADWIN
reads every text, in units of the reference's largest value, for its bound is for numbers from 0 to
1. Its Page-Hinkley reads the mean of each window, in standard errors from the reference's mean. Its
KSWIN takes 0.2 ms a number, more than a second a window of this traffic, so that it reads the first
100 texts of each, as many as it remembers.
"""

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

NAMES: Final = {
    "adwin": "river ADWIN",
    "page-hinkley": "river PageHinkley",
    "kswin": "river KSWIN",
}
# As they decide unless told otherwise: ADWIN's significance, Page-Hinkley's threshold, KSWIN's
# significance of one of its tests, of which it makes one a number.
DEFAULTS: Final[Mapping[str, float]] = {"adwin": 0.002, "page-hinkley": 50.0, "kswin": 0.005}
# Settings to choose from.
GRIDS: Final[Mapping[str, tuple[float, ...]]] = {
    "adwin": (0.01, 0.002),
    "page-hinkley": (30.0, 35.0, 40.0, 45.0, 50.0, 60.0),
    "kswin": (0.005, 1e-4, 1e-5, 1e-6),
}
# Quiet windows that a detector has seen before it counts; KSWIN remembers a hundred numbers.
BEFORE: Final[Mapping[str, int]] = {"adwin": 60, "page-hinkley": 60, "kswin": 2}
_KSWIN_TEXTS = 100  # of a window
_WORKER = Path(__file__).with_name("river_worker.py")
_DEADLINE_SECONDS = 3600

Values = NDArray[np.float32]
Alarms = list[tuple[int, int]]  # stream, window


def alarms(
    peers: Path, detector: str, settings: Sequence[float], references: Values, values: Values
) -> dict[float, Alarms]:
    """Where the detector reported a drift in any statistic, at each setting.

    Args:
        peers: the interpreter that has river.
        detector: of ``GRIDS``.
        settings: to run, each from the start.
        references: ``[streams, texts, statistics]``.
        values: ``[streams, windows, texts, statistics]``.

    Raises:
        subprocess.CalledProcessError: it failed; its error is on our standard error.
        subprocess.TimeoutExpired: it took too long.
    """
    if detector == "adwin":
        most = np.maximum(references.max(axis=1), 1e-6)[:, None, None]
        numbers = np.minimum(values / most, 1.0)
    elif detector == "kswin":
        numbers = values[:, :, :_KSWIN_TEXTS]
    else:
        known = references.mean(axis=1)[:, None, None]
        spread = np.maximum(references.std(axis=1), 1e-3)[:, None, None]
        error = spread / np.sqrt(values.shape[2])
        numbers = (values.mean(axis=2, keepdims=True) - known) / error
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "streams.npy"
        np.save(file, numbers.astype(np.float32))
        told = subprocess.run(
            [
                str(peers),
                "-P",
                str(_WORKER),
                detector,
                str(file),
                *(repr(each) for each in settings),
            ],
            stdout=subprocess.PIPE,
            check=True,
            timeout=_DEADLINE_SECONDS,
        )
    found = json.loads(told.stdout)
    return {each: [(pair[0], pair[1]) for pair in found[repr(each)]] for each in settings}


def chosen(told: Mapping[float, int], most: float) -> float:
    """The setting with the most alarms, of those that keep to ``most``; else that with fewest."""
    kept = {setting: count for setting, count in told.items() if count <= most}
    return max(kept, key=kept.__getitem__) if kept else min(told, key=told.__getitem__)
