"""Models of tables as people log them, and tables to fit them on."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

REASON = "needs the extra tables"
CITIES = ("Oslo", "Paris", "Rome")
TRUSTED = ["numpy.dtype", "sklearn.tree._tree.Tree"]  # as MLflow asks of those who log such
Logged = Callable[[Path], Path]


def people(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    """Ages, incomes, cities, and whether they are members; no value is missing."""
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(18, 90, rows),
            "income": random.lognormal(10, 0.5, rows).round(2),
            "city": random.choice(CITIES, rows),
            "member": random.random(rows) < 0.4,
        }
    )


def tensors_of(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """People as inputs of the Open Inference Protocol."""
    datatypes = {"age": "INT64", "income": "FP64", "city": "BYTES", "member": "BOOL"}
    return [
        {"name": name, "shape": [len(rows)], "datatype": datatype, "data": rows[name].tolist()}
        for name, datatype in datatypes.items()
    ]


def buys(frame: pd.DataFrame) -> np.ndarray:
    """What a classifier learns: ``yes`` or ``no``."""
    found = frame["age"] * 400 + frame["income"] * 0.5 + (frame["city"] == "Rome") * 9000
    return np.where(found > found.median(), "yes", "no")


def spends(frame: pd.DataFrame) -> np.ndarray:
    """What a regression learns."""
    city = (frame["city"] == "Rome").to_numpy() if "city" in frame else 0
    found: np.ndarray = (frame["age"] * 3 + frame["income"] * 0.01 + city * 50).to_numpy()
    return found


def columns(*, unknown: str = "ignore") -> Any:
    """A transformer of all columns: scaled numbers, one-hot cities."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    return ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["age", "income"]),
            ("city", OneHotEncoder(handle_unknown=unknown), ["city"]),
            ("rest", "passthrough", ["member"]),
        ]
    )


def classifier(*, unknown: str = "ignore", seed: int = 0) -> tuple[Any, pd.DataFrame]:
    """A pipeline of scikit-learn, and what it was fitted on."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    frame = people(seed=seed)
    model = make_pipeline(columns(unknown=unknown), LogisticRegression(max_iter=1000))
    return model.fit(frame, buys(frame)), frame


def logged(model: Any, frame: Any, *, flavour: str = "sklearn", example: int = 100) -> Logged:
    """Writes a version as ``mlflow.<flavour>.log_model`` does, with a signature and an example."""

    def write(folder: Path) -> Path:
        import mlflow
        from mlflow.models import infer_signature

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            save = getattr(mlflow, flavour).save_model
            if flavour == "sklearn":
                save = partial(save, skops_trusted_types=TRUSTED)
            save(
                model,
                str(folder),
                signature=infer_signature(frame, model.predict(frame[:5])),
                input_example=frame[:example] if example else None,
                pip_requirements=[],
            )
        return folder

    return write
