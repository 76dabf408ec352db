"""The way of one request through the gateway, from a ``Call`` to its ``Answer``.

Read ``Pipeline.predict`` downward. Before it, the dialect has parsed the request, and admission has
checked its headers (``AdmissionController.enter``). Here admission checks its contents. The request
is routed to a version, and its texts are encoded to tokens. If the endpoint keeps answers, known
ones are taken from its cache. The other texts are batched with those of other calls, and Triton
runs the batches. The result is recorded as an event and returned. If a version fails during a
rollout, the fallback version is tried, once. A request never waits for the event stream or for the
shadow.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from contracts.endpoint import Arm
from contracts.events import PredictionEvent, TextRecord
from contracts.manifest import GenerationSpec
from contracts.tasks import Task
from contracts.windows import UNSERVED
from gateway.admission.controller import AdmissionController
from gateway.batching.batcher import Batcher
from gateway.calls import Answer, Call, memory_of
from gateway.engine.large_answers import beside
from gateway.errors import (
    CLIENT_GONE_STATUS,
    GatewayError,
    InvalidInputError,
    TooLargeError,
    forget_frames,
)
from gateway.events.buffer import Recorder
from gateway.http.large_work import INLINE_NUMBERS
from gateway.inference.attempt import AnsweredRequest, Attempt, event_of
from gateway.inference.encoding import Encoding, cut
from gateway.inference.own_code import OwnCode
from gateway.inference.receipts import Receipts
from gateway.inference.serving import ServedEndpoints, Serving
from gateway.routing.routes import EndpointRoutes, RouteTarget, Shadow
from gateway.telemetry.metrics import Metrics
from preprocess.directions import cells_of
from preprocess.encoder import EncodedTexts
from preprocess.observe import answered as answered_records
from preprocess.observe import unanswered as unanswered_records

# Time before a request's deadline that is reserved for the fallback version.
_RESERVED_MARGIN = 2.0  # times the usual time of an attempt, see ``_usual_seconds``
_LEAST_RESERVED_SECONDS = 0.05  # what an attempt takes besides engine time, on a busy gateway
# Where more than this share of the remaining time would be reserved, nothing is: otherwise the
# version would fail for want of time, and the rollout would be judged by that.
_MOST_RESERVED = 0.5
# A row of values is as much work to record as this many numbers.
NUMBERS_A_ROW = 32


class Tracer(Protocol):
    """Emits OpenTelemetry spans, where tracing is configured."""

    def attempt(self, call: Call, event: PredictionEvent, task: Task) -> str:
        """Emits one attempt with a span for each of its stages.

        Gives the id of its trace, and an empty one where none is kept.
        """


class Mirror(Protocol):
    """Mirrors requests to a rollout's shadow."""

    def offer(
        self,
        shadow: Shadow,
        answered: AnsweredRequest,
        batchers: Mapping[str, Batcher],
        timeout_seconds: float,
    ) -> None:
        """Takes a request that stable has answered or failed at, or drops it; never waits."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A call that was admitted: how it is served, its first attempt, and the tokens it holds."""

    serving: Serving
    routes: EndpointRoutes
    batcher: Batcher
    attempt: Attempt
    tokens: int


class Pipeline:
    """Answers the calls of one process. It is the ``Predictor`` of every dialect.

    Args:
        endpoints: the endpoints that are served now.
        admission: admits or refuses requests.
        recorder: is told of every attempt, for the event stream.
        metrics: counts attempts.
        tracer: emits spans; None for none.
        mirror: mirrors requests to shadows; None for no mirroring.
        receipts: sign answers, so that callers can send feedback; None if feedback is off.
        own: users' own preprocessing and postprocessing; None if there can be none.
        encoding: tokenises; None if every tokeniser is in this process.
    """

    def __init__(
        self,
        endpoints: ServedEndpoints,
        admission: AdmissionController,
        recorder: Recorder,
        metrics: Metrics,
        tracer: Tracer | None = None,
        *,
        mirror: Mirror | None = None,
        receipts: Receipts | None = None,
        own: OwnCode | None = None,
        encoding: Encoding | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._admission = admission
        self._recorder = recorder
        self._metrics = metrics
        self._tracer = tracer
        self._mirror = mirror
        self._receipts = receipts
        self._own = own
        self.encoding = encoding or Encoding()
        self._running = 0
        self._all_answered: asyncio.Event | None = None

    async def predict(self, call: Call) -> Answer:
        """Answers a call as a whole, its texts in order; raises a ``GatewayError`` otherwise."""
        begun = await self.begin(call)
        try:
            return await self._answer(begun.serving, begun.routes, begun.batcher, begun.attempt)
        finally:
            self.leave(begun)

    async def begin(self, call: Call) -> Begun:
        """Admits and encodes a call; ``leave`` has to follow.

        Raises:
            GatewayError: it is refused.
        """
        began = monotonic()
        # Kept to the end of the call, even if another snapshot is swapped in meanwhile.
        serving = self._endpoints.serving
        routes = serving.table[call.endpoint]
        limits = routes.endpoint.spec.limits
        self._running += 1
        try:
            try:
                self._admission.check_body(call, limits)
                target, batcher = self._route(serving, routes, call, began)
                if self._own is not None:
                    call = self._own.receive(call)
                if routes.endpoint.spec.unk_words.enabled:
                    call = msgspec.structs.replace(call, unk_words=True)
                attempt = await self._encode(target, call, _code_deadline(routes, target, call))
                encoded = attempt.encoded
                if encoded.seen is not None:
                    _forget_unread(routes, attempt)
                manifest = target.model.manifest
                longest = manifest.tokenizer.max_tokens
                written = 0 if call.sampling is None else call.sampling.most
                if written:
                    _refuse_without_room(encoded, written, longest, manifest.generation)
                elif not call.truncate:
                    _refuse_truncated(encoded, longest)
                tokens = sum(encoded.tokens)
                if attempt.failure is None:
                    batcher.learn_length(attempt.call.characters(), tokens)
                tokens += written
                if attempt.failure is not None and monotonic() >= call.deadline:
                    tokens = 0  # the version has failed, and it is too late for another
                else:
                    self._admission.reserve(call, tokens, limits)
            except (Exception, asyncio.CancelledError) as error:
                self._admission.refused_call(call, error)
                raise
        except BaseException:
            self._ended()
            raise
        attempt.queue = max(0.0, began - call.started)
        return Begun(serving, routes, batcher, attempt, tokens)

    def leave(self, begun: Begun) -> None:
        """A call has been answered or has failed: its tokens are free again."""
        self._admission.release(begun.attempt.call, begun.tokens)
        self._ended()

    def _ended(self) -> None:
        self._running -= 1
        if self._all_answered is not None and self._running == 0:
            self._all_answered.set()

    def tokens_in_flight(self) -> dict[str, int]:
        """Tokens in flight: of every served endpoint, even if 0, and of any other that has some."""
        served = dict.fromkeys(self._endpoints.serving.table.endpoints, 0)
        return served | self._admission.tokens_in_flight()

    async def drained(self) -> None:
        """Has admission refuse new requests, and waits until all running ones are answered."""
        self._admission.close()
        self._all_answered = asyncio.Event()
        if self._running:
            await self._all_answered.wait()
        self.encoding.close()

    def _route(
        self, serving: Serving, routes: EndpointRoutes, call: Call, now: float
    ) -> tuple[RouteTarget, Batcher]:
        """The version to try: the routed one, or its fallback if only that one has capacity.

        Raises:
            GatewayError: neither has, or an unknown version is forced.
        """
        key = call.sticky_key or call.request_id
        targets = routes.target_and_fallback(key, call.forced_version, call.space)
        of_pool = serving.batchers_of(routes)
        batchers = [of_pool.get(target.model.ref.package) for target in targets]
        limits = routes.endpoint.spec.limits
        index, batcher = self._admission.pick_version(call, limits, batchers, now)
        if call.bulk:  # its waits are no version's, and no rollout is judged by them
            return RouteTarget(Arm.FORCED, targets[index].model), batcher
        return targets[index], batcher

    async def _encode(self, target: RouteTarget, call: Call, code_deadline: float) -> Attempt:
        """Encodes a call's texts for the version; gives the attempt, nothing of it inferred yet.

        Where the version brings code, they are what that makes of them. If it fails, the attempt
        has failed before it began; its texts are those that came.

        Raises:
            GatewayError: texts that can't be encoded.
        """
        model, original = target.model, call
        failure: GatewayError | None = None
        seconds = 0.0
        if model.code is not None and self._own is not None:
            began = monotonic()
            try:
                call = await self._own.prepare(model, call, code_deadline)
            except GatewayError as error:
                failure = error
            seconds = monotonic() - began
        encoded, tokenise = self.encoding.encode_inline(
            model, call
        ) or await self.encoding.encode_in_thread(model, call)
        attempt = Attempt(call, target, encoded, tokenise + seconds)
        attempt.original, attempt.failure = original, failure
        return attempt

    async def _answer(
        self, serving: Serving, routes: EndpointRoutes, batcher: Batcher, attempt: Attempt
    ) -> Answer:
        """Tries the version. If it fails and there is a fallback, tries the fallback, once."""
        call = attempt.call
        fallback = self.fallback(serving, routes, attempt)
        attempt.waits = fallback is None
        deadline = call.deadline
        if fallback is not None:
            usual = _usual_seconds(fallback[1], call.endpoint, attempt.encoded.tokens)
            deadline = fallback_deadline(monotonic(), deadline, usual)
        try:
            if attempt.failure is not None:
                raise attempt.failure
            values = await self._values(batcher, attempt, deadline)
            if self._own is not None:
                values = await self._own.finish(attempt, values, deadline)
            if values.size + NUMBERS_A_ROW * len(values) > INLINE_NUMBERS:
                records = await beside(partial(_records_of, attempt, values))
            else:
                records = _records_of(attempt, values)
        except asyncio.CancelledError:
            self.record_failure(attempt, CLIENT_GONE_STATUS, answered=True)
            raise
        except Exception as error:
            # An error that is no GatewayError is a bug: ``gateway.app`` logs it and answers 500.
            if fallback is None or monotonic() >= call.deadline:
                self.record_failure(attempt, _status(error), answered=True)
                self.mirror_failure(serving, routes, attempt, _status(error))
                raise
            target, batcher = fallback
            second = await self.second_attempt(attempt, target, error)
            forget_frames(error)
        else:
            answer = self._record_answer(routes, attempt, values, records)
            if routes.shadow is not None:
                self._offer_mirror(serving, routes, attempt, values)
            return answer
        return await self._answer(serving, routes, batcher, second)

    async def _values(
        self, batcher: Batcher, attempt: Attempt, deadline: float
    ) -> NDArray[np.float32]:
        """The decoded values of all rows; raises at the deadline.

        Those that the endpoint's answer cache holds are not inferred.
        """
        call = attempt.call
        cache = self._endpoints.caches.get(call.endpoint)
        if cache is None or call.bulk:
            return await self._infer(batcher, attempt, attempt.encoded, deadline)
        values, cached = await cache.answer(
            attempt.target.model.ref.package,
            call.caller,
            attempt.encoded,
            lambda encoded: self._infer(batcher, attempt, encoded, deadline),
            deadline,
            sizes=attempt.target.model.head.sizes,
        )
        attempt.cached = _cached_texts(attempt.encoded, cached)
        return values

    async def _infer(
        self, batcher: Batcher, attempt: Attempt, encoded: EncodedTexts, deadline: float
    ) -> NDArray[np.float32]:
        call = attempt.call
        job = attempt.job = batcher.submit(
            encoded, call.endpoint, deadline, waits=attempt.waits, bulk=call.bulk
        )
        try:
            values = await job.future
        except asyncio.CancelledError:
            batcher.abandon(job)
            raise
        now = monotonic()
        if not call.bulk and batcher.share.measures(now):
            seconds = now - call.started - attempt.queue
            batcher.share.note_answer(now, call.endpoint, seconds, job.delay)
        return values

    def _record_answer(
        self,
        routes: EndpointRoutes,
        attempt: Attempt,
        values: NDArray[np.float32],
        records: list[TextRecord],
    ) -> Answer:
        """Records a successful attempt, and makes the answer of it."""
        model, encoded = attempt.target.model, attempt.encoded
        manifest = model.manifest
        call, next_space = attempt.call, routes.next_space
        if call.space is not None:
            self._metrics.space_named(call.endpoint, model.ref.space)
        if next_space:  # a migration, which changes the vectors of those who name nothing
            if call.space is None and call.forced_version is None:
                self._metrics.space_unnamed(call.endpoint)
            else:
                next_space = ""
        event = self.record(attempt, int(HTTPStatus.OK), records, answered=True)
        return Answer(
            task=manifest.task,
            ref=model.ref,
            arm=attempt.target.arm,
            values=values,
            tokens=encoded.tokens,
            truncated=encoded.truncated_texts(),
            labels=manifest.labels,
            multi_label=manifest.multi_label,
            receipt="" if self._receipts is None else self._receipts.issue(event),
            encoded=encoded,
            ranges=model.ranges,
            next_space=next_space,
        )

    def record(
        self, attempt: Attempt, status: int, records: list[TextRecord], *, answered: bool
    ) -> PredictionEvent:
        """Records how an attempt has ended; ``answered``: with what its caller gets."""
        total = max(0.0, monotonic() - attempt.call.started)
        event = event_of(attempt, status, records, answered=answered, total=total)
        self._recorder.attempt(event)
        if attempt.call.bulk:
            space = attempt.target.model.ref.space
            self._metrics.bulk_finished(event.endpoint, status, len(records), space)
        else:
            self._metrics.attempt_finished(event, len(records), sum(attempt.encoded.tokens))
        if self._tracer is not None:
            trace_id = self._tracer.attempt(attempt.call, event, attempt.target.model.manifest.task)
            if trace_id and not attempt.call.bulk:
                self._metrics.attempt_traced(event, trace_id)
        return event

    def _offer_mirror(
        self,
        serving: Serving,
        routes: EndpointRoutes,
        attempt: Attempt,
        values: NDArray[np.float32],
    ) -> None:
        """Offers the mirror this request for the shadow, if stable has answered it by inference.

        It may be dropped: only a share of the requests is mirrored, and only with spare capacity.
        """
        job = attempt.job
        if self._mirror is None or job is None or attempt.target.arm is not Arm.STABLE:
            return
        if attempt.cached:  # its time can't be compared with the shadow's
            return
        model = attempt.target.model
        seconds = attempt.tokenise + sum(job.times)
        answered = AnsweredRequest(
            attempt.original or attempt.call,
            model,
            attempt.encoded,
            values,
            attempt.tokenise,
            seconds,
        )
        self.offer_mirror(serving, routes, answered)

    def offer_mirror(
        self, serving: Serving, routes: EndpointRoutes, answered: AnsweredRequest
    ) -> None:
        """Offers the mirror what stable has answered, where the endpoint has a shadow."""
        if self._mirror is not None and routes.shadow is not None:
            timeout = routes.endpoint.spec.limits.timeout_seconds
            self._mirror.offer(routes.shadow, answered, serving.batchers_of(routes), timeout)

    def mirror_failure(
        self, serving: Serving, routes: EndpointRoutes, attempt: Attempt, status: int
    ) -> None:
        """Offers the mirror a request that stable has failed at, as it does those answered.

        Otherwise the shadow would get only requests that stable can answer, and every failure that
        has another cause than the version would count against it.
        """
        if routes.shadow is None or attempt.target.arm is not Arm.STABLE or attempt.cached:
            return
        if status < HTTPStatus.INTERNAL_SERVER_ERROR or status == UNSERVED:
            return
        failed = AnsweredRequest(
            attempt.original or attempt.call,
            attempt.target.model,
            attempt.encoded,
            None,
            attempt.tokenise,
            0.0,
            status=status,
        )
        self.offer_mirror(serving, routes, failed)

    # The fallback for a version that fails during a rollout.

    def fallback(
        self, serving: Serving, routes: EndpointRoutes, attempt: Attempt
    ) -> tuple[RouteTarget, Batcher] | None:
        """The version to try if this attempt fails. None for no fallback, or no Triton for it."""
        if attempt.repeated or len(routes.targets) < 2:
            return None
        target = routes.fallback_of(attempt.target)
        if target is None:
            return None
        batcher = serving.batchers_of(routes).get(target.model.ref.package)
        if batcher is None or not batcher.serves:
            return None
        return target, batcher

    async def second_attempt(
        self, attempt: Attempt, target: RouteTarget, error: Exception
    ) -> Attempt:
        """Records the failed attempt and makes one at the same call on the fallback version.

        The texts are encoded again if that version has another tokeniser.

        Raises:
            Exception: ``error`` itself, where the texts can't be encoded for the fallback.
        """
        call = attempt.original or attempt.call
        if target.model.encodes_like(attempt.target.model):
            second = Attempt(call, target, attempt.encoded, attempt.tokenise)
        else:
            try:
                second = await self._encode(target, call, call.deadline)
            except asyncio.CancelledError:
                self.record_failure(attempt, CLIENT_GONE_STATUS, answered=True)
                raise
            except GatewayError:
                self.record_failure(attempt, _status(error), answered=True)
                raise error from None
        self.record_failure(attempt, _status(error), answered=False)
        second.queue, second.repeated = attempt.queue, True
        return second

    def record_failure(self, attempt: Attempt, status: int, *, answered: bool) -> None:
        """Records an attempt that gave no answer; see ``record``."""
        self.record(attempt, status, unanswered_records(attempt.encoded), answered=answered)


def _records_of(attempt: Attempt, values: NDArray[np.float32]) -> list[TextRecord]:
    """What is recorded of each text, and in the attempt what is counted of all of them."""
    model, encoded = attempt.target.model, attempt.encoded
    manifest = model.manifest
    attempt.answers = model.head.observed(values)
    vectors = model.head.pooled(encoded, values)
    if vectors is not None:
        attempt.vectors = cells_of(vectors)
    return answered_records(encoded, manifest.task, values, manifest.labels)


def _forget_unread(routes: EndpointRoutes, attempt: Attempt) -> None:
    """Cuts long texts to what was read of them, if nobody else may read them.

    In their own lists, which the caller of this holds too.
    """
    call, model, seen = attempt.call, attempt.target.model, attempt.encoded.seen
    if seen is None or call.hook_state is not None or routes.shadow is not None:
        return
    if call.unk_words and attempt.encoded.unknown is None:
        return  # these are looked up later, and of long texts not at all
    if all(model.encodes_like(other) for other in routes.models()):
        cut(call.texts, seen[0])
        if call.pairs is not None:
            cut(call.pairs, seen[1])
        if call.hold is not None:
            call.hold(memory_of(call.texts, call.pairs))


def _code_deadline(routes: EndpointRoutes, target: RouteTarget, call: Call) -> float:
    """Until when a version's code may take: where there is a fallback, half of the time is its."""
    if routes.fallback_of(target) is None:
        return call.deadline
    now = monotonic()
    return now + _MOST_RESERVED * (call.deadline - now)


def fallback_deadline(now: float, deadline: float, usual: float) -> float:
    """The deadline of a first attempt, early enough for the fallback version to answer after it.

    Args:
        now: the event loop's clock, seconds.
        deadline: the caller's, by the same clock.
        usual: seconds that the fallback version usually takes.
    """
    reserved = max(_LEAST_RESERVED_SECONDS, _RESERVED_MARGIN * usual)
    if reserved > _MOST_RESERVED * (deadline - now):
        return deadline
    return deadline - reserved


def _usual_seconds(batcher: Batcher, endpoint: str, tokens: Sequence[int]) -> float:
    """Estimated seconds to answer texts with these numbers of tokens: queueing and inference."""
    # The tokens are counted by another version, whose rows may be longer than this one takes.
    longest = batcher.model.buckets[-1]
    rows = [min(count, longest) for count in tokens]
    bucket = batcher.model.bucket_of(max(rows))
    batch = batcher.cost.seconds(bucket, batcher.cost.best_rows(bucket))
    return batcher.wait_seconds(endpoint) + max(batch, batcher.work_seconds(rows))


def _cached_texts(encoded: EncodedTexts, rows: int) -> int:
    """How many texts count as cached, if the cache answered this many rows.

    It does not say of which texts they are: each row counts as a text, and all texts count only if
    it answered all rows.
    """
    if encoded.windows is None and encoded.sides is None:
        return rows
    texts = len(encoded.statistics())
    return texts if rows == len(encoded) else min(rows, texts - 1)


def _refuse_truncated(encoded: EncodedTexts, most: int) -> None:
    """Refuses texts of more than ``most`` tokens, for a caller who wants none to be cut.

    Raises:
        TooLargeError: names the first one, by its place among the request's texts.
    """
    truncated = encoded.truncated_texts()
    if True in truncated:
        raise TooLargeError(
            f"Text {truncated.index(True)} has more than the {most} tokens that the model "
            "takes, special tokens included: shorten it, or allow that it is truncated."
        )


def _refuse_without_room(
    encoded: EncodedTexts, more: int, most: int, spec: GenerationSpec | None
) -> None:
    """Refuses a prompt after which there is no room for what should be written.

    Raises:
        InvalidInputError: prompt and text are longer than the model takes.
    """
    tokens = sum(encoded.tokens)
    are_apart = spec is not None and spec.start_id is not None
    if any(encoded.truncated):
        of_what = "of a prompt" if are_apart else "prompt and text together"
        raise InvalidInputError(
            f"prompt: it has more than the {most} tokens that the model takes, {of_what}."
        )
    if are_apart and more > most:
        raise InvalidInputError(
            f"max_tokens: {more} are more than the {most} that the model writes."
        )
    if not are_apart and tokens + more > most:
        raise InvalidInputError(
            f"max_tokens: the prompt has {tokens} tokens, and with {more} more there are more than "
            f"the {most} that the model takes; {most - tokens} are left."
        )


def _status(error: Exception) -> int:
    return int(getattr(error, "status", HTTPStatus.INTERNAL_SERVER_ERROR))
