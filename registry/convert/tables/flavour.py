"""Tells by a version's files whether it reads tables, and which columns. Runs nothing of it.

A version that only ``python_function`` opens is Python of its users' own: so is one of a flavour
that is not known here, such as CatBoost's, if MLflow gives it a pyfunc and a signature.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from contracts.features import FeatureKind
from registry.conversions.messages import ConversionRequest
from registry.convert.download import FetchedVersion
from registry.convert.errors import EnvironmentFaultError, VersionError
from registry.convert.flavours.config import parse_json, require_text

MLMODEL = "MLmodel"
SKLEARN, XGBOOST, LIGHTGBM = "sklearn", "xgboost", "lightgbm"
# Where each flavour's section of MLmodel names its file, and the version of its library.
_KEYS = {
    SKLEARN: ("pickled_model", "sklearn_version"),
    XGBOOST: ("data", "xgb_version"),
    LIGHTGBM: ("data", "lgb_version"),
}
PYFUNC = "python_function"
# Flavours of versions that read texts, which are told by their files.
_OF_TEXTS = frozenset({"transformers", "sentence_transformers", "onnx", "pytorch"})
_MOST_LABELS = 1000
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
class SignatureColumn:
    """An input of the model, by its signature."""

    name: str
    kind: FeatureKind


@dataclass(frozen=True)
class TableVersion:
    """A version as it was registered.

    Attributes:
        flavour: of MLflow.
        path: the model's file.
        saved_by: version of the library that saved it; empty if nothing says it.
        model_class: the name of its class; empty if nothing says it.
        columns: of a row, in order.
        are_named: whether the model was fitted on a frame with names, and not on an array.
        folder: with ``MLmodel``.
        labels: that ``metadata`` names, of a pyfunc.
    """

    flavour: str
    path: Path
    saved_by: str
    model_class: str
    columns: tuple[SignatureColumn, ...]
    are_named: bool
    folder: Path
    labels: tuple[str, ...] = ()


def find(fetched: FetchedVersion, request: ConversionRequest) -> TableVersion | None:
    """What a version is, if it reads tables; None for any other.

    Raises:
        VersionError: it reads tables, and can't be served, with the reason.
        EnvironmentFaultError: it is a pyfunc, and the operator does not allow these.
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
        if PYFUNC in flavours and not _OF_TEXTS & set(flavours):
            return _pyfunc(path.parent, described, request)
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


def _pyfunc(folder: Path, described: Mapping[str, Any], request: ConversionRequest) -> TableVersion:
    flavours: Mapping[str, Any] = described["flavors"]
    module = str(flavours[PYFUNC].get("loader_module", "unknown"))
    if request.pyfunc is None:
        raise EnvironmentFaultError(
            f"it is Python of its users' own ({PYFUNC} of {', '.join(sorted(flavours))}, opened by "
            f"{module}), which the operator does not allow to run: --pyfunc, or "
            "triton.pyfunc.enabled in the chart, does"
        )
    columns, are_named = _columns(described)
    labels = (described.get("metadata") or {}).get("labels") or ()
    if not isinstance(labels, list | tuple) or len(labels) > _MOST_LABELS:
        raise VersionError(f"the labels in its metadata are no list of at most {_MOST_LABELS}")
    require_text(list(map(str, labels)), "the labels in its metadata")
    if len(set(map(str, labels))) < len(labels) or len(labels) == 1:
        raise VersionError("the labels in its metadata are not different ones, two at least")
    return TableVersion(
        flavour=PYFUNC,
        path=folder,
        saved_by=str(described.get("mlflow_version") or ""),
        model_class=module,
        columns=columns,
        are_named=are_named,
        folder=folder,
        labels=tuple(map(str, labels)),
    )


def _columns(described: Mapping[str, Any]) -> tuple[tuple[SignatureColumn, ...], bool]:
    """The columns that the signature names, and whether these are names of the model's."""
    signature = described.get("signature") or {}
    text = signature.get("inputs")
    if not text:
        raise VersionError(
            "it has no signature, so that nothing says what a row is; log it with an "
            "input_example, or with a signature"
        )
    try:
        inputs = parse_json(text, "its signature")
        if len(inputs) == 1 and inputs[0].get("type") == "tensor":
            return _of_tensor(inputs[0]["tensor-spec"]), False
        columns = tuple(_column(item) for item in inputs)
    except (KeyError, TypeError, AttributeError) as error:
        raise VersionError(f"its signature can't be read: {error}") from error
    if not columns or len(columns) > MOST_FEATURES:
        raise VersionError(f"its signature has {len(columns)} columns, not 1 to {MOST_FEATURES}")
    if len({column.name for column in columns}) < len(columns):
        raise VersionError("two columns of its signature have the same name")
    return columns, True


def _column(item: Mapping[str, Any]) -> SignatureColumn:
    name, kind = item.get("name"), item.get("type")
    if not isinstance(name, str) or not name:
        raise VersionError("a column of its signature has no name")
    if kind not in _KINDS:
        raise VersionError(
            f"its feature {name} is a {kind}; served are {', '.join(sorted(_KINDS))}"
        )
    return SignatureColumn(name, _KINDS[kind])


def _of_tensor(spec: Mapping[str, Any]) -> tuple[SignatureColumn, ...]:
    """Columns of an array ``[-1, n]`` of numbers."""
    shape, dtype = spec["shape"], str(spec["dtype"])
    numbers = dtype.startswith(("float", "int", "uint", "bool"))
    if len(shape) != 2 or not 1 <= shape[1] <= MOST_FEATURES or not numbers:
        raise VersionError(
            f"its signature is an array {shape} of {dtype}; served are arrays [-1, n] of numbers"
        )
    return tuple(SignatureColumn(f"x{at}", FeatureKind.NUMBER) for at in range(shape[1]))
