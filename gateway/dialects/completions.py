"""OpenAI's completions: ``POST /v1/completions``, with the endpoint's name as ``model``.

The unmodified ``openai`` client works, streamed (server-sent events) and not. Chat is not offered,
nor are arrays of tokens or several prompts: a field that would change the answer is refused, and
never ignored. Without ``temperature`` tokens are chosen by chance, as at OpenAI; 0 takes the most
likely one each time. ``n`` texts after one prompt are written at the same time, each with an index;
none is chosen among more (``best_of``). A stream that breaks off ends with an event that has an
``error``, and without ``[DONE]``.
"""

import time
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from contracts.tasks import WRITTEN
from gateway.calls import EndpointView, Sampling
from gateway.dialects.described import prediction_operation
from gateway.dialects.front import Front, endpoint_in, enter_named, require_kind, version_headers
from gateway.dialects.reading import decode_counted
from gateway.errors import GatewayError, InvalidInputError, internal_error
from gateway.http.body import BodyReader
from gateway.http.error_replies import ErrorForm
from gateway.http.messages import Reply, Request, StreamReply, encode
from gateway.http.router import Route
from gateway.inference.choices import Choices
from preprocess.tasks.generation import Finish

_MOST_STOPS = 4
_INT64 = 2**63 - 1

# Read only to be refused with a sentence, so the document names texts alone.
_Prompt = Annotated[
    str | list[str | int | list[int]], msgspec.Meta(extra_json_schema={"type": "string"})
]
_Stop = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Seed = Annotated[int, msgspec.Meta(ge=-_INT64, le=_INT64)]


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a stream: whether an event before the last tells the tokens."""

    include_usage: bool = False


class CompletionsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request. ``user`` has no meaning here; fields after it are taken at these values."""

    model: str
    prompt: _Prompt
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    seed: _Seed | None = None
    stop: _Stop | Annotated[list[_Stop], msgspec.Meta(max_length=_MOST_STOPS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    n: Annotated[int, msgspec.Meta(ge=1)] | None = None
    best_of: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    logprobs: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None


class Choice(TypedDict):
    """One of the texts. ``finish_reason`` is null in a stream until that text has ended."""

    text: str
    index: int
    logprobs: None
    finish_reason: Finish | None


class Usage(TypedDict):
    """Tokens of the prompt, and those of all texts, the ones that ended them included."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionsResponse(TypedDict):
    """The texts, or in a stream a part of one."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | None


_PATH = "/v1/completions"
_USUAL_TOKENS = 16
_COMPLETE = prediction_operation(
    _PATH,
    "OpenAI",
    CompletionsRequest,
    CompletionsResponse,
    {"greedy": {"model": "writer", "prompt": "A film", "max_tokens": 8, "temperature": 0}},
    summary="Write text after a prompt",
    description=(
        "Of endpoints of text-generation. With stream, server-sent events of the same form as they "
        "come, and [DONE] behind the last; one that has an error ends the stream."
    ),
)

# Fields that would change the answer, and the values at which they don't.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "echo": (None, False),
    "suffix": (None, ""),
    "logprobs": (None,),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
}

_decoder = msgspec.json.Decoder(CompletionsRequest)


class Completions:
    """The dialect's route."""

    def __init__(self, front: Front, bodies: BodyReader) -> None:
        self._front = front
        self._bodies = bodies

    def routes(self) -> list[Route]:
        """What the application serves for this dialect."""
        return [
            Route(
                "POST",
                _PATH,
                self.completions,
                "openai",
                _COMPLETE,
                ErrorForm.OPENAI,
                predicts=True,
                endpoint_in=endpoint_in,
            )
        ]

    async def completions(self, request: Request) -> Reply | StreamReply:
        """Writes a text, or several."""
        context = request.context
        encoded, view, caller = await enter_named(self._front, self._bodies, request)
        body = await self._front.read(
            request.context, encoded, partial(decode_counted, _decoder, view)
        )
        prompt = check(body, view)
        choices = await self._front.generate(
            context, view, caller, prompt, sampling(body), count=body.n or 1
        )
        answer = _Answer(choices, view.name, context.request_id)
        first = choices.texts[0]
        headers = version_headers(first.version, first.arm)
        if not body.stream:
            return Reply(encode(await answer.whole()), headers=headers)
        options = body.stream_options
        events = Events(answer, with_usage=options is not None and options.include_usage)
        headers.append((b"cache-control", b"no-cache"))
        return StreamReply(events, b"text/event-stream; charset=utf-8", headers)


def check(body: CompletionsRequest, view: EndpointView) -> str:
    """The prompt of a body that can be answered; raises ``InvalidInputError``."""
    require_kind(view, WRITTEN, "model", "completions need")
    for name, neutral in _NEUTRAL.items():
        if getattr(body, name) not in neutral:
            raise InvalidInputError(f"{name}: it is not offered here; leave it out.")
    count, most = body.n or 1, min(view.rows, view.max_texts)
    if count > most:
        raise InvalidInputError(
            f"n: this endpoint writes {most} texts at once (its maxBatchSize, or "
            "maxTextsPerRequest)."
        )
    if body.best_of not in (None, count):
        raise InvalidInputError(
            "best_of: no text is chosen among others here; leave it out, or ask for n texts and "
            "choose."
        )
    if body.stream_options is not None and not body.stream:
        raise InvalidInputError("stream_options: they go with stream.")
    if not isinstance(body.prompt, str):
        raise InvalidInputError(
            "prompt: send one text. Arrays of tokens hold another model's vocabulary, and of "
            "several prompts each is a request."
        )
    if not body.prompt:
        raise InvalidInputError("prompt: it is empty, and a text is written after something.")
    return body.prompt


def sampling(body: CompletionsRequest) -> Sampling:
    """How the tokens are to be chosen."""
    stop = body.stop
    return Sampling(
        most=body.max_tokens or _USUAL_TOKENS,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=body.seed,
        stops=(stop,) if isinstance(stop, str) else tuple(stop or ()),
    )


class _Answer:
    """Texts in the dialect's form."""

    def __init__(self, choices: Choices, model: str, request_id: str) -> None:
        self.choices = choices
        self.request_id = request_id
        self._model = model
        self._id = f"cmpl-{request_id}"
        self._created = int(time.time())

    async def whole(self) -> CompletionsResponse:
        """The complete texts; raises ``GatewayError`` where one breaks off."""
        texts = await self.choices.whole()
        return self.about(
            [
                _choice(text, index, self.choices.texts[index].finish)
                for index, text in enumerate(texts)
            ],
            self.usage(),
        )

    def part(self, index: int, piece: str | None) -> CompletionsResponse:
        """A piece of a text, or None for its end, which tells why it ended."""
        finish = self.choices.texts[index].finish if piece is None else None
        return self.about([_choice(piece or "", index, finish)])

    def about(self, choices: list[Choice], usage: Usage | None = None) -> CompletionsResponse:
        """A response of these choices."""
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._model,
            "choices": choices,
            "usage": usage,
        }

    def usage(self) -> Usage:
        """The tokens so far."""
        prompt, written = self.choices.prompt_tokens, self.choices.generated
        return {
            "prompt_tokens": prompt,
            "completion_tokens": written,
            "total_tokens": prompt + written,
        }


def _choice(text: str, index: int, finish: Finish | None) -> Choice:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": finish}


class Events:
    """Texts as server-sent events; ``gateway.http.messages.Chunks``."""

    def __init__(self, answer: _Answer, *, with_usage: bool) -> None:
        self._answer = answer
        self._with_usage = with_usage
        self._left = len(answer.choices.texts)  # that go on
        self._is_over = False
        self.status = int(HTTPStatus.OK)

    def __aiter__(self) -> "Events":
        """Itself."""
        return self

    async def __anext__(self) -> bytes:
        """The next piece, as soon as it is there; the end of a text, with what follows it."""
        if self._is_over:
            raise StopAsyncIteration
        answer = self._answer
        try:
            part = await answer.choices.next()
        except GatewayError as error:
            return self._broken(error)
        except Exception:
            self._broken(internal_error())
            raise
        if part is None:
            raise StopAsyncIteration
        event = _event(answer.part(*part))
        self._left -= part[1] is None
        if self._left:
            return event
        self._is_over = True
        last = [_event(answer.about([], answer.usage()))] if self._with_usage else []
        return b"".join([event, *last, b"data: [DONE]\n\n"])

    def close(self) -> None:
        """Ends the texts that go on."""
        self._is_over = True
        self._answer.choices.close()

    def _broken(self, error: GatewayError) -> bytes:
        self._is_over = True
        self._answer.choices.close()
        self.status = int(error.status)
        request_id = self._answer.request_id
        detail = {"code": error.code, "message": error.message, "request_id": request_id}
        return _event({"error": detail})


def _event(data: object) -> bytes:
    return b"data: " + encode(data) + b"\n\n"
