"""A receipt says what was answered, and only gateways with the key can make one."""

import hmac

import pytest
from gateway_world import answered_text, event_of
from hypothesis import given
from hypothesis import strategies as st

from contracts.endpoint import Arm
from contracts.events import PredictionEvent, TextRecord
from gateway.errors import BadRequestError, ReceiptExpiredError
from gateway.inference.receipts import (
    MOST_TEXTS,
    Receipts,
    Signer,
)

DAY = 86400.0
KEY, OTHER = b"k" * 32, b"o" * 32
receipts = Receipts([KEY], 30 * DAY)


def attempt(*texts: TextRecord, arm: Arm = Arm.CANARY) -> PredictionEvent:
    of_it = {"request_id": "r-1", "time": 1000.0, "version": "7", "package": "ab" * 32}
    return event_of(*texts, arm=arm, caller=2**64 - 1, **of_it)


@given(
    st.lists(
        st.tuples(st.sampled_from(["positive", "negative", "ñ", ""]), st.floats(0, 1)), max_size=40
    ),
    st.sampled_from(Arm),
)
def test_what_was_issued_is_read(answers: list[tuple[str, float]], arm: Arm) -> None:
    event = attempt(*[answered_text(label, score) for label, score in answers], arm=arm)
    receipt = receipts.read(receipts.issue(event), now=1000.0)
    assert (receipt.endpoint, receipt.version, receipt.package.hex()) == (
        "sentiment",
        "7",
        "ab" * 32,
    )
    assert (receipt.arm, receipt.request_id, receipt.caller) == (arm, "r-1", 2**64 - 1)
    found = receipt.answered()
    assert [label for label, _ in found] == [label for label, _ in answers]
    assert [score for _, score in found] == pytest.approx([score for _, score in answers], abs=1e-5)


def test_a_receipt_of_usual_size_is_a_small_header() -> None:
    one = receipts.issue(attempt(answered_text("positive", 0.9)))
    many = receipts.issue(attempt(*[answered_text("positive", 0.9)] * 256))
    most = receipts.issue(attempt(*[answered_text("positive", 0.9)] * MOST_TEXTS))
    assert len(one) < 170
    assert len(many) < 1600
    assert len(most) < 6000
    assert set(one) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_more_texts_than_a_header_holds_get_no_receipt() -> None:
    assert receipts.issue(attempt(*[answered_text("positive", 0.9)] * (MOST_TEXTS + 1))) == ""


@given(st.data())
def test_a_receipt_that_was_touched_is_refused(data: st.DataObject) -> None:
    good = receipts.issue(attempt(answered_text("positive", 0.9)))
    at = data.draw(st.integers(0, len(good) - 2))  # the last character has bits to spare
    letter = data.draw(st.sampled_from("abcXYZ019-_").filter(lambda c: c != good[at]))
    with pytest.raises(BadRequestError, match="receipt"):
        receipts.read(good[:at] + letter + good[at + 1 :], 1000.0)


@given(st.text(max_size=300))
def test_what_was_never_issued_is_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match="receipt"):
        receipts.read(text, 1000.0)


def test_another_gateways_receipt_is_read_with_its_key_alone() -> None:
    text = Receipts([OTHER], DAY).issue(attempt(answered_text("positive", 0.9)))
    with pytest.raises(BadRequestError):
        receipts.read(text, 1000.0)
    # As after a change of keys: the new one signs, the old one is still good.
    assert Receipts([KEY, OTHER], DAY).read(text, 1000.0).request_id == "r-1"


def test_an_old_answer_takes_no_feedback() -> None:
    text = receipts.issue(attempt(answered_text("positive", 0.9)))
    assert receipts.read(text, 1000.0 + 30 * DAY)
    with pytest.raises(ReceiptExpiredError, match="30 days"):
        receipts.read(text, 1001.0 + 30 * DAY)


def test_receipts_without_a_key_are_a_defect() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        Receipts([], DAY)


@given(st.binary(min_size=1, max_size=200), st.binary(max_size=300), st.binary(max_size=300))
def test_a_signature_is_the_beginning_of_hmac_sha256(
    key: bytes, message: bytes, other: bytes
) -> None:
    signer = Signer(key)
    signer.signature(other)
    assert signer.signature(message) == hmac.digest(key, message, "sha256")[:16]
