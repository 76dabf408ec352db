"""One mirrored request on its way to the shadow: infer, compare, record.

``shadow.py`` decides which are sent, and when. Each one that is sent ends in one event, whatever
the candidate does, which tells its outcome beside that of stable's attempt. The candidate's answer
is compared with stable's, text by text, and dropped. Only where an operator lets texts be kept are
some that disagree kept (``kept_pairs.py``).
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from time import monotonic

import msgspec
import numpy as np
from numpy.typing import NDArray

from contracts.events import Pairing, TextRecord
from contracts.tasks import GIVE_VECTORS
from gateway.batching.batcher import Batcher
from gateway.errors import GatewayError
from gateway.events.buffer import Recorder
from gateway.http.large_work import INLINE_NUMBERS
from gateway.inference.attempt import AnsweredRequest, Attempt, event_of
from gateway.inference.encoding import Encoding, encode
from gateway.inference.generation import write_again
from gateway.inference.own_code import OwnCode
from gateway.inference.pipeline import NUMBERS_A_ROW
from gateway.mirroring.kept_pairs import KeptPairs
from gateway.mirroring.nearest import NearestTexts
from gateway.packages import ServedModel
from gateway.routing.routes import RouteTarget
from gateway.telemetry.metrics import Metrics
from preprocess.encoder import EncodedTexts
from preprocess.observe import answered as answered_records
from preprocess.observe import unanswered as unanswered_records
from preprocess.tasks.head import Side

log = logging.getLogger(__name__)


class MirroredRequests:
    """Runs the mirrored requests of one process."""

    def __init__(
        self,
        recorder: Recorder,
        metrics: Metrics,
        pairs: KeptPairs | None = None,
        own: OwnCode | None = None,
        encoding: Encoding | None = None,
    ) -> None:
        self._recorder = recorder
        self._encoding = encoding or Encoding()
        self._own = own
        self._pairs = pairs
        self._metrics = metrics
        self._nearest = NearestTexts()  # of the one thread
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="shadow")

    def close(self) -> None:
        """Ends the thread; no mirrored request may be in flight."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(
        self,
        answered: AnsweredRequest,
        target: RouteTarget,
        batcher: Batcher,
        timeout_seconds: float,
    ) -> None:
        """Runs one request. Raises only its own cancellation, for which there is no event."""
        call, model = answered.call, target.model
        attempt = Attempt(call, target, answered.encoded, answered.tokenise)
        status, texts = int(HTTPStatus.OK), None
        pairing = Pairing(
            answered.model.ref.version, answered.compared_seconds, status=answered.status
        )
        try:
            deadline = monotonic() + timeout_seconds
            if not model.encodes_like(answered.model):
                await self._encode(attempt, deadline)
            if call.sampling is not None:
                values = await write_again(batcher, attempt, call.sampling, deadline)
            else:
                attempt.job = batcher.submit(attempt.encoded, call.endpoint, deadline, waits=False)
                values = await attempt.job.future
                if self._own is not None:
                    values = await self._own.finish(attempt, values, deadline)
            texts, pairing = await self._compare(answered, pairing, attempt, values)
        except GatewayError as error:
            status = int(error.status)
        except asyncio.CancelledError:
            if attempt.job is not None:
                batcher.abandon(attempt.job)
            raise
        except Exception:
            # Any error is the candidate's outcome, and never reaches the caller.
            log.exception("a shadow failed", extra={"request_id": call.request_id})
            status = int(HTTPStatus.INTERNAL_SERVER_ERROR)
        if texts is None:
            texts = unanswered_records(attempt.encoded)
        event = event_of(attempt, status, texts, answered=False, pairing=pairing)
        self._recorder.attempt(event)
        self._metrics.attempt_finished(event, len(texts), sum(attempt.encoded.tokens))
        if self._pairs is not None and pairing.labels:
            self._keep(self._pairs, answered, target, pairing, texts)

    async def _compare(
        self,
        answered: AnsweredRequest,
        failed: Pairing,
        attempt: Attempt,
        values: NDArray[np.float32],
    ) -> tuple[list[TextRecord], Pairing]:
        """What is recorded of each text, and how far from stable's it is; of much in a thread."""
        model, theirs = attempt.target.model, answered.values

        def compare() -> tuple[list[TextRecord], Pairing]:
            texts = answered_records(attempt.encoded, model.task, values, model.manifest.labels)
            attempt.answers = model.head.observed(values)
            if theirs is None:
                return texts, failed
            seconds, encoded = answered.compared_seconds, (answered.encoded, attempt.encoded)
            made = pair(answered.model, theirs, model, values, seconds, encoded=encoded)
            if model.task in GIVE_VECTORS:
                both = (
                    _vectors(answered.model, encoded[0], theirs),
                    _vectors(model, encoded[1], values),
                )
                packages = answered.model.ref.package, model.ref.package
                shared = self._nearest.count_shared(packages, *both)
                made = msgspec.structs.replace(made, neighbours=shared)
            return texts, made

        size = values.size + NUMBERS_A_ROW * len(values)
        if size <= INLINE_NUMBERS and model.task not in GIVE_VECTORS:
            return compare()
        return await asyncio.get_running_loop().run_in_executor(self._threads, compare)

    def _keep(
        self,
        pairs: KeptPairs,
        answered: AnsweredRequest,
        target: RouteTarget,
        pairing: Pairing,
        texts: list[TextRecord],
    ) -> None:
        """Hands on what may be labelled: texts that have one label each."""
        call, others = answered.call, [text.label for text in texts if text.entities is None]
        labels = [label for label in others if label is not None]
        is_one_each = len(call.texts) == len(labels) == len(pairing.labels)
        if is_one_each and not target.model.manifest.multi_label:
            versions = call.endpoint, pairing.version, target.model.ref.version
            pairs.compared(versions, call.texts, call.pairs, (pairing.labels, labels))

    async def _encode(self, attempt: Attempt, deadline: float) -> None:
        """Encodes the texts with the candidate's own code and tokeniser, in a thread."""
        model = attempt.target.model
        start = monotonic()
        call = attempt.call
        if self._own is not None:
            call = await self._own.prepare(model, call, deadline)
        if model.opened is None:
            late = msgspec.structs.replace(call, deadline=deadline)
            encoded, _ = await self._encoding.encode_in_thread(model, late)
        else:
            encoded = await asyncio.get_running_loop().run_in_executor(
                self._threads, encode, model.opened, call
            )
        attempt.call, attempt.encoded = call, encoded
        attempt.tokenise = monotonic() - start


_DIGITS = 6  # of a distance in an event


def pair(
    answered: ServedModel,
    values: NDArray[np.float32],
    copied: ServedModel,
    others: NDArray[np.float32],
    seconds: float,
    *,
    encoded: tuple[EncodedTexts, EncodedTexts] | tuple[None, None] = (None, None),
) -> Pairing:
    """How far a shadow's answers are from those that the caller got.

    Args:
        answered: the version that answered the caller.
        values: its answer, float32 ``[texts, width]``.
        copied: the shadow's version.
        others: its answer to the same texts; it may have other labels, or another dimension.
        seconds: tokenise + wait + infer of the answer that the caller got.
        encoded: the texts as each version saw them, for heads that need it.
    """
    ours = Side(values, answered.manifest.labels, answered.manifest.multi_label, encoded[0])
    theirs = Side(others, copied.manifest.labels, copied.manifest.multi_label, encoded[1])
    apart = answered.head.difference(ours, theirs)
    norms: list[float] = []
    if encoded[0] is not None and not apart.equal:  # vectors
        task, labels = answered.manifest.task, answered.manifest.labels
        found = [text.norm for text in answered_records(encoded[0], task, values, labels)]
        norms = [norm for norm in found if norm is not None]
    return Pairing(
        answered.ref.version,
        seconds,
        apart.equal,
        _rounded(apart.distance),
        apart.labels,
        _rounded(apart.scores),
        int(HTTPStatus.OK),
        norms,
    )


def _vectors(
    model: ServedModel, encoded: EncodedTexts, values: NDArray[np.float32]
) -> NDArray[np.float32]:
    """A vector of each text, ``[texts, width]``."""
    pooled = model.head.pooled(encoded, values)
    return values if pooled is None else pooled


def _rounded(distance: NDArray[np.floating]) -> list[float]:
    return [round(d, _DIGITS) for d in np.clip(distance, 0.0, 1.0).tolist()]
