"""The route of feedback: receipt and labels in, 202 out, each refusal in a sentence."""

import time
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import httpx
import pytest
from front_fakes import Behind, FakeKeys, client_of
from gateway_world import answered_text, event_of

from gateway.inference.receipts import Receipts


def receipt_of(behind: Behind, *labels: str, endpoint: str = "sentiment", age: float = 0.0) -> str:
    """What an answer with these labels carried."""
    assert behind.receipts is not None
    texts = [answered_text(label) for label in labels]
    event = event_of(*texts, time=time.time() - age, endpoint=endpoint, version="3")
    return behind.receipts.issue(event)


async def tell(behind: Behind, body: dict[str, Any], key: str = "") -> httpx.Response:
    async with client_of(behind) as client:
        return await client.post("/feedback", json=body, headers={"x-api-key": key} if key else {})


async def test_labels_are_taken_and_said_to_be() -> None:
    behind = Behind()
    receipt = receipt_of(behind, "positive", "neutral")
    answer = await tell(behind, {"receipt": receipt, "labels": ["negative", None]})
    assert answer.status_code == HTTPStatus.ACCEPTED
    assert answer.json() == {"accepted": 1, "repeated": 0, "unknown": 1}
    (told,) = behind.recorder.told
    assert (told.answered, told.truth, told.version) == ("positive", "negative", "3")
    again = await tell(behind, {"receipt": receipt, "labels": ["negative", None]})
    assert again.json() == {"accepted": 0, "repeated": 1, "unknown": 1}


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"receipt": "AAAA"}, 400, "x-headrace-receipt"),
        ({"receipt": ""}, 400, "receipt"),
        ({"labels": "positive"}, 400, "labels"),
        ({"truth": 1}, 400, "truth"),
        ({"labels": ["wonderful"]}, 422, "wonderful"),
        ({"labels": ["positive", "positive"]}, 422, "1 texts"),
        ({"label": "positive"}, 422, "not both"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_a_sentence(
    change: dict[str, Any], status: int, says: str
) -> None:
    behind = Behind()
    body = {"receipt": receipt_of(behind, "positive"), "labels": ["positive"]} | change
    answer = await tell(behind, body)
    assert answer.status_code == status
    assert says in answer.json()["error"]["message"]
    # Feedback that is refused is no prediction that was.
    assert (behind.recorder.told, behind.recorder.refusals) == ([], [])


async def test_an_old_answer_is_gone() -> None:
    behind = Behind()
    body = {"receipt": receipt_of(behind, "positive", age=90_000), "label": "positive"}
    answer = await tell(behind, body)
    assert answer.status_code == HTTPStatus.GONE
    assert answer.json()["error"]["code"] == "receipt_expired"


async def test_a_key_is_for_the_endpoint_of_the_receipt() -> None:
    behind = Behind(keys=FakeKeys({"ann": {"sentiment"}, "bob": {"minilm"}}))
    body = {"receipt": receipt_of(behind, "positive"), "label": "positive"}
    assert [(await tell(behind, body, key)).status_code for key in ("", "bob", "ann")] == [
        401,
        403,
        202,
    ]


async def test_a_body_is_not_read_without_a_key_and_no_large_one_with_it() -> None:
    behind = Behind(keys=FakeKeys({"ann": {"sentiment"}}))

    asked: list[str] = []

    async def unread(path: str) -> AsyncIterator[bytes]:
        asked.append(path)
        yield b"{}"

    async with client_of(behind) as client:
        for path in ("/feedback", "/v1/embeddings", "/v1/rerank"):
            answer = await client.post(path, content=unread(path))
            assert answer.status_code == HTTPStatus.UNAUTHORIZED
        assert asked == []
        large = b'{"receipt": "' + b"x" * 300_000 + b'"}'
        answer = await client.post("/feedback", content=large, headers={"x-api-key": "ann"})
    assert answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


async def test_an_endpoint_that_was_deleted_is_unknown() -> None:
    behind = Behind()
    body = {"receipt": receipt_of(behind, "positive", endpoint="gone"), "label": "positive"}
    assert (await tell(behind, body)).status_code == HTTPStatus.NOT_FOUND


async def test_a_gateway_without_keys_says_that_feedback_is_off() -> None:
    body = {"receipt": receipt_of(Behind(), "positive"), "label": "positive"}
    answer = await tell(Behind(receipts=None), body)
    assert answer.status_code == HTTPStatus.NOT_IMPLEMENTED
    assert "--receipt-key-file" in answer.json()["error"]["message"]
    assert isinstance(Behind().receipts, Receipts)
