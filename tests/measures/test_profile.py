"""A profile counts every text in every statistic, and each value in its bucket."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.events import TextRecord
from contracts.profile import ReferenceProfile
from contracts.statistics import EDGES, LATENCY_EDGES, Edges, Statistic
from measures.observation import histogram, observe
from measures.profile import reference_profile

LABELS = ("bad", "good", "never")


def classified(tokens: int, words: int, unk: int, score: float) -> TextRecord:
    label = "good" if score > 0.5 else "bad"
    return TextRecord(tokens, words, min(unk, tokens), tokens == 64, label=label, score=score)


records_of_texts = st.lists(
    st.builds(
        classified, st.integers(0, 64), st.integers(0, 40), st.integers(0, 64), st.floats(0, 1)
    ),
    max_size=20,
)


def profile(records: list[TextRecord], source: str = "texts") -> ReferenceProfile:
    scores = np.array([[1 - (r.score or 0), r.score or 0, 0] for r in records], np.float32)
    scores = scores.reshape(-1, len(LABELS))
    return reference_profile(records, source=source, labels=LABELS, scores=scores)


@given(records_of_texts)
def test_every_histogram_adds_to_the_number_of_texts(records: list[TextRecord]) -> None:
    made = profile(records)
    assert made.texts == len(records)
    assert all(sum(counts) == len(records) for counts in made.histograms.values())
    assert all(sum(counts) == len(records) for counts in made.label_scores.values())
    assert sum(made.labels.values()) == len(records)
    assert made.truncated == sum(record.truncated for record in records)


@given(records_of_texts)
def test_a_profile_survives_being_stored(records: list[TextRecord]) -> None:
    made = profile(records)
    assert ReferenceProfile.model_validate_json(made.model_dump_json()) == made


def test_a_label_that_was_never_predicted_is_a_count_of_0() -> None:
    assert profile([classified(5, 3, 0, 0.9)]).labels == {"bad": 0, "good": 1, "never": 0}


def test_statistics_that_do_not_belong_to_the_task_are_left_out() -> None:
    vectors = reference_profile([TextRecord(5, 3, 0, False, norm=1.0)], source="texts")
    assert Statistic.VECTOR_NORM in vectors.histograms
    assert Statistic.NON_ZEROS not in vectors.histograms
    assert Statistic.SCORE not in vectors.histograms
    assert vectors.labels == {}
    assert Statistic.VECTOR_NORM not in profile([classified(5, 3, 0, 0.9)]).histograms


def test_a_text_without_an_answer_is_refused_among_answered_ones() -> None:
    records = [classified(5, 3, 0, 0.9), TextRecord(5, 3, 0, False)]
    with pytest.raises(ValueError, match="score is known of 1 of 2 texts"):
        reference_profile(records, source="texts")


def test_scores_of_another_shape_are_refused() -> None:
    records = [classified(5, 3, 0, 0.9)]
    with pytest.raises(ValueError, match="scores are"):
        reference_profile(records, source="t", labels=LABELS, scores=np.zeros((1, 2), np.float32))


def test_ratios_have_a_value_for_every_text() -> None:
    values = observe([TextRecord(6, 3, 2, False), TextRecord(2, 0, 0, False)])
    assert values[Statistic.UNK_SHARE].tolist() == [2 / 6, 0]
    assert values[Statistic.TOKENS_PER_WORD].tolist() == [2, 2]
    assert values[Statistic.SCORE].size == 0


SMALL = Edges((0.0, 1.0, 2.5), "things")


def test_a_value_belongs_to_the_first_bucket_whose_edge_it_does_not_exceed() -> None:
    values = [-5, 0, 0.1, 1, 1.0001, 2.5, 2.6, math.inf, -math.inf]
    assert histogram(SMALL, values) == (3, 2, 2, 2)
    assert histogram(SMALL, np.ones(12, np.float32)) == (0, 12, 0, 0)
    assert histogram(SMALL, []) == (0, 0, 0, 0)


@given(
    st.sampled_from([*EDGES.values(), LATENCY_EDGES]),
    st.lists(st.floats(allow_nan=False), max_size=50),
)
def test_every_value_is_counted_in_its_bucket(edges: Edges, values: list[float]) -> None:
    expected = [0] * (len(edges.upper) + 1)
    for value in values:
        bucket = next((i for i, edge in enumerate(edges.upper) if value <= edge), -1)
        expected[bucket] += 1
    assert list(histogram(edges, values)) == expected


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="1 of 3 values are NaN"):
        histogram(SMALL, [1, math.nan, 2])
