"""Tells by a version's files whether it reads tables, and which columns. Runs nothing of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from contracts.features import FeatureKind
from registry.conversions.messages import ConversionRequest
from registry.convert.download import Fetched
from registry.convert.errors import VersionError

MLMODEL = "MLmodel"
SKLEARN, XGBOOST, LIGHTGBM = "sklearn", "xgboost", "lightgbm"
# Where each flavour's section of MLmodel names its file, and the version of its library.
_KEYS = {
    SKLEARN: ("pickled_model", "sklearn_version"),
    XGBOOST: ("data", "xgb_version"),
    LIGHTGBM: ("data", "lgb_version"),
}
_PYFUNC = "python_function"
_KINDS = {
    "double": FeatureKind.NUMBER,
    "float": FeatureKind.NUMBER,
    "long": FeatureKind.INTEGER,
    "integer": FeatureKind.INTEGER,
    "boolean": FeatureKind.BOOLEAN,
    "string": FeatureKind.CATEGORY,
}
MOST_FEATURES = 4096


@dataclass(frozen=True)
class Column:
    """An input of the model, by its signature."""

    name: str
    kind: FeatureKind


@dataclass(frozen=True)
class TableVersion:
    """A version as it was registered.

    Attributes:
        flavour: of MLflow.
        path: the model's file.
        saved_by: version of the library that saved it; empty where nothing says it.
        model_class: the name of its class; empty where nothing says it.
        columns: of a row, in order.
        are_named: whether the model was fitted on a frame with names, and not on an array.
        folder: with ``MLmodel``.
    """

    flavour: str
    path: Path
    saved_by: str
    model_class: str
    columns: tuple[Column, ...]
    are_named: bool
    folder: Path


def find(fetched: Fetched, request: ConversionRequest) -> TableVersion | None:
    """What a version is, if it reads tables; None for any other.

    Raises:
        VersionError: it reads tables, and can't be served, with the reason.
    """
    path = next((p for p in (fetched.folder / MLMODEL, fetched.folder / "model" / MLMODEL)
                 if p.is_file()), None)  # fmt: skip
    if path is None:
        return None
    try:
        described = yaml.safe_load(path.read_text(encoding="utf-8"))
        flavours = described["flavors"]
        flavour = next((name for name in _KEYS if name in flavours), None)
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError):
        return None  # a folder of any origin: what else it holds may tell what it is
    if flavour is None:
        if set(flavours) == {_PYFUNC}:
            raise VersionError(_own_code(flavours[_PYFUNC], fetched.refused))
        return None
    section = flavours[flavour]
    file_key, version_key = _KEYS[flavour]
    name = str(section.get(file_key) or "")
    _refuse_pickle(name, fetched.refused, allowed=request.allow_pickle)
    file = path.parent / name
    inside = file.resolve().is_relative_to(path.parent.resolve())
    if not name or not inside or not file.exists():
        raise VersionError(f"{MLMODEL} names the file {name or '(none)'}, which is not there")
    columns, are_named = _columns(described)
    return TableVersion(
        flavour=flavour,
        path=file,
        saved_by=str(section.get(version_key) or ""),
        model_class=str(section.get("model_class") or ""),
        columns=columns,
        are_named=are_named,
        folder=path.parent,
    )


def _refuse_pickle(name: str, refused: Sequence[str], *, allowed: bool) -> None:
    if not allowed and any(Path(each).name == Path(name).name for each in refused):
        raise VersionError(
            f"the model is in {name}, a pickle, which can run code when opened and is refused; "
            "log it with MLflow 3 and serialization_format='skops'"
        )


def _own_code(section: Mapping[str, Any], refused: Sequence[str]) -> str:
    named = ", ".join(sorted(Path(each).name for each in refused)[:3])
    held = f" in {named}, a pickle" if named else ""
    return (
        f"its only flavour is python_function ({section.get('loader_module', 'unknown')}): code of "
        f"its own{held}, which is not served; log the model itself with mlflow.sklearn, "
        "mlflow.xgboost, mlflow.lightgbm, mlflow.transformers or mlflow.onnx"
    )


def _columns(described: Mapping[str, Any]) -> tuple[tuple[Column, ...], bool]:
    """The columns that the signature names, and whether these are names of the model's."""
    signature = described.get("signature") or {}
    text = signature.get("inputs")
    if not text:
        raise VersionError(
            "it has no signature, so that nothing says what a row is; log it with an "
            "input_example, or with a signature"
        )
    try:
        inputs = json.loads(text)
        if len(inputs) == 1 and inputs[0].get("type") == "tensor":
            return _of_tensor(inputs[0]["tensor-spec"]), False
        columns = tuple(_column(item) for item in inputs)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VersionError(f"its signature can't be read: {error}") from error
    if not columns or len(columns) > MOST_FEATURES:
        raise VersionError(f"its signature has {len(columns)} columns, not 1 to {MOST_FEATURES}")
    if len({column.name for column in columns}) < len(columns):
        raise VersionError("two columns of its signature have the same name")
    return columns, True


def _column(item: Mapping[str, Any]) -> Column:
    name, kind = item.get("name"), item.get("type")
    if not isinstance(name, str) or not name:
        raise VersionError("a column of its signature has no name")
    if kind not in _KINDS:
        raise VersionError(
            f"its feature {name} is a {kind}; served are {', '.join(sorted(_KINDS))}"
        )
    return Column(name, _KINDS[kind])


def _of_tensor(spec: Mapping[str, Any]) -> tuple[Column, ...]:
    """Columns of an array ``[-1, n]`` of numbers."""
    shape, dtype = spec["shape"], str(spec["dtype"])
    numbers = dtype.startswith(("float", "int", "uint", "bool"))
    if len(shape) != 2 or not 1 <= shape[1] <= MOST_FEATURES or not numbers:
        raise VersionError(
            f"its signature is an array {shape} of {dtype}; served are arrays [-1, n] of numbers"
        )
    return tuple(Column(f"x{at}", FeatureKind.NUMBER) for at in range(shape[1]))
