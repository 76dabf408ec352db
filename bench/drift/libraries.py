"""The same shifts by drift libraries themselves: Evidently, Alibi Detect, NannyML and river.

Each runs in an environment of its own, made of its own lock, and sees the very windows that our
test and each other see. Each is told as it decides by default, and with the one threshold that it
has tuned to one false alarm in 1,000 quiet windows. All but ours are tuned on the windows whose
false alarms are counted. An alarm that goes on from window to window is counted once, of all alike.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.drift import river
from bench.drift.evidently import Values
from bench.drift.false_alarms import REFERENCE, STEADY, watched
from bench.drift.monitored import Endpoint, beginnings, significant
from bench.drift.population import MOVIES, STATISTICS
from bench.drift.rivals import behind
from bench.drift.shifts import SHIFTS, TEXTS, first
from bench.drift.traffic import Scenario, Stock, mixed, steady
from bench.findings import Finding, needed, rate
from measures.correlation import Floats


@dataclass(frozen=True)
class Method:
    """A way in which a library decides.

    Attributes:
        library: whose environment it runs in.
        shown: ``{}`` stands for its version.
        statistics: so many must show drift.
        reference: texts.
    """

    library: str
    shown: str
    statistics: int = 1
    reference: int = REFERENCE


LONG: Final = 30 * TEXTS  # a reference
METHODS: Final = (
    Method("evidently", "Evidently {}, any statistic"),
    Method("evidently", "Evidently {}, half of them", statistics=-(-len(STATISTICS) // 2)),
    Method("alibi-detect", "Alibi Detect {}"),
    Method("nannyml", "NannyML {}, 5 chunks"),
    Method("nannyml", "NannyML {}, 30 chunks", reference=LONG),
)
TUNED: Final = 1000  # windows to a false alarm
QUIET, WITHIN = 300, 20  # windows
OURS: Final = "Headrace, against the reference"
FALSE: Final = "false alarms a 1,000 quiet windows"
_WORKER = Path(__file__).with_name("libraries_worker.py")
_DEADLINE_SECONDS = 3600
# Else NannyML and Evidently tell their makers that they were used.
_SILENT: Final = {"NML_DISABLE_USAGE_LOGGING": "1", "DO_NOT_TRACK": "1"}


@dataclass(frozen=True)
class Told:
    """What a library said.

    Attributes:
        version: of the library.
        threshold: above which it tells of drift, unless told otherwise.
        scores: ``[streams, windows, statistics]``.
    """

    version: str
    threshold: float
    scores: Floats


def study(stock: Stock, streams: int, environments: Path) -> list[Finding]:
    """False alarms and windows until detection, of ours and of every library that is installed.

    Args:
        stock: what is drawn from.
        streams: of each scenario.
        environments: folder with an environment ``peers-NAME`` of each library, ``peers`` of river.
    """
    rng = np.random.default_rng(23)
    movies = stock.shares({MOVIES: 1.0})
    known, counts = zip(
        *(stock.draw(rng, steady(movies, REFERENCE, 1)) for _ in range(streams)), strict=True
    )
    references = np.concatenate(known)
    endpoint = Endpoint.begin(np.concatenate(counts), TEXTS)
    endpoint.calibrated(watched(stock, rng, endpoint, STEADY, TEXTS, sized=False))
    scenarios = {FALSE: steady(movies, TEXTS, QUIET)}
    for name, (domain, part) in SHIFTS.items():
        others = stock.shares({domain: 1.0})
        scenarios[name] = mixed(steady(movies, TEXTS, WITHIN), others, part)
    drawn = {name: _drawn(stock, rng, each, streams) for name, each in scenarios.items()}

    rows = []
    limits = endpoint.thresholds(TUNED)
    for name, (_, counted) in drawn.items():
        told = significant(endpoint.copy().walk(counted, sized=False), limits)
        rows.append(
            _false(OURS, int(beginnings(told).sum()), told.size)
            if name == FALSE
            else needed(name, OURS, first(told), unit="windows")
        )
    known_of = {
        REFERENCE: references,
        LONG: np.concatenate([stock.draw(rng, steady(movies, LONG, 1))[0] for _ in range(streams)]),
    }
    windows = {name: values for name, (values, _) in drawn.items()}
    rows += _of_libraries(environments, known_of, windows)
    river_python = environments / "peers" / "bin" / "python"
    if river_python.exists():
        for detector in river.GRIDS:
            rows += _of_river(river_python, detector, references, windows)
    return rows


def _of_libraries(
    environments: Path, references: Mapping[int, Values], drawn: Mapping[str, Values]
) -> list[Finding]:
    """What every library that is installed found; references by their number of texts."""
    values = np.concatenate(list(drawn.values()), axis=1)
    ends = np.cumsum([each.shape[1] for each in drawn.values()])
    told_of: dict[tuple[str, int], Told] = {}
    rows = []
    for method in METHODS:
        python = environments / f"peers-{method.library}" / "bin" / "python"
        if not python.exists():
            continue
        key = method.library, method.reference
        if key not in told_of:
            told_of[key] = scores(python, method.library, references[method.reference], values)
        told = told_of[key]
        worst = np.sort(told.scores, axis=2)[:, :, -method.statistics]
        parts = dict(zip(drawn, np.split(worst, ends[:-1], axis=1), strict=True))
        rows += rows_of(method.shown.format(told.version), parts, told.threshold)
    return rows


def scores(python: Path, library: str, references: Values, windows: Values) -> Told:
    """What a library says of each window.

    Args:
        python: the interpreter of its environment.
        library: of ``METHODS``.
        references: ``[streams, texts, statistics]``.
        windows: ``[streams, windows, texts, statistics]``.

    Raises:
        subprocess.CalledProcessError: it failed; its error is on our standard error.
        subprocess.TimeoutExpired: it took too long.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "streams.npz"
        np.savez(file, references=references, windows=windows)
        done = subprocess.run(
            [str(python), "-P", str(_WORKER), library, str(file)],
            stdout=subprocess.PIPE,
            env={**os.environ, **_SILENT},
            check=True,
            timeout=_DEADLINE_SECONDS,
        )
    last = json.loads(done.stdout.decode().strip().splitlines()[-1])  # libraries print, too
    return Told(last["version"], last["threshold"], np.array(last["scores"]))


def rows_of(name: str, parts: dict[str, Floats], threshold: float) -> list[Finding]:
    """As the library decides by itself, and with the threshold that keeps the rate."""
    quiet = parts[FALSE]
    tuned = float(np.sort(quiet, axis=None)[-max(1, quiet.size // TUNED)])
    rows = []
    for method, limit in ((name, threshold), (f"{name}, tuned", tuned)):
        rows.append(_false(method, int(beginnings(quiet >= limit).sum()), quiet.size))
        rows += [
            needed(shift, method, first(told >= limit), unit="windows")
            for shift, told in parts.items()
            if shift != FALSE
        ]
    return rows


def _of_river(
    python: Path, detector: str, references: Values, drawn: Mapping[str, Values]
) -> list[Finding]:
    """A detector of river's, which has seen the last of the quiet windows before each shift."""
    quiet, before = drawn[FALSE], river.BEFORE[detector]
    streams, windows = len(quiet), quiet.shape[1] - before
    told = river.alarms(python, detector, river.GRIDS[detector], references, quiet)
    began = {
        setting: int(beginnings(_marked(found, quiet.shape[:2])[:, before:]).sum())
        for setting, found in told.items()
    }
    tuned = river.chosen(began, streams * windows / TUNED)
    rows = []
    for setting, note in ((river.DEFAULTS[detector], ""), (tuned, ", tuned")):
        method = f"{river.NAMES[detector]} {setting:g}{note}"
        rows.append(_false(method, began[setting], streams * windows))
        for name, values in drawn.items():
            if name != FALSE:
                both = np.concatenate([quiet[:, -before:], values], axis=1)
                found = river.alarms(python, detector, [setting], references, both)[setting]
                rows.append(needed(name, method, behind(found, streams, before), unit="windows"))
    return rows


def _marked(alarms: river.Alarms, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """``[streams, windows]``: whether there was an alarm."""
    found = np.zeros(shape, dtype=np.bool_)
    for stream, window in alarms:
        found[stream, window] = True
    return found


def _drawn(
    stock: Stock, rng: np.random.Generator, scenario: Scenario, streams: int
) -> tuple[Values, Floats]:
    """``[streams, windows, texts, statistics]`` and the counts of the same texts."""
    parts = [stock.draw(rng, scenario) for _ in range(streams)]
    return np.stack([np.stack(windows) for windows, _ in parts]), np.stack([c for _, c in parts])


def _false(method: str, alarms: int, windows: int) -> Finding:
    found = rate(FALSE, TEXTS, alarms, windows, TUNED)
    return replace(found, where=method, unit="alarms", target=None)
