"""What a model of tables reads: the columns of a row, and how their values are counted.

A row travels as numbers: of a category its place among the known ones. The buckets of a feature are
those of the version that callers get; a later version takes them over, so that windows of both add.
"""

from collections.abc import Iterable
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from contracts.events import StatisticSpec
from contracts.tensors import Datatype

ENGINE_FEATURES = "features"  # the engine's input: float64 [batch, features]
PREDICTION = "prediction"  # the statistic of what a regression answers
MOST_COUNTED = 64  # features of a version whose values are counted, the first ones
MOST_VALUES = 4096  # of features, in the event of one request
MOST_CATEGORIES = 1000  # of one feature
COUNTED_CATEGORIES = 100
LONGEST_NAME = 63  # characters of a statistic
FALSE, TRUE = "false", "true"


class FeatureKind(StrEnum):
    """What values of a feature are."""

    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"
    CATEGORY = "category"


DATATYPES = {
    FeatureKind.NUMBER: Datatype.FP64,
    FeatureKind.INTEGER: Datatype.INT64,
    FeatureKind.BOOLEAN: Datatype.BOOL,
    FeatureKind.CATEGORY: Datatype.BYTES,
}


class Feature(BaseModel):
    """One column.

    ``edges`` and ``counts`` are of numbers: upper edges of buckets, and how many values of the
    version's own rows lie in each and in the last one to infinity. Of booleans and categories
    ``counts`` are of false and true, and of the categories.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: FeatureKind
    nullable: bool = Field(False, description="a missing value is answered")
    categories: tuple[str, ...] = Field((), description="those that the model knows, by code")
    unseen: bool = Field(False, description="a category that the model does not know is answered")
    edges: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def datatype(self) -> Datatype:
        """What callers of the Open Inference Protocol send."""
        return DATATYPES[self.kind]

    @property
    def is_counted(self) -> bool:
        """Whether its values are counted: they have buckets, and few enough of them."""
        if len(self.name) > LONGEST_NAME:
            return False
        if self.kind is FeatureKind.CATEGORY:
            return len(self.categories) <= COUNTED_CATEGORIES
        return self.kind is FeatureKind.BOOLEAN or bool(self.edges)

    def statistic(self) -> StatisticSpec:
        """How events declare its values."""
        if self.kind is FeatureKind.CATEGORY:
            return StatisticSpec(self.name, "category", values=list(self.categories))
        if self.kind is FeatureKind.BOOLEAN:
            return StatisticSpec(self.name, "category", values=[FALSE, TRUE])
        return StatisticSpec(self.name, "histogram", edges=list(self.edges))


def select_counted(features: Iterable[Feature]) -> tuple[Feature, ...]:
    """Those whose values are counted."""
    return tuple(feature for feature in features if feature.is_counted)[:MOST_COUNTED]
