"""Runs one drift library's own detector; started by ``libraries``, in that library's environment.

    python libraries_worker.py evidently STREAMS.npz

``STREAMS.npz`` holds float32 ``references`` ``[streams, texts, statistics]`` and ``windows``
``[streams, windows, texts, statistics]``; the last statistic is a category of two. Out comes JSON:
the library's version, its own threshold, and scores ``[streams, windows, statistics]``, of which a
larger one is more drift. It imports nothing of Headrace's, which is not installed there.
"""

import importlib.metadata
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

Scored = tuple[list[list[float]], float]  # [windows, statistics], and the threshold


def evidently(reference: Any, windows: Any) -> Scored:  # noqa: ANN401 - mapped
    """The tests that it chooses by itself; for references above 1,000 rows all from 0.1 on."""
    import pandas as pd  # noqa: PLC0415 - of this environment
    from evidently.legacy.calculations.stattests import get_stattest  # noqa: PLC0415
    from evidently.legacy.core import ColumnType  # noqa: PLC0415

    found = []
    for window in windows:
        scores = []
        for at in range(reference.shape[1]):
            last = at == reference.shape[1] - 1
            kind = ColumnType.Categorical if last else ColumnType.Numerical
            one, other = pd.Series(reference[:, at]), pd.Series(window[:, at])
            told = get_stattest(one, other, kind, None)(one, other, kind, None)
            scores.append(float(told.drift_score))
        found.append(scores)
    return found, 0.1


def alibi(reference: Any, windows: Any) -> Scored:  # noqa: ANN401 - mapped
    """TabularDrift: Kolmogorov and Smirnov's test of numbers, chi-square of the category."""
    from alibi_detect.cd import TabularDrift  # noqa: PLC0415 - of this environment

    columns = reference.shape[1]
    detector = TabularDrift(reference, p_val=0.05, categories_per_feature={columns - 1: 2})
    found = []
    for window in windows:
        told = np.asarray(detector.predict(window)["data"]["p_val"], float)
        # Its rule is Bonferroni's: drift where a p-value is below 0.05 / columns.
        found.append((-np.log10(np.maximum(told * columns, 1e-300))).tolist())
    return found, float(-np.log10(0.05))


def nannyml(reference: Any, windows: Any) -> Scored:  # noqa: ANN401 - mapped
    """UnivariateDriftCalculator with Jensen and Shannon's distance, by chunks of a window."""
    import nannyml as nml  # noqa: PLC0415 - of this environment
    import pandas as pd  # noqa: PLC0415

    columns = [f"c{at}" for at in range(reference.shape[1])]
    category = columns[-1]

    def frame(values: Any) -> Any:  # noqa: ANN401 - a data frame
        made = pd.DataFrame(values, columns=columns)
        made[category] = made[category].astype(int).astype(str)
        return made

    calculator = nml.UnivariateDriftCalculator(
        column_names=columns,
        treat_as_categorical=[category],
        continuous_methods=["jensen_shannon"],
        categorical_methods=["jensen_shannon"],
        chunk_size=windows.shape[1],
    )
    calculator.fit(frame(reference))
    told = calculator.calculate(frame(windows.reshape(-1, len(columns))))
    told = told.filter(period="analysis").to_df()
    ratios = []
    for column in columns:
        part = told[column, "jensen_shannon"]
        ratios.append(part["value"].to_numpy(float) / part["upper_threshold"].to_numpy(float))
    return np.nan_to_num(np.stack(ratios, axis=1)).tolist(), 1.0


LIBRARIES: dict[str, tuple[Callable[[Any, Any], Scored], str]] = {
    "evidently": (evidently, "evidently"),
    "alibi-detect": (alibi, "alibi-detect"),
    "nannyml": (nannyml, "nannyml"),
}


def main() -> None:
    """Reads the command line, runs each stream, prints."""
    warnings.filterwarnings("ignore")
    name, file = sys.argv[1:]
    score, package = LIBRARIES[name]
    scores, threshold = [], 0.0
    with np.load(file) as held:
        for reference, windows in zip(held["references"], held["windows"], strict=True):
            found, threshold = score(reference, windows)
            scores.append(found)
    version = importlib.metadata.version(package)
    sys.stdout.write(
        "\n" + json.dumps({"version": version, "threshold": threshold, "scores": scores}) + "\n"
    )


if __name__ == "__main__":
    main()
