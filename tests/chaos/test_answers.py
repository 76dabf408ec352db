"""Which answers are right: the label and the score of the reference, within rounding."""

from chaos.answers import Expected, FirstAnswers, is_right

SURE = Expected("positive", 0.9)


def test_label_and_score_must_both_be_the_references() -> None:
    assert is_right(SURE, "positive", 0.9005)
    assert not is_right(SURE, "negative", 0.9)
    assert not is_right(SURE, "positive", 0.88)


def test_either_label_is_right_where_rounding_decides_and_nowhere_else() -> None:
    assert is_right(Expected("positive", 0.501), "negative", 0.501)
    assert not is_right(Expected("positive", 0.53), "negative", 0.53)


def test_no_answer_is_right_where_the_reference_fails() -> None:
    assert not is_right(None, "positive", 0.9)


def test_a_vector_must_be_the_first_one_of_its_version_and_text() -> None:
    first = FirstAnswers()
    assert first.is_right("1", "yes", (0.6, 0.8))
    assert first.is_right("1", "yes", (0.6001, 0.8))
    assert not first.is_right("1", "yes", (0.8, 0.6))
    assert not first.is_right("1", "yes", (0.6, 0.8, 0.0))
    assert first.is_right("2", "yes", (0.8, 0.6))
    assert first.is_right("1", "no", (0.8, 0.6))
