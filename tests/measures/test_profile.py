"""A profile counts every text in every statistic, and parts add to the whole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.events import TextRecord
from contracts.profile import ReferenceProfile
from contracts.statistics import Statistic
from measures.observation import observed
from measures.profile import UnequalProfilesError, merged, reference_profile

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


@given(records_of_texts, records_of_texts)
def test_profiles_of_parts_add_to_the_profile_of_the_whole(
    one: list[TextRecord], other: list[TextRecord]
) -> None:
    assert merged(profile(one), profile(other)) == profile(one + other)
    assert merged(profile(one), profile(other)) == merged(profile(other), profile(one))


@given(records_of_texts)
def test_a_profile_survives_being_stored(records: list[TextRecord]) -> None:
    made = profile(records)
    assert ReferenceProfile.model_validate_json(made.model_dump_json()) == made


def test_a_label_that_was_never_predicted_is_a_count_of_0() -> None:
    assert profile([classified(5, 3, 0, 0.9)]).labels == {"bad": 0, "good": 1, "never": 0}


def test_statistics_that_do_not_belong_to_the_task_are_left_out() -> None:
    vectors = reference_profile([TextRecord(5, 3, 0, False, norm=1.0)], source="texts")
    assert Statistic.VECTOR_NORM in vectors.histograms
    assert Statistic.SCORE not in vectors.histograms
    assert vectors.labels == {}
    assert Statistic.VECTOR_NORM not in profile([classified(5, 3, 0, 0.9)]).histograms


def test_sources_are_named_once_in_a_sum() -> None:
    texts = [classified(5, 3, 0, 0.9)]
    sum_of_three = merged(merged(profile(texts, "a"), profile(texts, "b")), profile(texts, "a"))
    assert sum_of_three.source == "a + b"


def test_profiles_of_different_tasks_do_not_add() -> None:
    vectors = reference_profile([TextRecord(5, 3, 0, False, norm=1.0)], source="texts")
    with pytest.raises(UnequalProfilesError, match="score"):
        merged(vectors, profile([classified(5, 3, 0, 0.9)]))


def test_a_text_without_an_answer_is_refused_among_answered_ones() -> None:
    records = [classified(5, 3, 0, 0.9), TextRecord(5, 3, 0, False)]
    with pytest.raises(ValueError, match="score is known of 1 of 2 texts"):
        reference_profile(records, source="texts")


def test_scores_of_another_shape_are_refused() -> None:
    records = [classified(5, 3, 0, 0.9)]
    with pytest.raises(ValueError, match="scores are"):
        reference_profile(records, source="t", labels=LABELS, scores=np.zeros((1, 2), np.float32))


def test_ratios_have_a_value_for_every_text() -> None:
    values = observed([TextRecord(6, 3, 2, False), TextRecord(2, 0, 0, False)])
    assert values[Statistic.UNK_SHARE].tolist() == [2 / 6, 0]
    assert values[Statistic.TOKENS_PER_WORD].tolist() == [2, 2]
    assert values[Statistic.SCORE].size == 0
