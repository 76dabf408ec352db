"""What the dialects share: the parts of the gateway that they use, text pairs, headers of answers.

A dialect parses the body of a request that has come in to a ``Query``, has ``Front.predict`` answer
it, and renders the answer.
"""

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Annotated, Any, Protocol, TypeVar, cast

import msgspec

from contracts.endpoint import Arm
from contracts.model import ModelRef
from gateway.admission.controller import AdmissionController
from gateway.calls import (
    Answer,
    Call,
    CallerHashes,
    Catalogue,
    EndpointView,
    Predictor,
    Query,
    Sampling,
    memory_of,
)
from gateway.errors import (
    RETRY_AFTER_SECONDS,
    InvalidInputError,
    ModelUnavailableError,
    TooLargeError,
    UnsupportedError,
)
from gateway.http.body import BodyReader
from gateway.http.large_work import INLINE_BYTES, INLINE_NUMBERS, LargeWork
from gateway.http.long_json import encode_answer, encode_long
from gateway.http.messages import Request, decode
from gateway.inference.choices import Choices, begin_choices
from gateway.inference.generation import Generation
from gateway.request_context import RequestContext
from preprocess.errors import ParameterError
from preprocess.tasks import HEADS, Head, SecondText
from preprocess.tasks.head import NAMED
from preprocess.tokens import Token

T = TypeVar("T")


class RequestMetrics(Protocol):
    """Counts requests over HTTP and gRPC, and renders all metrics."""

    def request_finished(self, dialect: str, status: int, seconds: float) -> None:
        """One request answered: ``status`` is HTTP's, gRPC's calls are mapped to it."""

    def pieces(self, *, openmetrics: bool = False) -> Iterator[bytes]:
        """All metrics of the process, in Prometheus's text format or in OpenMetrics'."""

    def of_endpoint(self, endpoint: str) -> bytes:
        """Those of one endpoint alone, in Prometheus's text format."""


class TokenReader(Protocol):
    """Tokens of texts and texts of tokens, as ``gateway.inference.tokens.Tokenisers`` has them."""

    async def tokens(self, call: Call, *, special: bool) -> tuple[ModelRef, Arm, list[list[Token]]]:
        """The tokens of a call's texts, and the version whose they are."""

    async def texts(
        self, call: Call, ids: Sequence[Sequence[int]], *, skip_special: bool
    ) -> tuple[ModelRef, Arm, list[str]]:
        """The texts of token ids, and the version whose they are."""


@dataclass(frozen=True, slots=True)
class Front:
    """The parts of the gateway that dialects use; one for all dialects of a process."""

    endpoints: Catalogue
    admission: AdmissionController
    pipeline: Predictor
    metrics: RequestMetrics
    callers: CallerHashes = field(default_factory=CallerHashes)
    generation: Generation | None = None  # None for a process that writes no text
    tokenisers: TokenReader | None = None  # None for a process that tokenises for no caller
    large: LargeWork = field(default_factory=LargeWork)

    def __post_init__(self) -> None:
        """Has callers charged for what threads do for them."""
        self.large.spend = self.admission.spend

    async def read(self, context: RequestContext, body: bytes, reader: Callable[[bytes], T]) -> T:
        """What a reader makes of a body: here, or of a large one in a thread.

        Time in a thread is charged to the caller too (``AdmissionController.spend``).

        Raises:
            OverloadedError: too much large work waits.
            GatewayError: whatever the reader raises.
        """
        if len(body) <= INLINE_BYTES:
            return reader(body)
        return await self.large.do(partial(reader, body), context)

    async def work(self, context: RequestContext, size: int, work: Callable[[], T]) -> T:
        """What work on this many bytes gives; see ``read``."""
        if size <= INLINE_BYTES:
            return work()
        return await self.large.do(work, context)

    async def render(
        self,
        context: RequestContext,
        answers: Sequence[Answer],
        renderer: Callable[[], object],
        *,
        further: int = 0,
    ) -> bytes:
        """The JSON of what a renderer makes of answers: made here, or of much in a thread.

        Much is of many numbers, or of a request with a large body: answers repeat parts of it.
        ``further``: numbers that it makes beside those of answers.

        Raises:
            OverloadedError: too much large work waits.
            GatewayError: whatever the renderer raises.
        """
        numbers = further
        for answer in answers:
            numbers += answer.values.size
        if numbers <= INLINE_NUMBERS and context.held_bytes <= INLINE_BYTES:
            return encode_answer(renderer())
        return await self.large.do(lambda: encode_long(renderer()), context)

    async def rendered(
        self,
        context: RequestContext,
        answers: Sequence[Answer],
        renderer: Callable[[], T],
        *,
        further: int = 0,
    ) -> T:
        """What a renderer makes of answers, where that is no JSON; see ``render``."""
        numbers = further + sum([each.values.size for each in answers])
        if numbers <= INLINE_NUMBERS and context.held_bytes <= INLINE_BYTES:
            return renderer()
        return await self.large.do(renderer, context)

    async def render_many(
        self, context: RequestContext, numbers: int, renderer: Callable[[], object]
    ) -> bytes:
        """The same, of this many numbers, texts and the like."""
        if numbers <= INLINE_NUMBERS and context.held_bytes <= INLINE_BYTES:
            return encode_answer(renderer())
        return await self.large.do(lambda: encode_long(renderer()), context)

    def predict(
        self, context: RequestContext, view: EndpointView, caller: str | None, query: Query
    ) -> Coroutine[Any, Any, Answer]:
        """Makes a ``Call`` of the texts and has the pipeline answer it.

        Its deadline is the caller's, and at most the endpoint's time limit away.

        Raises:
            InvalidInputError: no text at all, no second texts for a task that reads pairs, or a
                parameter or prompt that the task can't be done with.
            GatewayError: whatever the pipeline refuses or fails with.
        """
        return self._predict(context, view, caller, query, 0, in_parts=False)

    async def _predict(
        self,
        context: RequestContext,
        view: EndpointView,
        caller: str | None,
        query: Query,
        part: int,
        *,
        in_parts: bool,
    ) -> Answer:
        """The same, of one part of a request; see ``predict_in_parts``."""
        if not query.texts:
            raise InvalidInputError(
                "No text was sent: an empty string is a text, an empty list none."
            )
        head = HEADS[view.task]
        if head.generates:
            raise InvalidInputError(
                f"{view.name} does {view.task}, which answers POST /v1/completions alone."
            )
        if query.are_rows != head.reads_rows:
            raise InvalidInputError(
                f"{view.name} does {view.task}: send rows of features, to "
                f"/v1/models/{view.name}:predict or /v2/models/{view.name}/infer."
                if head.reads_rows
                else f"{view.name} does {view.task}, which reads texts, and no rows of features."
            )
        texts, pairs, times = _rows(view, query)
        _check_prompt(view, query.prompt_name)
        is_long = context.held_bytes > INLINE_BYTES and not in_parts
        if is_long:
            context.hold(memory_of(texts, pairs))
            if texts is not query.texts:
                query.texts.clear()  # what is not read of them is to be forgotten
        call = self._call(context, view, caller, query, texts, pairs=pairs, part=part)
        if is_long and not query.kept:
            call = msgspec.structs.replace(call, hold=context.hold)
        context.handed_over = True
        answer = await self.pipeline.predict(call)
        if answer.values.size > INLINE_NUMBERS and context.holding is not None:
            context.holding.resize(context.holding.size + _NUMBER_BYTES * answer.values.size)
        if not query.parameters:
            return answer
        truncated = answer.truncated
        if times > 1:
            truncated = [
                any(truncated[start : start + times]) for start in range(0, len(texts), times)
            ]
        return msgspec.structs.replace(answer, parameters=query.parameters, truncated=truncated)

    async def predict_in_parts(
        self, context: RequestContext, view: EndpointView, caller: str | None, query: Query
    ) -> list[Answer]:
        """Answers single texts, more than the endpoint takes at once, in parts, one by one.

        A part is an event of its own, whose id is the request's with the part's number.

        Returns:
            An answer for each part, in order.

        Raises:
            ModelUnavailableError: parts were answered by different versions, as a rollout moved.
            GatewayError: whatever ``predict`` raises for a part; nothing is answered then.
        """
        texts, most = query.texts, view.max_texts
        if len(texts) <= most:
            return [await self.predict(context, view, caller, query)]
        context.hold(memory_of(texts, None))
        answers = [
            await self._predict(
                context,
                view,
                caller,
                replace(query, texts=texts[start : start + most]),
                part,
                in_parts=True,
            )
            for part, start in enumerate(range(0, len(texts), most))
        ]
        if any(answer.ref != answers[0].ref for answer in answers):
            raise ModelUnavailableError(
                "Another version came to answer in the middle of this request; send it again.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        return answers

    async def generate(
        self,
        context: RequestContext,
        view: EndpointView,
        caller: str | None,
        prompt: str,
        sampling: Sampling,
        *,
        count: int = 1,
    ) -> Choices:
        """Has this many texts written after a prompt; returns as they begin.

        Raises:
            GatewayError: whatever the pipeline refuses or fails with.
        """
        if self.generation is None:
            raise UnsupportedError("This gateway writes no text.")
        if context.bulk:
            raise UnsupportedError("x-headrace-class: models that write take no bulk requests.")

        def call_of(index: int, chosen: Sampling) -> Call:
            return self._call(
                context, view, caller, Query([]), [prompt], sampling=chosen, part=index
            )

        if context.held_bytes > INLINE_BYTES:
            context.hold(memory_of([prompt], None))
        context.handed_over = True
        return await begin_choices(self.generation, call_of, sampling, count)

    async def tokens(
        self,
        context: RequestContext,
        view: EndpointView,
        caller: str | None,
        query: Query,
        *,
        special: bool,
    ) -> tuple[ModelRef, Arm, list[list[Token]]]:
        """The tokens of texts, and the version whose they are.

        Raises:
            GatewayError: see ``Tokenisers.tokens``.
        """
        reader = self._token_reader(view)
        _check_prompt(view, query.prompt_name)
        return await reader.tokens(
            self._call(context, view, caller, query, query.texts), special=special
        )

    async def texts_of_ids(
        self,
        context: RequestContext,
        view: EndpointView,
        caller: str | None,
        ids: Sequence[Sequence[int]],
        *,
        skip_special: bool = True,
    ) -> tuple[ModelRef, Arm, list[str]]:
        """The texts of the model's own token ids, and the version whose they are.

        Raises:
            GatewayError: see ``Tokenisers.texts``.
        """
        reader = self._token_reader(view)
        call = self._call(context, view, caller, Query([]), [])
        return await reader.texts(call, ids, skip_special=skip_special)

    def _token_reader(self, view: EndpointView) -> TokenReader:
        if self.tokenisers is None:
            raise UnsupportedError("This gateway tokenises for no caller.")
        if HEADS[view.task].reads_rows:
            raise InvalidInputError(
                f"{view.name} does {view.task}, which reads rows of features, and no tokens."
            )
        return self.tokenisers

    def _call(
        self,
        context: RequestContext,
        view: EndpointView,
        caller: str | None,
        query: Query,
        texts: list[str],
        *,
        pairs: list[str] | None = None,
        part: int = 0,
        sampling: Sampling | None = None,
    ) -> Call:
        """The call of a request, or of its part with a number above 0, for these texts."""
        return Call(
            endpoint=view.name,
            texts=texts,
            pairs=pairs,
            request_id=f"{context.request_id}.{part}" if part else context.request_id,
            received=context.received,
            started=context.started,
            deadline=context.deadline(view.timeout_seconds),
            # All parts of a request go to one version.
            sticky_key=context.sticky_key or (context.request_id if part else None),
            caller_hash=self.callers.of(view.name, context.sticky_key),
            forced_version=context.forced_version,
            space=context.space,
            bulk=context.bulk,
            caller=caller,
            trace_parent=context.trace_parent,
            truncate=query.truncate,
            prompt_name=query.prompt_name,
            sampling=sampling,
            part=part,
        )


def _rows(view: EndpointView, query: Query) -> tuple[list[str], list[str] | None, int]:
    """The texts for the model with their second texts, and how many are of each of the query."""
    head = HEADS[view.task]
    second_text = head.second_text
    if query.pairs is not None and second_text is SecondText.NONE and not query.ranks:
        raise InvalidInputError(
            f"text_pair: {view.name} does {view.task}, which reads one text at a time."
        )
    try:
        times = head.rows_of_text(query.parameters)
        if times > 1:
            _check_rows(len(query.texts), times, view.max_texts)
        parameters = query.parameters
        if head.counts_named and view.guardrail is not None:
            parameters = {**parameters, NAMED: tuple(view.guardrail.labels)}
        texts, pairs = head.rows(query.texts, query.pairs, parameters)
    except ParameterError as error:
        raise InvalidInputError(f"{error}.") from error
    if pairs is None and second_text is SecondText.REQUIRED:
        raise InvalidInputError(
            f"text_pair: {view.name} does {view.task}, which reads two texts: send a second "
            "one with each."
        )
    return texts, pairs, times


def _check_rows(texts: int, times: int, most: int) -> None:
    """Refuses a request before its rows are made, if they are more than the endpoint takes."""
    if texts * times > most:
        raise TooLargeError(
            f"The request has {texts} texts that become {times} each, {texts * times} together; "
            f"this endpoint takes {most} at once."
        )


def _check_prompt(view: EndpointView, name: str | None) -> None:
    if name is None or name in view.prompts:
        return
    held = f"it has {', '.join(view.prompts)}" if view.prompts else "its model's files name none"
    raise InvalidInputError(f"prompt_name: {view.name} has no prompt {name[:80]!r}; {held}.")


# Of an answer, while it is written as JSON.
_NUMBER_BYTES = 28
_LISTED_TEXTS = 100  # indices in x-headrace-truncated, before it breaks off with "..."


def hold_filling(context: RequestContext, answer: Answer) -> int:
    """Counts the zeros that go behind the vectors of shorter texts, before they are made.

    Returns:
        How many there are.

    Raises:
        OverloadedError: there is no room.
    """
    filling = HEADS[answer.task].count_filling(answer)
    if filling:
        held = 0 if context.holding is None else context.holding.size
        context.hold(held + _NUMBER_BYTES * filling)
    return filling


def answer_headers(answer: Answer) -> list[tuple[bytes, bytes]]:
    """The version, arm and space that answered, the receipt and, where a text was cut, which ones.

    A caller who named no space while another one waits for its cutover is told of that.
    ``x-headrace-truncated`` lists the indices of the texts that were longer than the model takes.
    """
    headers = version_headers(answer.ref.version, answer.arm, answer.ref.space)
    if answer.receipt:
        headers.append((b"x-headrace-receipt", answer.receipt.encode()))
    if answer.next_space:
        headers.append((b"x-headrace-space-next", answer.next_space.encode()))
    if any(answer.truncated):
        headers.append((b"x-headrace-truncated", truncated_texts(answer).encode()))
    return headers


def parts_headers(answers: Sequence[Answer]) -> list[tuple[bytes, bytes]]:
    """``answer_headers`` of a request in parts; no receipt of several, for each has its own."""
    if len(answers) == 1:
        return answer_headers(answers[0])
    truncated = [cut for answer in answers for cut in answer.truncated]
    return answer_headers(msgspec.structs.replace(answers[0], truncated=truncated, receipt=""))


def version_headers(version: str, arm: Arm, space: str = "") -> list[tuple[bytes, bytes]]:
    """The version and arm that answered, and the space of the vectors, if it gives any."""
    return list(_prepare_headers(version, arm, space))


@lru_cache(maxsize=4096)  # three arms or so of each version that is served
def _prepare_headers(version: str, arm: Arm, space: str) -> tuple[tuple[bytes, bytes], ...]:
    named = (
        (b"x-headrace-version", version.encode()),
        (b"x-headrace-arm", arm.value.encode()),
    )
    return (*named, (b"x-headrace-space", space.encode())) if space else named


def truncated_texts(answer: Answer) -> str:
    """Indices of the texts that were cut, comma-separated: ``0,7``."""
    cut = [str(i) for i, truncated in enumerate(answer.truncated) if truncated]
    return ",".join(cut[:_LISTED_TEXTS] + ["..."] * (len(cut) > _LISTED_TEXTS))


def require_kind(view: EndpointView, kind: str, place: str, what: str) -> Head:
    """The endpoint's head, on a route that is for tasks which give one kind of values.

    ``place`` is the field that names the endpoint, ``what`` what needs the kind, with its verb.

    Raises:
        InvalidInputError: the endpoint does something else.
    """
    head = HEADS[view.task]
    if kind not in head.kinds:
        able = " or ".join(task for task, other in HEADS.items() if kind in other.kinds)
        raise InvalidInputError(
            f"{place}: {view.name} does {view.task}; {what} an endpoint of {able}."
        )
    return head


# Text, text_pair, question and context, as they may be there together.
_SENT = {
    (True, False, False, False),
    (True, True, False, False),
    (False, False, True, True),
}


class Pair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text, alone or with the second one that is read with it; or a question with its context.

    One question may have a list of contexts, which are read one by one.
    """

    text: str | msgspec.UnsetType = msgspec.UNSET
    text_pair: str | msgspec.UnsetType | None = msgspec.UNSET
    question: str | msgspec.UnsetType = msgspec.UNSET
    context: str | list[str] | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_whole(self) -> bool:
        """Whether it is one of both, and nothing of the other."""
        fields = (self.text, self.text_pair, self.question, self.context)
        return tuple(value is not msgspec.UNSET for value in fields) in _SENT


TextOrPair = str | Pair
Texts = Annotated[list[TextOrPair], msgspec.Meta(min_length=1)]


def query_of(
    field: str,
    items: Sequence[TextOrPair],
    parameters: Mapping[str, Any] | None = None,
    prompt_name: str | None = None,
    *,
    truncate: bool = True,
) -> Query:
    """The texts of a body's field, and what goes with them (see ``Query``).

    Raises:
        InvalidInputError: an item is no whole text, pair or question.
    """
    texts: list[str] = []
    pairs: list[str] = []
    for index, item in enumerate(items):
        if isinstance(item, str):
            texts.append(item)
        elif not item.is_whole:
            raise InvalidInputError(
                f"{field}[{index}]: expected text, with or without text_pair, or question with "
                "context."
            )
        elif isinstance(item.question, str):
            contexts = item.context if isinstance(item.context, list) else [str(item.context)]
            if len(items) > 1 and isinstance(item.context, list):
                raise InvalidInputError(
                    f"{field}: a list of contexts goes with one question; of several questions "
                    "each has one context."
                )
            if not contexts:
                raise InvalidInputError(f"{field}: the list of contexts is empty.")
            texts += [item.question] * len(contexts)
            pairs += contexts
        elif isinstance(item.text, str):
            texts.append(item.text)
            if isinstance(item.text_pair, str):
                pairs.append(item.text_pair)
    if pairs and len(pairs) != len(texts):
        raise InvalidInputError(f"{field}: either every text has a text_pair or none has.")
    return Query(texts, pairs or None, truncate, parameters or {}, prompt_name)


TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Ids = Annotated[list[TokenId], msgspec.Meta(min_length=1)]
# One text or many; of a list all are texts, all are ids of one text, or all are lists of ids.
TextsOrIds = str | Annotated[list[str | TokenId | Ids], msgspec.Meta(min_length=1)]


def texts_and_ids(
    field: str, given: str | Sequence[str | int | list[int]]
) -> tuple[list[str], list[list[int]]]:
    """The texts of a field, or instead the token ids of each; raises ``InvalidInputError``."""
    if isinstance(given, str):
        return [given], []
    kinds = set(map(type, given))
    if len(kinds) > 1:
        raise InvalidInputError(
            f"{field}: expected texts alone, the token ids of one text, or a list of such lists."
        )
    if kinds == {str}:
        return cast("list[str]", given), []
    if kinds == {int}:
        return [], [cast("list[int]", given)]
    return [], cast("list[list[int]]", given)


class _EndpointName(msgspec.Struct, frozen=True):
    """The endpoint alone: all that is read of a body before there is room for it."""

    model: str


_name_decoder = msgspec.json.Decoder(_EndpointName)


def endpoint_of(body: bytes) -> str:
    """The endpoint that a body names as its ``model``; raises ``BadRequestError``."""
    return decode(_name_decoder, body).model


async def enter_named(
    front: Front, bodies: BodyReader, request: Request
) -> tuple[bytes, EndpointView, str | None]:
    """The body of a request whose caller was recognised, and the endpoint that it names.

    Nothing but the name is parsed before admission has let the request in.

    Returns:
        The body, the endpoint as it is now, and the caller's name.

    Raises:
        GatewayError: see ``BodyReader.read``, ``endpoint_of`` and ``AdmissionController.enter``.
    """
    body = await bodies.read(request)
    name = await front.read(request.context, body, endpoint_of)
    view, caller = await front.admission.enter(request.context, name)
    return body, view, caller


def endpoint_in(body: bytes) -> str | None:
    """The endpoint that a body names; None for one that can't be read, or is compressed."""
    try:
        return _name_decoder.decode(body).model
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
