"""The way of one prompt through the gateway, from a ``Call`` to a stream of text.

It begins as every other call does: ``Pipeline.begin`` admits it, with as many tokens as it may have
written, chooses its version and encodes it. Then its prompt is sent to Triton alone. A caller gets
an answer once there is a first token: until then a version that fails is made good by its fallback,
as for other calls. A text that breaks off later ends with an error. Whatever becomes of it, its end
is recorded as one event.

No answer is kept for other callers, and no receipt is given: a text has no true label.
"""

import asyncio
import random
from collections import OrderedDict
from dataclasses import dataclass, replace
from http import HTTPStatus
from time import monotonic

from msgspec.structs import replace as with_fields

from contracts.endpoint import Arm
from contracts.manifest import GenerationSpec
from gateway.batching.batcher import Batcher
from gateway.batching.prompts import PromptFlow
from gateway.calls import Call, Sampling
from gateway.engine.protocol import Ending, Prompt, TokenChunk
from gateway.errors import CLIENT_GONE_STATUS, GatewayError, forget_frames
from gateway.inference.attempt import AnsweredRequest, Attempt
from gateway.inference.pipeline import Begun, Pipeline, fallback_deadline
from preprocess.observe import answered as answered_records
from preprocess.tasks.generation import LENGTH, STOP, Finish, values_of
from preprocess.tasks.head import Values
from preprocess.written import Detokeniser

_USUAL_RATE = 0.1  # weight of a new text in the moving average of seconds a token
_TOKEN_SECONDS = 0.01  # before any text was written
_MOST_PACKAGES = 64  # whose seconds a token are remembered
_SEED_BITS = 63


class Progress:
    """What was written of a text so far.

    Attributes:
        tokens: that were written, the one that ends the text included.
        finish: why the text ended, once it has.
    """

    def __init__(self, attempt: Attempt, sampling: Sampling) -> None:
        model = attempt.target.model
        spec = model.manifest.generation
        # A text of an encoder-decoder goes on from no prompt.
        is_apart = spec is not None and spec.start_id is not None
        prompt = () if is_apart else attempt.encoded.ids[0]
        self._written = Detokeniser(model.tokenizer, sampling.stops, prompt)
        self.tokens: list[int] = []
        self.finish: Finish | None = None

    def add(self, part: TokenChunk) -> str:
        """Takes tokens in; returns the text that can be shown now, which may be none."""
        self.tokens += part.tokens
        # The token that ends a text is none of it.
        shown = part.tokens[:-1] if part.ending is Ending.STOPPED else part.tokens
        piece = self._written.add(shown)
        if part.ending is not None:
            piece += self._written.end()
            self.finish = STOP if part.ending is Ending.STOPPED else LENGTH
        if self._written.stopped:
            self.finish = STOP
        return piece

    @property
    def values(self) -> Values:
        """As the task's head has them."""
        return values_of(self.tokens, self.finish)


@dataclass(frozen=True, slots=True)
class Start:
    """A text whose first tokens are there, after ``wait`` seconds."""

    begun: Begun
    attempt: Attempt
    flow: PromptFlow
    first: TokenChunk
    wait: float


class Text:
    """A text that is being written. It has to be closed, or read to its end.

    Attributes:
        start: how it began.
        progress: what was written so far.
        version: that writes it.
        arm: of the version.
        prompt_tokens: of the prompt.
    """

    def __init__(self, generation: "Generation", start: Start, sampling: Sampling) -> None:
        attempt = start.attempt
        self.start = start
        self.progress = Progress(attempt, sampling)
        self._generation = generation
        self._flow = start.flow
        self._pending: TokenChunk | None = start.first
        self._first_at = monotonic()
        self._is_over = False
        self.version = attempt.target.model.ref.version
        self.arm = attempt.target.arm
        self.prompt_tokens = sum(attempt.encoded.tokens)

    @property
    def generated(self) -> int:
        """Tokens that were written so far, the one that ends the text included."""
        return len(self.progress.tokens)

    @property
    def finish(self) -> Finish | None:
        """Why it ended, once it has."""
        return self.progress.finish

    def __aiter__(self) -> "Text":
        """The text in pieces, none of which is empty."""
        return self

    async def __anext__(self) -> str:
        """The next piece.

        Raises:
            GatewayError: the text broke off.
        """
        while not self._is_over:
            try:
                part, self._pending = self._pending, None
                if part is None:
                    part = await self._flow.next()
            except asyncio.CancelledError:
                self._end(CLIENT_GONE_STATUS)
                raise
            except Exception as error:
                self._end(_status(error))
                raise
            piece = self.progress.add(part)
            if self.finish is not None:
                self._end(int(HTTPStatus.OK))
            if piece:
                return piece
        raise StopAsyncIteration

    def close(self) -> None:
        """Ends a text that nobody reads on: as its caller's wish, where it has not ended."""
        self._end(CLIENT_GONE_STATUS)

    def _end(self, status: int) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._flow.close()
        seconds = monotonic() - self._first_at
        self.start.attempt.stages = (self.start.wait, seconds)
        self._generation.ended(self, status, seconds)


class Generation:
    """Writes texts after prompts, by the same pipeline as all other calls."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._seconds: OrderedDict[str, float] = OrderedDict()  # a token, by package

    async def begin(self, call: Call) -> Text:
        """Begins to write; returns with the first token.

        Raises:
            GatewayError: refused, or nothing was written.
        """
        sampling = call.sampling or Sampling(1)
        if sampling.seed is None:
            # A second try, and a shadow, have to choose as the first one.
            sampling = replace(sampling, seed=random.getrandbits(_SEED_BITS))
        begun = await self._pipeline.begin(with_fields(call, sampling=sampling))
        try:
            return await self._first(begun, sampling)
        except BaseException:
            self._pipeline.leave(begun)
            raise

    async def _first(self, begun: Begun, sampling: Sampling) -> Text:
        """Tries the version and, where it gives no token, its fallback, once."""
        pipeline, batcher, attempt = self._pipeline, begun.batcher, begun.attempt
        while True:
            call = attempt.call
            fallback = pipeline.fallback(begun.serving, begun.routes, attempt)
            until = call.deadline
            if fallback is not None:
                usual = fallback[1].wait_seconds(call.endpoint) + _TOKEN_SECONDS
                until = fallback_deadline(monotonic(), until, usual)
            seconds = self._seconds.get(attempt.target.model.ref.package, _TOKEN_SECONDS)
            flow = flow_of(batcher, attempt, sampling, call.deadline, seconds)
            sent = monotonic()
            try:
                if attempt.failure is not None:
                    raise attempt.failure
                first = await flow.first(until)
            except asyncio.CancelledError:
                attempt.stages = (monotonic() - sent, 0.0)
                pipeline.record_failure(attempt, CLIENT_GONE_STATUS, answered=True)
                raise
            except Exception as error:
                attempt.stages = (monotonic() - sent, 0.0)
                if fallback is None or monotonic() >= call.deadline:
                    pipeline.record_failure(attempt, _status(error), answered=True)
                    pipeline.mirror_failure(begun.serving, begun.routes, attempt, _status(error))
                    raise
                target, batcher = fallback
                attempt = await pipeline.second_attempt(attempt, target, error)
                forget_frames(error)
            else:
                return Text(self, Start(begun, attempt, flow, first, monotonic() - sent), sampling)

    def ended(self, text: Text, status: int, seconds: float) -> None:
        """A text has ended, whole or not: records it and gives its tokens back.

        Args:
            text: with what was written.
            status: that the attempt is recorded with.
            seconds: since the first token.
        """
        begun, attempt, values = text.start.begun, text.start.attempt, text.progress.values
        model = attempt.target.model
        found = answered_records(attempt.encoded, model.task, values, model.manifest.labels)
        self._pipeline.record(attempt, status, found, answered=True)
        self._pipeline.leave(begun)
        if status != HTTPStatus.OK:
            self._pipeline.mirror_failure(begun.serving, begun.routes, attempt, status)
            return
        if text.generated > 1:
            self._learn(model.ref.package, seconds / (text.generated - 1))
        if text.arm is Arm.STABLE:
            answered = AnsweredRequest(
                attempt.original or attempt.call,
                model,
                attempt.encoded,
                values,
                attempt.tokenise,
                attempt.tokenise + text.start.wait + seconds,
                written=text.generated,
            )
            self._pipeline.offer_mirror(begun.serving, begun.routes, answered)

    def _learn(self, package: str, seconds: float) -> None:
        before = self._seconds.pop(package, seconds)
        self._seconds[package] = before + _USUAL_RATE * (seconds - before)
        if len(self._seconds) > _MOST_PACKAGES:
            self._seconds.popitem(last=False)


def flow_of(
    batcher: Batcher,
    attempt: Attempt,
    sampling: Sampling,
    deadline: float,
    token_seconds: float = _TOKEN_SECONDS,
) -> PromptFlow:
    """The tokens of an attempt, not begun yet; ``token_seconds``: what each may take."""
    model = attempt.target.model
    ids = attempt.encoded.ids[0]
    # Another version's tokeniser may have made fewer tokens of the prompt.
    spec = model.manifest.generation or GenerationSpec()
    room = spec.room(model.manifest.tokenizer.max_tokens, len(ids))
    prompt = Prompt(
        model=model.name,
        ids=ids,
        most=max(1, min(sampling.most, room)),
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=sampling.seed or 0,
        stop_ids=spec.stop_ids,
    )
    expected = batcher.work_seconds((len(ids),)) + token_seconds * prompt.most
    return PromptFlow(batcher, prompt, deadline, expected=expected)


async def write_again(
    batcher: Batcher, attempt: Attempt, sampling: Sampling, deadline: float
) -> Values:
    """A text that another version has written, by this one, for a comparison.

    Returns:
        Its values, as the task's head has them; ``attempt.stages`` has its times.

    Raises:
        GatewayError: it broke off.
    """
    flow = flow_of(batcher, attempt, sampling, deadline)
    progress = Progress(attempt, sampling)
    sent = first_at = monotonic()
    try:
        progress.add(await flow.first(deadline))
        first_at = monotonic()
        while progress.finish is None:
            progress.add(await flow.next())
    finally:
        flow.close()
        attempt.stages = (first_at - sent, monotonic() - first_at)
    return progress.values


def _status(error: Exception) -> int:
    status = error.status if isinstance(error, GatewayError) else HTTPStatus.INTERNAL_SERVER_ERROR
    return int(status)
