"""What a row of a version is: its features, which of their values are answered, how they count.

What the model takes is asked of the model itself: a row with a missing value, one with a category
that nobody has seen. Buckets of numbers are those of the stable version if it has the feature,
else quantiles of the version's own rows, else fixed ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from contracts.features import (
    MOST_CATEGORIES,
    PREDICTION,
    Feature,
    FeatureKind,
)
from contracts.statistics import Edges
from measures.observation import histogram
from registry.convert.errors import VersionError
from registry.convert.tables.flavour import SignatureColumn
from registry.convert.tables.graph import UNSEEN
from registry.convert.tables.original import Floats, OriginalTableModel, Row
from registry.convert.tables.rows import OwnRows

_FEWEST_FOR_QUANTILES = 20
_QUANTILES = np.linspace(0, 1, 21)[1:-1]
_PROBED = 4  # rows that the model is asked about
_STEPS = (1, 2, 5)
_DECADES = range(-3, 7)
_DIGITS = 6  # of an edge


@dataclass(frozen=True)
class Schema:
    """A version's features, without what only the finished graph can tell."""

    features: tuple[Feature, ...]

    @property
    def categories(self) -> dict[str, tuple[str, ...]]:
        """Of features that are categories."""
        return {
            feature.name: feature.categories
            for feature in self.features
            if feature.kind is FeatureKind.CATEGORY
        }


def schema_of(
    columns: Sequence[SignatureColumn],
    own: OwnRows,
    stable: Sequence[Feature] = (),
    *,
    estimator: object = None,
) -> Schema:
    """The features of a version, before the model was asked what it takes.

    Raises:
        VersionError: a feature whose categories nothing tells.
    """
    known = {feature.name: feature for feature in stable}
    fitted = _fitted_categories(estimator)
    return Schema(
        tuple(
            _feature(column, [row[column.name] for row in own.rows], known, fitted)
            for column in columns
        )
    )


def probe_schema(original: OriginalTableModel, schema: Schema, rows: Sequence[Row]) -> Schema:
    """Adds what the model answers when it is asked about missing values and new categories."""
    some = list(rows[:_PROBED])

    def answers(name: str, value: Any) -> bool:  # noqa: ANN401 - of a row
        try:
            found = original.answers([{**row, name: value} for row in some])
        except Exception:  # noqa: BLE001 - whatever a model raises of what it does not take
            return False
        return bool(np.isfinite(found).all())

    return Schema(tuple(_probe_feature(feature, answers) for feature in schema.features))


def _probe_feature(feature: Feature, answers: Callable[[str, Any], bool]) -> Feature:
    if feature.kind is FeatureKind.CATEGORY:
        return feature.model_copy(update={"unseen": answers(feature.name, UNSEEN)})
    if feature.kind is FeatureKind.BOOLEAN:
        return feature
    return feature.model_copy(update={"nullable": answers(feature.name, None)})


def prediction(
    original: OriginalTableModel, values: Floats | None, stable: Sequence[Feature] = ()
) -> tuple[Feature, ...]:
    """How a regression's answers are counted; nothing of a classification."""
    if original.labels or (values is not None and values.shape[1] != 1):
        return ()
    numbers = [] if values is None else values[:, 0].tolist()
    known = {feature.name: feature for feature in stable}
    return (_number(PREDICTION, FeatureKind.NUMBER, numbers, known),)


def _feature(
    column: SignatureColumn,
    values: Sequence[Any],
    known: Mapping[str, Feature],
    fitted: Mapping[str, Sequence[str]],
) -> Feature:
    name, there = column.name, [value for value in values if value is not None]
    if column.kind is FeatureKind.CATEGORY:
        return _category(name, there, known.get(name), fitted.get(name, ()))
    if column.kind is FeatureKind.BOOLEAN:
        counts = (there.count(False), there.count(True)) if there else ()
        return Feature(name=name, kind=column.kind, counts=counts)
    return _number(name, column.kind, there, known)


def _number(
    name: str, kind: FeatureKind, values: Sequence[float], known: Mapping[str, Feature]
) -> Feature:
    edges = generic_edges()
    before = known.get(name)
    if before is not None and before.edges:
        edges = before.edges
    elif len(values) >= _FEWEST_FOR_QUANTILES:
        edges = _quantiles(values)
    enough = len(values) >= _FEWEST_FOR_QUANTILES
    counts = histogram(Edges(edges, "value"), values) if enough else ()
    return Feature(name=name, kind=kind, edges=edges, counts=counts)


def _category(
    name: str, values: Sequence[str], before: Feature | None, fitted: Sequence[str]
) -> Feature:
    found = sorted({*values, *fitted})
    if not found:
        raise VersionError(
            f"nothing tells the categories of {name}: log the model with an input_example, or "
            "with rows in a folder called evaluation"
        )
    if len(found) > MOST_CATEGORIES:
        raise VersionError(
            f"{name} has {len(found)} categories, more than {MOST_CATEGORIES}: text is served by "
            "other tasks"
        )
    if before is not None and set(before.categories) == set(found):
        found = list(before.categories)
    counts = tuple(values.count(each) for each in found) if values else ()
    return Feature(name=name, kind=FeatureKind.CATEGORY, categories=tuple(found), counts=counts)


def generic_edges() -> tuple[float, ...]:
    """For numbers of which nothing is known: 1, 2 and 5 of each decade, of both signs, and 0."""
    above = [float(f"{step}e{decade}") for decade in _DECADES for step in _STEPS]
    return (*(-edge for edge in reversed(above)), 0.0, *above)


def _quantiles(values: Sequence[float]) -> tuple[float, ...]:
    found = np.unique([float(f"{each:.{_DIGITS}g}") for each in np.quantile(values, _QUANTILES)])
    return tuple(found.tolist())


def _fitted_categories(estimator: Any) -> dict[str, list[str]]:  # noqa: ANN401 - of scikit-learn
    """Categories by column, where a fitted encoder of the model keeps them."""
    found: dict[str, list[str]] = {}
    for columns, transformer in _transformers(estimator):
        categories = getattr(transformer, "categories_", None)
        if categories is None or len(categories) != len(columns):
            continue
        for column, known in zip(columns, categories, strict=True):
            if isinstance(column, str):
                words = [each for each in known if isinstance(each, str)]
                found.setdefault(column, []).extend(words)
    return found


def _transformers(estimator: Any) -> list[tuple[Sequence[Any], Any]]:  # noqa: ANN401 - as above
    found: list[tuple[Sequence[Any], Any]] = []
    for _, step in getattr(estimator, "steps", ()):
        found += _transformers(step)
    for _, part, columns in getattr(estimator, "transformers_", ()):
        if isinstance(columns, str):
            columns = [columns]  # noqa: PLW2901 - one column
        steps = [step for _, step in getattr(part, "steps", ())] or [part]
        found += [(list(columns), step) for step in steps]
    return found
