"""What is packed comes back bit by bit, and nothing else is taken for it."""

import base64
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.packed_evidence import pack, unpack

NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers()
PARTS = st.dictionaries(
    st.text(), st.lists(NUMBERS) | st.text() | st.dictionaries(st.text(), NUMBERS)
)
SOME = {"schema_version": 1, "history_windows": 3, "rates": [0.1] * 1000}


@given(PARTS, st.integers(0, 10**6))
def test_what_is_packed_is_unpacked_to_the_last_bit(parts: dict[str, object], windows: int) -> None:
    evidence = {**parts, "schema_version": 1, "history_windows": windows}
    stored = pack(evidence)
    assert stored["history_windows"] == windows
    assert unpack(json.loads(json.dumps(stored))) == evidence
    assert pack(unpack(stored)) == stored


@pytest.mark.parametrize("stored", [{}, SOME])
def test_evidence_of_another_schema_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="evidence is of schema"):
        unpack(stored)


def test_a_number_that_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        pack({**SOME, "rates": [float("inf")]})


BOMB = base64.b64encode(zlib.compress(b" " * (17 << 20))).decode()


@pytest.mark.parametrize(
    "word",
    [
        pytest.param("", id="nothing"),
        pytest.param("%%%", id="no base64"),
        pytest.param("AAAA", id="not compressed"),
        pytest.param(pack(SOME)["zlib"][:-16], id="cut off"),
        pytest.param(7, id="a number"),
        pytest.param(BOMB, id="too much"),
    ],
)
def test_what_is_damaged_is_refused_with_a_sentence(word: object) -> None:
    with pytest.raises(ValueError, match="evidence can't be unpacked"):
        unpack({**pack(SOME), "zlib": word})
