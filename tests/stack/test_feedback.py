"""The truth about an answer goes the whole way: receipt, feedback, Kafka; from any gateway."""

import httpx
import pytest
from event_log import read_batches
from running_stack import EXAMPLE_ENDPOINT, RunningStack
from waiting import until

from contracts.endpoint import Arm
from contracts.events import Feedback

pytestmark = pytest.mark.real


@pytest.mark.parametrize("told_to", [0, 1], ids=["the one that answered", "another gateway"])
def test_a_label_told_with_a_receipt_is_in_the_events(stack: RunningStack, told_to: int) -> None:
    url = f"{stack.gateways[0].url}/endpoints/{EXAMPLE_ENDPOINT}"
    answer = httpx.post(url, json={"inputs": ["A fine film.", "Dull."]}, timeout=60)
    labels = [each["label"] for each in answer.json()]
    body = {"receipt": answer.headers["x-headrace-receipt"], "labels": [None, labels[0]]}
    told = httpx.post(f"{stack.gateways[told_to].url}/feedback", json=body, timeout=60)
    assert (told.status_code, told.json()["accepted"]) == (202, 1)

    def arrived() -> Feedback | None:
        request_id = answer.headers["x-request-id"]
        batches = read_batches(stack.kafka)
        found = [one for batch in batches for one in batch.feedback if one.request_id == request_id]
        return found[0] if found else None

    feedback = until("the feedback reaches Kafka", 60, arrived)
    assert (feedback.answered, feedback.truth) == (labels[1], labels[0])
    assert (feedback.arm, feedback.version) == (
        Arm.STABLE,
        answer.headers["x-headrace-version"],
    )
