"""``POST /feedback``: the true labels of an answer, with the receipt that came with it.

``{"receipt": "...", "labels": ["positive", null]}``, one label a text and null where it is not
known; ``{"receipt": "...", "label": "positive"}`` for an answer to one text. The reply is
202: accepted labels are sent to the event stream, and counted if they are lost on the way.
"""

import time
from http import HTTPStatus
from typing import Annotated

import msgspec
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from gateway.admission.rate_limits import FEEDBACK
from gateway.dialects.described import ASKING, READ_ERRORS
from gateway.dialects.front import Front
from gateway.errors import InvalidInputError, UnsupportedError
from gateway.http.body import BodyReader
from gateway.http.messages import Reply, Request, decode, encode
from gateway.http.openapi import Operation
from gateway.http.router import Route
from gateway.inference.feedback import FeedbackReceiver
from gateway.inference.receipts import MOST_CHARACTERS


class FeedbackRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request: ``labels``, or ``label`` for an answer to one text."""

    receipt: Annotated[str, msgspec.Meta(min_length=1, max_length=MOST_CHARACTERS)]
    labels: Annotated[list[str | None], msgspec.Meta(min_length=1)] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    label: str | msgspec.UnsetType = msgspec.UNSET


class FeedbackCounts(TypedDict):
    """The outcome of the labels, each counted once."""

    accepted: int
    repeated: int
    unknown: int


_OPERATION = Operation(
    "Feedback",
    "Tell the true labels of an answer",
    FeedbackCounts,
    request=FeedbackRequest,
    description=(
        "With the receipt that came with the answer in x-headrace-receipt. One label a text, null "
        "where it is not known; repeated says how many had been told before. Off (501) without a "
        "--receipt-key-file."
    ),
    examples={
        "one text": {"receipt": "AZmpc2VudGltZW50...", "label": "positive"},
        "as a list": {"receipt": "AZmpc2VudGltZW50...", "labels": ["positive"]},
    },
    parameters=ASKING,
    errors=(
        *READ_ERRORS,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.GONE,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.NOT_IMPLEMENTED,
    ),
    success=HTTPStatus.ACCEPTED,
)
_MOST_BYTES = 256 * 1024  # a receipt of 16 kB, and the labels of a thousand texts
_decoder = msgspec.json.Decoder(FeedbackRequest)


class FeedbackRoute:
    """The route."""

    def __init__(self, front: Front, bodies: BodyReader, receiver: FeedbackReceiver | None) -> None:
        self._front = front
        self._bodies = bodies
        self._desk = receiver

    def routes(self) -> list[Route]:
        """What the application serves here."""
        return [
            Route("POST", "/feedback", self.take, "feedback", _OPERATION, reads_body=True),
        ]

    async def take(self, request: Request) -> Reply:
        """Takes labels.

        The endpoint is not set in the context, so that refused feedback is not counted as a
        refused prediction.
        """
        receiver = self._desk
        if receiver is None:
            raise UnsupportedError("Feedback is off: this gateway has no --receipt-key-file.")
        await self._front.admission.scheduler.take(FEEDBACK)
        body = decode(_decoder, await self._bodies.read(request, _MOST_BYTES))
        now = time.time()
        receipt = receiver.receipts.read(body.receipt, now)
        self._front.admission.authorise(request.context, receipt.endpoint)
        view = self._front.endpoints.describe(receipt.endpoint)
        taken = receiver.take(receipt, _labels(body), view.labels, now)
        counts: FeedbackCounts = {
            "accepted": taken.accepted,
            "repeated": taken.repeated,
            "unknown": taken.unknown,
        }
        return Reply(encode(counts), status=HTTPStatus.ACCEPTED)


def _labels(body: FeedbackRequest) -> list[str | None]:
    """One label a text."""
    if (body.labels is msgspec.UNSET) == (body.label is msgspec.UNSET):
        raise InvalidInputError(
            "labels: send one a text, or label alone for an answer to one text, and not both."
        )
    if body.labels is not msgspec.UNSET:
        return body.labels
    return [body.label] if body.label is not msgspec.UNSET else []
