"""Each label of an answer becomes one record, and one that is sent twice no second one."""

import pytest
from gateway_world import MemoryRecorder, answered_text, call_of, endpoint_of, event_of
from pipeline_world import ONE, TWO, world_of

from contracts.endpoint import Arm
from contracts.events import Feedback
from gateway.errors import InvalidInputError
from gateway.inference.feedback import FeedbackOutcome, FeedbackReceiver
from gateway.inference.receipts import Receipt, Receipts

RECEIPTS = Receipts([b"k" * 32], 86400.0)
LABELS = ("negative", "positive")


def receipt_of(*labels: str | None, request_id: str = "r", time: float = 1000.0) -> Receipt:
    texts = [answered_text(label, None if label is None else 1) for label in labels]
    event = event_of(
        *texts,
        request_id=request_id,
        time=time,
        version="7",
        package="ab" * 32,
        arm=Arm.CANARY,
        caller=5,
    )
    return RECEIPTS.read(RECEIPTS.issue(event), time)


def receiver_of(remembered: int = 100) -> tuple[FeedbackReceiver, MemoryRecorder]:
    recorder = MemoryRecorder()
    return FeedbackReceiver(RECEIPTS, recorder, remembered), recorder


def test_each_label_that_is_known_becomes_a_record() -> None:
    receiver, recorder = receiver_of()
    receipt = receipt_of("positive", "negative", "positive")
    taken = receiver.take(receipt, ["positive", None, "negative"], LABELS, now=2000.0)
    assert taken == FeedbackOutcome(accepted=2, repeated=0, unknown=1)
    assert recorder.told == [
        Feedback(
            2000.0, "r", "sentiment", "7", "ab" * 32, Arm.CANARY, label, truth, text, 1000.0, 1.0, 5
        )
        for text, label, truth in ((0, "positive", "positive"), (2, "positive", "negative"))
    ]


def test_a_text_is_told_once_and_the_others_still_can_be() -> None:
    receiver, recorder = receiver_of()
    receipt = receipt_of("positive", "negative")
    assert receiver.take(receipt, ["positive", None], LABELS, 1.0) == FeedbackOutcome(1, 0, 1)
    assert receiver.take(receipt, ["negative", "negative"], LABELS, 2.0) == FeedbackOutcome(1, 1, 0)
    assert [told.answered for told in recorder.told] == ["positive", "negative"]


def test_one_request_id_used_for_two_requests_is_two_answers() -> None:
    receiver, recorder = receiver_of()
    for time in (1000.0, 1001.0):
        receiver.take(receipt_of("positive", time=time), ["positive"], LABELS, 2000.0)
    assert len(recorder.told) == 2


def test_what_is_remembered_is_bounded() -> None:
    receiver, _ = receiver_of(remembered=3)
    receipts = [receipt_of("positive", request_id=str(number)) for number in range(4)]
    for receipt in receipts:
        assert receiver.take(receipt, ["positive"], LABELS, 1.0).accepted == 1
    assert receiver.take(receipts[3], ["positive"], LABELS, 1.0).repeated == 1
    assert receiver.take(receipts[0], ["positive"], LABELS, 1.0).accepted == 1  # long forgotten


def test_an_unknown_label_is_refused_whole_and_by_its_place() -> None:
    receiver, recorder = receiver_of()
    with pytest.raises(InvalidInputError, match=r"labels\[1\].*'postive'"):
        receiver.take(receipt_of("positive", "negative"), ["positive", "postive"], LABELS, 1.0)
    assert recorder.told == []


def test_a_label_that_was_answered_is_known_even_if_the_endpoint_has_lost_it() -> None:
    receiver, _ = receiver_of()
    assert receiver.take(receipt_of("mixed"), ["mixed"], LABELS, 1.0).accepted == 1


def test_vectors_have_no_labels_to_correct() -> None:
    receiver, _ = receiver_of()
    with pytest.raises(InvalidInputError, match="without labels"):
        receiver.take(receipt_of(None), ["positive"], LABELS, 1.0)


async def test_an_answers_receipt_says_what_its_event_says() -> None:
    endpoint = endpoint_of(ONE.ref, canary=TWO.ref, weight=100, rollout="r")
    async with world_of(endpoint, receipts=RECEIPTS) as world:
        answer = await world.pipeline.predict(call_of("w1", "w2", sticky_key="ann"))
    (event,) = world.recorder.events
    receipt = RECEIPTS.read(answer.receipt, event.time)
    assert (receipt.version, receipt.arm, receipt.caller) == ("2", Arm.CANARY, event.caller)
    assert [label for label, _ in receipt.answered()] == [text.label for text in event.texts]
