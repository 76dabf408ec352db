"""The same shifts by what others do: PSI at a fixed threshold, and detectors of river's.

All see the same texts. Thresholds are tuned to one false alarm of the endpoint in 1,000 quiet
windows, on the very windows that false alarms are counted on; ours alone is not tuned but told that
rate. Without an interpreter that has river, its rows are missing.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from bench.drift import river
from bench.drift.evidently import DEFAULT_THRESHOLD, Values, psi
from bench.drift.false_alarms import REFERENCE, STEADY, watched
from bench.drift.monitored import Endpoint, beginnings, significant
from bench.drift.population import MOVIES
from bench.drift.shifts import SHIFTS, TEXTS, first
from bench.drift.traffic import Scenario, Stock, joined, mixed, steady
from bench.findings import Finding, needed, rate
from measures.correlation import Floats

TUNED: Final = 1000  # windows to a false alarm
QUIET: Final = 300  # windows of a stream that thresholds are tuned on
BEFORE, WITHIN = 60, 40  # quiet windows that a detector has seen, and windows watched behind them
OURS: Final = "Headrace"
_DETECTORS = ("adwin", "page-hinkley")  # KSWIN is in the study of fewer streams, for it is slow
FALSE: Final = "false alarms a 1,000 quiet windows"


def study(stock: Stock, streams: int, peers: Path | None) -> list[Finding]:
    """False alarms and windows until detection of every method."""
    rng = np.random.default_rng(21)
    movies = stock.shares({MOVIES: 1.0})
    known, counts = zip(
        *(stock.draw(rng, steady(movies, REFERENCE, 1)) for _ in range(streams)), strict=True
    )
    references = np.concatenate(known)
    endpoint = Endpoint.begin(np.concatenate(counts), TEXTS)
    endpoint.calibrated(watched(stock, rng, endpoint, STEADY, TEXTS, sized=False))

    values, counted = _drawn(stock, rng, steady(movies, TEXTS, QUIET), streams)
    rows = [_ours_quiet(endpoint, counted)]
    worst = _worst(references, values)
    limits = _limits(worst)
    rows += [
        _false(name, int((worst >= limit).sum()), worst.size) for name, limit in limits.items()
    ]
    settings: dict[str, float] = {}
    if peers is not None:
        for detector in _DETECTORS:
            told = river.alarms(peers, detector, river.GRIDS[detector], references, values)
            settings[detector], row = _tuned(detector, told, streams)
            rows.append(row)
    for name, (domain, part) in SHIFTS.items():
        after = mixed(steady(movies, TEXTS, WITHIN), stock.shares({domain: 1.0}), part)
        scenario = joined([steady(movies, TEXTS, BEFORE), after])
        values, counted = _drawn(stock, rng, scenario, streams)
        rows.append(needed(name, OURS, _ours(endpoint, counted), unit="windows"))
        worst = _worst(references, values[:, BEFORE:])
        rows += [
            needed(name, method, first(worst >= limit), unit="windows")
            for method, limit in limits.items()
        ]
        if peers is not None:
            for detector, setting in settings.items():
                told = river.alarms(peers, detector, [setting], references, values)
                found = behind(told[setting], streams, BEFORE)
                rows.append(
                    needed(name, f"{river.NAMES[detector]} {setting:g}", found, unit="windows")
                )
    return rows


def _drawn(
    stock: Stock, rng: np.random.Generator, scenario: Scenario, streams: int
) -> tuple[Values, Floats]:
    """``[streams, windows, texts, statistics]`` and the counts of the same texts."""
    parts = [stock.draw(rng, scenario) for _ in range(streams)]
    return np.stack([np.stack(windows) for windows, _ in parts]), np.stack([c for _, c in parts])


def _ours_quiet(endpoint: Endpoint, counts: Floats) -> Finding:
    told = significant(endpoint.copy().walk(counts, sized=False), endpoint.thresholds(TUNED))
    return _false(OURS, int(beginnings(told).sum()), told.size)


def _ours(endpoint: Endpoint, counts: Floats) -> Floats:
    """Windows until production finds it, in whatever statistic."""
    watching = endpoint.copy()
    watching.walk(counts[:, :BEFORE], sized=False)
    told = significant(watching.walk(counts[:, BEFORE:], sized=False), endpoint.thresholds(TUNED))
    return first(told)


def _worst(references: Values, values: Values) -> Floats:
    """``[streams, windows]``: the largest PSI of any statistic, as Evidently computes it."""
    return np.stack([
        psi(reference, list(windows)).max(axis=1)
        for reference, windows in zip(references, values, strict=True)
    ])  # fmt: skip


def _limits(quiet: Floats) -> dict[str, float]:
    """PSI's thresholds by name: two that are in use, and the one that keeps the rate."""
    tuned = float(np.sort(quiet, axis=None)[-max(1, quiet.size // TUNED)])
    return {
        f"PSI {DEFAULT_THRESHOLD}": DEFAULT_THRESHOLD,
        "PSI 0.2": 0.2,
        f"PSI {tuned:.3f} (tuned)": tuned,
    }


def _tuned(detector: str, told: dict[float, river.Alarms], streams: int) -> tuple[float, Finding]:
    """The setting that keeps the rate, and its false alarms, once it has seen ``BEFORE``."""
    windows = streams * (QUIET - BEFORE)
    behind = {
        setting: sum(window >= BEFORE for _, window in found) for setting, found in told.items()
    }
    setting = river.chosen(behind, windows / TUNED)
    return setting, _false(f"{river.NAMES[detector]} {setting:g}", behind[setting], windows)


def behind(alarms: river.Alarms, streams: int, before: int) -> Floats:
    """``[streams]``: the first window of an alarm behind so many, from 1, or infinite."""
    told = np.full(streams, np.inf)
    for stream, window in alarms:
        if window >= before:
            told[stream] = min(told[stream], window - before + 1)
    return told


def _false(method: str, alarms: int, windows: int) -> Finding:
    found = rate(FALSE, TEXTS, alarms, windows, TUNED)
    return replace(found, where=method, unit="alarms", target=None)
