"""Accepts feedback: receipts and true labels in, feedback records for the event stream out.

Records are sent like events: through the bounded buffer to Kafka, or they are counted as lost. The
only state here is a bounded set of the texts that have feedback already, which saves messages: that
a label which is told to two gateways counts once is the fold role's doing (``measures.ranges``).
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from contracts.events import Feedback
from gateway.errors import InvalidInputError
from gateway.events.buffer import Recorder
from gateway.inference.receipts import Receipt, Receipts

_REMEMBERED = 50_000  # receipts


@dataclass(frozen=True, slots=True)
class FeedbackOutcome:
    """The outcome of the labels of one request."""

    accepted: int
    repeated: int  # texts that had a label before
    unknown: int  # texts whose label the caller does not know


class FeedbackReceiver:
    """Accepts feedback for one process. Used only from its event loop."""

    def __init__(
        self, receipts: Receipts, recorder: Recorder, remembered: int = _REMEMBERED
    ) -> None:
        self.receipts = receipts
        self._recorder = recorder
        self._remembered = remembered
        # By endpoint, request id and time: a bit for each text that has a label.
        self._labelled: OrderedDict[tuple[str, str, float], int] = OrderedDict()

    def take(
        self,
        receipt: Receipt,
        labels: Sequence[str | None],
        known: Collection[str],
        now: float,
    ) -> FeedbackOutcome:
        """Records the labels of one answer.

        Args:
            receipt: of the answer.
            labels: one a text, None if the caller knows none.
            known: labels that the endpoint has.
            now: unix time, seconds.

        Raises:
            InvalidInputError: another number of labels, or one that the endpoint does not have.
        """
        answered = receipt.answered()
        _check(receipt, answered, labels, known)
        key = (receipt.endpoint, receipt.request_id, receipt.time)
        labelled = self._labelled.pop(key, 0)
        accepted = repeated = 0
        for index, (truth, (label, score)) in enumerate(zip(labels, answered, strict=True)):
            if truth is None:
                continue
            if labelled >> index & 1:
                repeated += 1
                continue
            labelled |= 1 << index
            accepted += 1
            self._recorder.feedback(
                Feedback(
                    time=now,
                    request_id=receipt.request_id,
                    endpoint=receipt.endpoint,
                    version=receipt.version,
                    package=receipt.package.hex(),
                    arm=receipt.arm,
                    answered=label,
                    truth=truth,
                    score=score,
                    caller=receipt.caller,
                    text=index,
                    answered_at=receipt.time,
                )
            )
        self._labelled[key] = labelled
        if len(self._labelled) > self._remembered:
            self._labelled.popitem(last=False)
        return FeedbackOutcome(accepted, repeated, len(labels) - accepted - repeated)


def _check(
    receipt: Receipt,
    answered: Sequence[tuple[str, float]],
    labels: Sequence[str | None],
    known: Collection[str],
) -> None:
    if not answered:
        raise InvalidInputError(
            f"receipt: {receipt.endpoint} answered without labels, so there is none to correct."
        )
    if len(labels) != len(answered):
        raise InvalidInputError(
            f"labels: expected one for each of the {len(answered)} texts of the answer, null "
            f"where it is not known; got {len(labels)}."
        )
    for index, label in enumerate(labels):
        if label is not None and label not in known and label not in receipt.labels:
            raise InvalidInputError(
                f"labels[{index}]: {receipt.endpoint} has no label {label[:80]!r}."
            )
