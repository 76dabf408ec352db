"""Opens the model that was registered, and asks it: what the engine's answers are held to.

A file of skops or of a library's own format holds data alone, and opening it runs none of its code;
types that are not known here are refused. A pickle runs code, and is opened only if the operator
allows it.
"""

import importlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.features import FeatureKind
from contracts.tasks import Task
from registry.convert.errors import EnvironmentFaultError, VersionError, first_line
from registry.convert.flavours.config import require_text
from registry.convert.flavours.detect import is_pickle
from registry.convert.tables import bounds
from registry.convert.tables.flavour import LIGHTGBM, SKLEARN, XGBOOST, TableVersion

Floats = NDArray[np.float32]
Row = Mapping[str, Any]  # values by column; None if one is missing

_LIBRARIES = {SKLEARN: "sklearn", XGBOOST: "xgboost", LIGHTGBM: "lightgbm"}
# Types that skops does not know to be safe itself: plain data of scikit-learn's, boosters, whose
# state their own libraries parse, and trees, which ``bounds`` looks at before they are asked.
# What MLmodel says may be trusted is the version's own word, and is not.
TRUSTED = frozenset(
    {
        *bounds.CHECKED,
        "collections.OrderedDict",
        "lightgbm.basic.Booster",
        "lightgbm.sklearn.LGBMClassifier",
        "lightgbm.sklearn.LGBMRegressor",
        "numpy.dtype",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.utils._bunch.Bunch",
        "xgboost.core.Booster",
        "xgboost.sklearn.XGBClassifier",
        "xgboost.sklearn.XGBRegressor",
    }
)
_XGBOOST_CLASSES = ("XGBClassifier", "XGBRegressor")


@dataclass(frozen=True)
class OriginalTableModel:
    """An opened model.

    Attributes:
        estimator: with the methods of scikit-learn.
        task: what it does.
        labels: its classes, in the order of the probabilities; none of a regression.
        reference: its library, for people.
        version: how it was registered.
    """

    estimator: Any
    task: Task
    labels: tuple[str, ...]
    reference: str
    version: TableVersion

    def answers(self, rows: Sequence[Row]) -> Floats:
        """Probabilities ``[rows, classes]``, or numbers ``[rows, n]``.

        Raises:
            Exception: whatever the model raises of rows that it does not take.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = self._arrange(rows)
            if self.labels:
                return np.asarray(self.estimator.predict_proba(given), np.float32)
            values = np.asarray(self.estimator.predict(given), np.float64)
            return values.reshape(len(rows), -1).astype(np.float32)

    def _arrange(self, rows: Sequence[Row]) -> Any:  # noqa: ANN401 - a frame or an array
        if not self.version.are_named:
            names = [column.name for column in self.version.columns]
            return np.array([[_number(row[name]) for name in names] for row in rows], np.float64)
        pandas = library("pandas")
        columns = {}
        for column in self.version.columns:
            values = [row[column.name] for row in rows]
            if column.kind is not FeatureKind.CATEGORY:
                dtype = _dtype(column.kind, values)
                columns[column.name] = np.array([_number(value) for value in values]).astype(dtype)
            else:
                columns[column.name] = np.array(values, object)
        return pandas.DataFrame(columns)


def _number(value: Any) -> float:  # noqa: ANN401 - of a row
    return float("nan") if value is None else float(value)


def _dtype(kind: FeatureKind, values: Sequence[Any]) -> str:
    if any(value is None for value in values):
        return "float64"
    return {FeatureKind.INTEGER: "int64", FeatureKind.BOOLEAN: "bool"}.get(kind, "float64")


def library(name: str) -> Any:  # noqa: ANN401 - a module without types
    """A library of the extra ``tables``; raises ``EnvironmentFaultError`` if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EnvironmentFaultError(
            f"this version reads tables, and its conversion needs {name}: install "
            f"headrace[tables] where conversions run ({error})"
        ) from error


def open_original(version: TableVersion, *, allow_pickle: bool) -> OriginalTableModel:
    """Opens the model.

    Raises:
        VersionError: it can't be opened here, or is no classifier and no regression.
        EnvironmentFaultError: a library is missing.
    """
    owner = library(_LIBRARIES[version.flavour])
    base = library("sklearn.base")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator = _read(version, allow_pickle=allow_pickle)
            bounds.check(estimator, len(version.columns))
    except (VersionError, EnvironmentFaultError):
        raise
    except Exception as error:  # whatever a library raises of a file that it can't read
        raise VersionError(
            f"{version.path.name} was saved by {version.flavour} {version.saved_by or '?'}, and "
            f"{owner.__version__} here can't open it: {first_line(error)}"
        ) from error
    name = type(estimator).__name__
    reference = f"{version.flavour} {owner.__version__}"
    if version.saved_by and version.saved_by != owner.__version__:
        reference += f", saved by {version.saved_by}"
    if base.is_classifier(estimator):
        if not hasattr(estimator, "predict_proba"):
            raise VersionError(f"{name} gives no probabilities (predict_proba), which are needed")
        classes = getattr(estimator, "classes_", None)
        if not isinstance(classes, np.ndarray) or classes.ndim != 1:
            raise VersionError(f"{name} answers several questions at once, which is not served")
        labels = tuple(str(label) for label in classes.tolist())
        require_text(list(labels), "the names of its classes")
        return OriginalTableModel(
            estimator, Task.TABULAR_CLASSIFICATION, labels, reference, version
        )
    if base.is_regressor(estimator):
        return OriginalTableModel(estimator, Task.TABULAR_REGRESSION, (), reference, version)
    raise VersionError(f"{name} is neither a classifier nor a regression")


def _read(version: TableVersion, *, allow_pickle: bool) -> Any:  # noqa: ANN401 - of a library
    path = version.path
    if path.suffix == ".skops":
        return _read_skops(version)
    if is_pickle(path.name):
        if not allow_pickle:
            raise VersionError(f"{path.name} is a pickle, which is refused")
        cloudpickle = library("cloudpickle")
        with path.open("rb") as file:
            return cloudpickle.load(file)
    if version.flavour == XGBOOST and path.suffix in (".ubj", ".json", ".xgb", ".deprecated"):
        return _read_xgboost(version)
    if version.flavour == LIGHTGBM:
        raise VersionError(
            f"{path.name} holds a Booster, which does not say its classes: log the LGBMClassifier "
            "or LGBMRegressor that it is of"
        )
    raise VersionError(f"{path.name} is of a format that is not known here")


def _read_skops(version: TableVersion) -> Any:  # noqa: ANN401 - as above
    skops = library("skops.io")
    for name in (XGBOOST, LIGHTGBM):
        if version.flavour == name:
            library(name)
    unknown = set(skops.get_untrusted_types(file=version.path)) - TRUSTED
    if unknown:
        raise VersionError(
            f"{version.path.name} holds {', '.join(sorted(unknown)[:5])}: types that are not "
            "known to be safe, and are refused"
        )
    return skops.load(version.path, trusted=sorted(TRUSTED))


def _read_xgboost(version: TableVersion) -> Any:  # noqa: ANN401 - as above
    xgboost = library(XGBOOST)
    booster = xgboost.Booster(model_file=str(version.path))
    objective = str(_objective(booster))
    is_classifier = objective.startswith(("binary:logistic", "multi:softprob"))
    if not is_classifier and not objective.startswith(("reg:", "count:")):
        raise VersionError(f"its objective is {objective}, which is not served")
    if is_classifier and version.model_class.endswith("Booster"):
        raise VersionError(
            f"{version.path.name} holds a Booster, which does not say its classes: log the "
            "XGBClassifier that it is of"
        )
    model = getattr(xgboost, _XGBOOST_CLASSES[not is_classifier])()
    model.load_model(str(version.path))
    return model


def _objective(booster: Any) -> Any:  # noqa: ANN401 - as above
    return json.loads(booster.save_config())["learner"]["objective"]["name"]
