"""river's drift detectors on the streams that all methods see.

river runs in an environment of its own (``locks/peers.txt``), started here as a process. Its ADWIN
reads every text, in units of the reference's largest value, for its bound is for numbers from 0 to
1. Its Page-Hinkley reads the mean of each window, in standard errors from the reference's mean. Its
KSWIN takes a millisecond a number, seven seconds a window of this traffic, and is left out.
"""

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

NAMES: Final = {"adwin": "river ADWIN", "page-hinkley": "river PageHinkley"}
# Settings to choose from, ADWIN's significance (0.002 unless told otherwise) and Page-Hinkley's
# threshold (50 unless told otherwise).
GRIDS: Final[Mapping[str, tuple[float, ...]]] = {
    "adwin": (0.01, 0.002),
    "page-hinkley": (30.0, 35.0, 40.0, 45.0, 50.0, 60.0),
}
_WORKER = Path(__file__).with_name("river_worker.py")
_DEADLINE_SECONDS = 1200

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
