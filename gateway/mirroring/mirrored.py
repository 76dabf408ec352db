"""One copy of a request on its way to a version on trial: infer, compare, record.

``shadow.py`` decides which copies are sent, and when. Each one that is sent ends in one event,
whatever the candidate does; its answer is compared with stable's and dropped.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from time import monotonic

from gateway.batching.batcher import Batcher
from gateway.errors import GatewayError
from gateway.events.buffer import Recorder
from gateway.inference.attempt import AnsweredRequest, Attempt, event_of
from gateway.mirroring.pairing import pair
from gateway.routing.routes import RouteTarget
from gateway.telemetry.metrics import Metrics
from preprocess.observe import answered as answered_records
from preprocess.observe import unanswered as unanswered_records

log = logging.getLogger(__name__)


class MirroredRequests:
    """Runs the mirrored requests of one process.

    Args:
        recorder: hears of each copy's attempt.
        metrics: counts them.
    """

    def __init__(self, recorder: Recorder, metrics: Metrics) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="shadow")

    def close(self) -> None:
        """Ends the thread; nothing may be under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(
        self,
        answered: AnsweredRequest,
        target: RouteTarget,
        batcher: Batcher,
        timeout_seconds: float,
    ) -> None:
        """Runs one copy; raises nothing but its own cancellation, of which nothing is told.

        Args:
            answered: the request and what its caller got.
            target: the candidate.
            batcher: the candidate's.
            timeout_seconds: as for any caller of the endpoint.
        """
        call, model = answered.call, target.model
        attempt = Attempt(call, target, answered.encoded, answered.tokenise)
        status, texts, pairing = int(HTTPStatus.OK), None, None
        try:
            if not model.encodes_like(answered.model):
                await self._encode(attempt)
            attempt.job = batcher.submit(
                attempt.encoded, call.endpoint, monotonic() + timeout_seconds
            )
            values = await attempt.job.future
            texts = answered_records(attempt.encoded, model.task, values, model.manifest.labels)
            pairing = pair(answered.model, answered.values, model, values, answered.seconds)
        except GatewayError as error:
            status = int(error.status)
        except asyncio.CancelledError:
            if attempt.job is not None:
                batcher.abandon(attempt.job)
            raise
        except Exception:
            # Whatever it is, the candidate met it and the caller did not.
            log.exception("a shadow failed", extra={"request_id": call.request_id})
            status = int(HTTPStatus.INTERNAL_SERVER_ERROR)
        if texts is None:
            texts = unanswered_records(attempt.encoded)
        event = event_of(attempt, status, texts, answered=False, pairing=pairing)
        self._recorder.attempt(event)
        self._metrics.attempt_finished(event, len(texts), sum(attempt.encoded.tokens))

    async def _encode(self, attempt: Attempt) -> None:
        """The texts in the candidate's own tokens, off the event loop."""
        call, encoder = attempt.call, attempt.target.model.encoder
        start = monotonic()
        attempt.encoded = await asyncio.get_running_loop().run_in_executor(
            self._threads, encoder.encode, call.texts, call.pairs
        )
        attempt.tokenise = monotonic() - start
