"""Whether an answer is the right one: pure."""

from dataclasses import dataclass, field

import numpy as np

SCORE_TOLERANCE = 2e-3  # what rounding to JSON and another batch may change
NEAR_A_TIE = 2e-2  # so near to a half the label may be either's


@dataclass(frozen=True, slots=True)
class Expected:
    """The better class of a text and its probability; None where the version fails at it."""

    label: str
    score: float


def is_right(expected: Expected | None, label: str, score: float) -> bool:
    """Whether an answer is what the reference says, within rounding."""
    if expected is None:
        return False
    if abs(expected.score - score) > SCORE_TOLERANCE:
        return False
    return label == expected.label or expected.score < 0.5 + NEAR_A_TIE


@dataclass
class FirstAnswers:
    """Vectors as they were first answered, by (version, text)."""

    vectors: dict[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)

    def is_right(self, version: str, text: str, values: tuple[float, ...]) -> bool:
        """Whether it is what was answered first; the first one is."""
        known = self.vectors.setdefault((version, text), values)
        return len(known) == len(values) and bool(np.allclose(known, values, atol=SCORE_TOLERANCE))
