"""Rows of tables -> numbers, with what is counted of them; and their way into the engine's tensor.

A row comes as the text of a JSON object (by name) or array (in the model's order): which features
there are depends on the version that answers, and that is known only when a request is routed. A
row is refused with its place and the reason, never guessed at. Between here and the engine its
float64 numbers travel as 32-bit words, two each, in the place of token ids, so that batcher, cache
and shadow need not know tables.
"""

import math
import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from contracts.features import (
    ENGINE_FEATURES,
    FALSE,
    MOST_VALUES,
    TRUE,
    Feature,
    FeatureKind,
    select_counted,
)
from contracts.tensors import Datatype, TensorSpec
from preprocess.encoder import EncodedTexts
from preprocess.errors import InvalidRowError, UnknownPromptError

WORDS_A_NUMBER = 2
UNFIT: str = ""  # observed of a value that is missing, or of a category that nobody knows
_LARGEST_INTEGER = 2**53  # float64 has all integers up to it
_SHOWN = 40  # characters of a caller's value in a refusal


class Encoder(Protocol):
    """Makes rows for the engine of what callers send: of texts, or of rows of tables."""

    @property
    def own_expressions(self) -> tuple[str, ...]:
        """Regular expressions of the model's author, which may take long on some texts."""

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> EncodedTexts:
        """The rows of texts; raises ``PreprocessError``."""

    def prompted(self, texts: Sequence[str], name: str | None = None) -> Sequence[str]:
        """The texts with a prompt before each; raises ``UnknownPromptError``."""

    def encode_prompted(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        prompt_name: str | None = None,
    ) -> EncodedTexts:
        """The rows of texts with a prompt before each; raises ``PreprocessError``."""

    def unknown_words(self, text: str, pair: str | None = None) -> list[str]:
        """What of a text became the unknown token."""


class Padder(Protocol):
    """Makes the engine's tensors of rows of one length bucket."""

    def pad(
        self,
        rows: Sequence[Sequence[int]],
        length: int,
        type_rows: Sequence[Sequence[int]] | None = None,
    ) -> Mapping[str, NDArray[Any]]:
        """One tensor for each input of the graph."""


class TableEncoder:
    """Reads rows by the features of one package. Stateless; safe from any thread."""

    own_expressions: tuple[str, ...] = ()

    def __init__(self, features: Sequence[Feature]) -> None:
        self._features = tuple(features)
        self._names = [feature.name for feature in features]
        self._known = frozenset(self._names)
        self._codes = [
            {category: code for code, category in enumerate(feature.categories)}
            for feature in features
        ]
        self._pack = struct.Struct(f"{len(features)}d")
        self._unpack = struct.Struct(f"{WORDS_A_NUMBER * len(features)}I")
        names = {feature.name for feature in select_counted(features)}
        self._counted = [
            (at, feature) for at, feature in enumerate(features) if feature.name in names
        ]

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> EncodedTexts:
        """The rows as words, in their order.

        Args:
            texts: each a JSON object or array.
            pairs: None.

        Raises:
            InvalidRowError: with the row, the feature and the reason.
        """
        if pairs is not None:
            raise InvalidRowError(0, "a row of a table has no second text")
        rows = [self.numbers(index, text) for index, text in enumerate(texts)]
        count = len(rows)
        return EncodedTexts(
            ids=[list(self._unpack.unpack(self._pack.pack(*row))) for row in rows],
            type_ids=None,
            tokens=[1] * count,
            words=[0] * count,
            unk=[0] * count,
            truncated=[False] * count,
            observed=self._observe(rows),
        )

    def prompted(self, texts: Sequence[str], name: str | None = None) -> Sequence[str]:
        """The rows as they are; raises ``UnknownPromptError`` where a prompt is named."""
        if name is not None:
            raise UnknownPromptError(name, ())
        return texts

    def encode_prompted(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        prompt_name: str | None = None,
    ) -> EncodedTexts:
        """The same as ``encode``; raises ``UnknownPromptError`` where a prompt is named."""
        return self.encode(self.prompted(texts, prompt_name), pairs)

    def unknown_words(self, text: str, pair: str | None = None) -> list[str]:  # noqa: ARG002
        """None: rows have no words."""
        return []

    def numbers(self, index: int, text: str) -> list[float]:
        """One row, in the order of the features.

        Raises:
            InvalidRowError: see ``encode``.
        """
        try:
            row: Any = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidRowError(index, f"it is not JSON ({error})") from error
        if isinstance(row, dict):
            values = self._by_name(index, row)
        elif isinstance(row, list):
            if len(row) != len(self._names):
                raise InvalidRowError(
                    index, f"it has {len(row)} values, and the model reads {len(self._names)}"
                )
            values = row
        else:
            raise InvalidRowError(
                index, f"expected an object or an array of features, got {_show(row)}"
            )
        return [
            self._number(index, at, feature, values[at])
            for at, feature in enumerate(self._features)
        ]

    def _by_name(self, index: int, row: Mapping[str, Any]) -> list[Any]:
        for name in row:
            if name not in self._known:
                named = ", ".join(self._names[:10]) + (", ..." if len(self._names) > 10 else "")
                raise InvalidRowError(
                    index, f"the model has no such feature; it reads {named}", feature=name
                )
        for feature in self._features:
            if feature.name not in row and not feature.nullable:
                raise InvalidRowError(index, "it is not there", feature=feature.name)
        return [row.get(name) for name in self._names]

    def _number(self, index: int, at: int, feature: Feature, value: Any) -> float:  # noqa: ANN401
        if value is None:
            if not feature.nullable:
                raise InvalidRowError(
                    index,
                    "it is null or NaN, and the model answers no row in which it is missing",
                    feature=feature.name,
                )
            return math.nan
        found = (
            self._code(at, feature, value)
            if feature.kind is FeatureKind.CATEGORY
            else _read(feature.kind, value)
        )
        if isinstance(found, str):
            raise InvalidRowError(index, found, feature=feature.name)
        return found

    def _code(self, at: int, feature: Feature, value: Any) -> float | str:  # noqa: ANN401
        if not isinstance(value, str):
            return f"expected a string, got {_show(value)}"
        code = self._codes[at].get(value)
        if code is not None:
            return float(code)
        if feature.unseen:
            return float(len(feature.categories))
        known = ", ".join(feature.categories[:5]) + (", ..." if len(feature.categories) > 5 else "")
        return f"the model does not know the category {_show(value)}; it knows {known}"

    def _observe(self, rows: Sequence[Sequence[float]]) -> dict[str, list[float | str]]:
        """What is counted of some rows: of this many as one event takes, evenly out of all.

        Of a number its bucket alone leaves the gateway, as the bucket's upper edge. Values of each
        feature are sorted, so that nothing tells which of them were of one row.
        """
        most = max(1, MOST_VALUES // max(1, len(self._counted)))
        seen = rows[:: -(-len(rows) // most)] if rows else rows
        return {
            feature.name: sorted((_observe(feature, row[at]) for row in seen), key=_order)
            for at, feature in self._counted
        }


def _read(kind: FeatureKind, value: Any) -> float | str:  # noqa: ANN401 - out of JSON
    if kind is FeatureKind.BOOLEAN:
        if type(value) is bool or (type(value) in (int, float) and value in (0, 1)):
            return float(value)
        return f"expected true or false, got {_show(value)}"
    if type(value) not in (int, float):
        return f"expected {_A[kind]}, got {_show(value)}"
    if kind is FeatureKind.INTEGER and (value != int(value) or abs(value) > _LARGEST_INTEGER):
        return f"expected an integer of at most 2^53, got {_show(value)}"
    try:
        return float(value)
    except OverflowError:
        return f"expected a number, got {_show(value)}, which is too large"


_A = {FeatureKind.NUMBER: "a number", FeatureKind.INTEGER: "an integer"}


def _observe(feature: Feature, number: float) -> float | str:
    if math.isnan(number):
        return UNFIT
    if feature.kind is FeatureKind.BOOLEAN:
        return TRUE if number else FALSE
    if feature.kind is FeatureKind.CATEGORY:
        code = int(number)
        return feature.categories[code] if code < len(feature.categories) else UNFIT
    bucket = bisect_left(feature.edges, number)
    if bucket < len(feature.edges):
        return feature.edges[bucket]
    return math.nextafter(feature.edges[-1], math.inf)


def _order(value: float | str) -> tuple[bool, float | str]:
    """Numbers, then texts."""
    return isinstance(value, str), value


def _show(value: object) -> str:
    """A caller's value in a refusal, cut."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    return msgspec.json.encode(value).decode()[:_SHOWN]


class TablePadder:
    """Rows of words -> float64 ``[rows, features]``."""

    def __init__(self, inputs: Sequence[TensorSpec], features: int) -> None:
        """Takes the graph's inputs as the manifest lists them; raises ``ValueError``."""
        wanted = [(ENGINE_FEATURES, Datatype.FP64, (-1, features))]
        if [(spec.name, spec.datatype, spec.shape) for spec in inputs] != wanted:
            raise ValueError(f"a graph of tables has one input, FP64 [-1, {features}]")
        self._features = features

    def pad(
        self,
        rows: Sequence[Sequence[int]],
        length: int,
        type_rows: Sequence[Sequence[int]] | None = None,  # noqa: ARG002 - of texts
    ) -> dict[str, NDArray[Any]]:
        """The one tensor, float64 ``[len(rows), features]``; raises ``ValueError``."""
        words = np.array(rows, dtype=np.uint32).reshape(len(rows), length)
        return {ENGINE_FEATURES: words.view(np.float64)}
