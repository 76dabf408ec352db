"""The order of labelling looks at no answer, and messages survive their way."""

import random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.events import UnknownSchemaError
from contracts.pairs import Disagreement, Label, Message, ShadowComparison, decode, encode, place

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PAIRS = st.builds(Disagreement, NAMES, NAMES, NAMES, NAMES, st.none() | NAMES)
COUNTS = st.integers(0, 2**53)


def test_the_order_of_labelling_is_of_the_ids_and_of_nothing_else() -> None:
    ids = [f"r-{n}" for n in range(1000)]
    order = sorted(ids, key=place)
    random.Random(1).shuffle(ids)
    assert order == sorted(ids, key=place)
    first = [int(name.removeprefix("r-")) for name in order[:400]]
    assert 400 < np.mean(first) < 600  # early and late requests alike


def test_the_order_of_pairs_that_were_labelled_before_is_still_theirs() -> None:
    assert place("r-17")[0] == 9980707869714025791


@given(
    st.builds(
        ShadowComparison,
        NAMES,
        COUNTS,
        NAMES,
        NAMES,
        NAMES,
        COUNTS,
        COUNTS,
        COUNTS,
        st.lists(PAIRS),
    )
    | st.builds(Label, NAMES, NAMES, NAMES, NAMES, st.none() | NAMES)
)
def test_a_message_is_what_was_written(message: Message) -> None:
    assert decode(encode(message)) == message


def test_what_is_no_such_message_is_told() -> None:
    with pytest.raises(UnknownSchemaError):
        decode(b'{"type":"label","schema_version":2}')
    with pytest.raises(msgspec.DecodeError):
        decode(b'{"type":"other","schema_version":1}')
