"""The reference profile: what a version's texts and answers looked like when it was evaluated."""

from pydantic import BaseModel, ConfigDict, Field

from contracts.statistics import Statistic


class ReferenceProfile(BaseModel):
    """Counts over the evaluation texts, made by the same code that the gateway runs.

    ``histograms`` hold one count a bucket of ``contracts.statistics.EDGES`` plus the last bucket to
    infinity; they add to ``texts`` each, scores of entities to their number. ``labels`` counts
    answers by predicted label, entities by type.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = 1
    texts: int = Field(ge=0)
    source: str = Field(description="where the texts came from, for people")
    truncated: int = 0
    histograms: dict[Statistic, tuple[int, ...]] = {}
    label_scores: dict[str, tuple[int, ...]] = Field(
        {}, description="per label: histogram of its score, edges of Statistic.SCORE"
    )
    labels: dict[str, int] = {}
