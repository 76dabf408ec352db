"""Only make soak runs each property on all examples that it asks for."""

from hypothesis import given, settings
from hypothesis import strategies as st
from random_examples import limit_examples


def test_a_property_that_asks_for_many_examples_gets_few() -> None:
    seen = []

    @settings(max_examples=300, database=None)
    @given(st.integers())
    def of_integers(number: int) -> None:
        seen.append(number)

    limit_examples(of_integers, 10)
    of_integers()
    assert len(seen) == 10


def test_a_property_that_asks_for_fewer_keeps_its_number() -> None:
    seen = []

    @given(st.integers())
    @settings(max_examples=5, database=None)
    def of_integers(number: int) -> None:
        seen.append(number)

    limit_examples(of_integers, 10)
    of_integers()
    assert len(seen) == 5


def test_what_is_no_property_stays_as_it_is() -> None:
    def plain() -> None: ...

    limit_examples(plain, 10)
    assert vars(plain) == {}
