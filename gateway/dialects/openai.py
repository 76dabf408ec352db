"""OpenAI's embeddings: ``POST /v1/embeddings``, with the endpoint's name as ``model``.

The unmodified ``openai`` client works; it asks for base64 by default. Text Embeddings Inference has
the same route, so it is at ``/endpoints/{endpoint}/v1/embeddings`` too, where ``model`` says
nothing. ``GET /v1/models`` is in ``kserve_v1``.

Arrays of token ids are turned into text, which the model's own tokeniser then reads. They are taken
for ids of OpenAI's ``cl100k_base``, because that is what LangChain's ``OpenAIEmbeddings`` sends to
any server; with ``"tokenizer": "model"`` they are the model's own. ``x-headrace-token-ids`` says
which was taken. A request may have 2,048 texts, as at OpenAI: more than the endpoint takes at once
are answered in parts.

``dimensions`` takes the first ones of any model's vectors, and only of those that were trained for
it they say much. Fields that are not OpenAI's (``extra_body`` of its client): ``prompt_name``,
``tokenizer``, and ``precision`` with the names of sentence-transformers.
"""

import base64
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from contracts.tasks import DENSE
from gateway.calls import Answer, EndpointView, Query
from gateway.dialects import cl100k
from gateway.dialects.described import STRING, prediction_operation
from gateway.dialects.front import (
    Front,
    TextsOrIds,
    endpoint_in,
    enter_named,
    parts_headers,
    require_kind,
    texts_and_ids,
)
from gateway.dialects.parameters import TolerantDecoder, check_form, forms_refused
from gateway.dialects.reading import MOST_IDS, TextsOrIdsBody
from gateway.errors import InvalidInputError, TooLargeError
from gateway.http.body import BodyReader
from gateway.http.error_replies import ErrorForm
from gateway.http.large_work import INLINE_BYTES
from gateway.http.messages import Reply, Request
from gateway.http.openapi import Schema
from gateway.http.router import Route
from gateway.inference.tokens import check_ids
from gateway.request_context import RequestContext
from preprocess.tasks import HEADS
from preprocess.tasks.embedding import formed
from preprocess.vectors import VectorPrecision

_MOST_TEXTS = 2048
# Of the text that ids of cl100k_base are of: a token has up to 128, and 4 or 5 in most texts.
_BYTES_AN_ID = 8
_FREE_BYTES = 1024 * 1024  # whatever their number


class EmbeddingsRequest(msgspec.Struct, frozen=True):
    """The request. ``user`` has no meaning here."""

    model: str
    input: TextsOrIds
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None
    precision: VectorPrecision | None = None
    prompt_name: str | None = None
    tokenizer: Literal["cl100k_base", "model"] | None = None
    user: str | None = None

    def form(self) -> dict[str, Any]:
        """What the head of embeddings takes."""
        wanted = {"dimensions": self.dimensions, "precision": self.precision}
        return {name: value for name, value in wanted.items() if value is not None}


class EndpointEmbeddingsRequest(EmbeddingsRequest, frozen=True, kw_only=True):
    """The request where the path names the endpoint; ``model`` says nothing then."""

    model: str = ""


class Embedding(TypedDict):
    """The vector of one text; base64 of its little-endian numbers where that was asked for."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | list[int] | str


class Usage(TypedDict):
    """Tokens of all texts."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(TypedDict):
    """A vector for each text, in their order."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


_TOKEN_IDS: dict[str, Schema] = {
    "x-headrace-token-ids": {**STRING, "description": "whose ids were taken: cl100k_base, or model"}
}
_DESCRIPTION = (
    f"Up to {_MOST_TEXTS} texts, or arrays of token ids: of cl100k_base, as LangChain's "
    "OpenAIEmbeddings sends them, unless tokenizer is model. Answered whole and in order, or "
    "refused whole. Texts longer than the model takes are cut, and x-headrace-truncated says "
    "which. The body may be compressed (content-encoding: gzip, deflate)."
)
_EXAMPLES: dict[str, dict[str, object]] = {
    "one text": {"input": "A film."},
    "ids of cl100k_base": {"input": [[32, 4632, 13], [32, 11775, 13]]},
}
_PATH = "/v1/embeddings"
_EMBED = prediction_operation(
    _PATH,
    "OpenAI",
    EmbeddingsRequest,
    EmbeddingsResponse,
    {name: {"model": "minilm", **body} for name, body in _EXAMPLES.items()},
    summary="Embed texts",
    description=_DESCRIPTION,
    headers=_TOKEN_IDS,
)
_OF_ENDPOINT = ("/endpoints/{endpoint}/v1/embeddings", "/endpoints/{endpoint}/embeddings")


_Requested = TypeVar("_Requested", bound=EmbeddingsRequest)
_decoder = TolerantDecoder(EmbeddingsRequest)
_endpoint_decoder = TolerantDecoder(EndpointEmbeddingsRequest)


class OpenAI:
    """The dialect's routes."""

    def __init__(self, front: Front, bodies: BodyReader) -> None:
        self._front = front
        self._bodies = bodies

    def routes(self) -> list[Route]:
        """What the application serves for this dialect."""
        named = Route(
            "POST",
            _PATH,
            self.embeddings,
            "openai",
            _EMBED,
            ErrorForm.OPENAI,
            predicts=True,
            endpoint_in=endpoint_in,
        )
        return [named, *(self._of_endpoint(path) for path in _OF_ENDPOINT)]

    def _of_endpoint(self, path: str) -> Route:
        operation = prediction_operation(
            path,
            "Text Embeddings Inference",
            EndpointEmbeddingsRequest,
            EmbeddingsResponse,
            _EXAMPLES,
            summary="Embed texts (OpenAI)",
            description=_DESCRIPTION,
            headers=_TOKEN_IDS,
        )
        return Route(
            "POST",
            path,
            self.embeddings_of_endpoint,
            "openai",
            operation,
            ErrorForm.OPENAI,
            predicts=True,
        )

    async def embeddings(self, request: Request) -> Reply:
        """Embeds texts for the endpoint that the body names."""
        encoded, view, caller = await enter_named(self._front, self._bodies, request)
        reader = partial(_read, _decoder, view, request.context, self._bodies.most_bytes)
        reading = self._front.read(request.context, encoded, reader)
        del encoded  # texts may wait for long
        return await self._embedded(request.context, view, caller, await reading)

    async def embeddings_of_endpoint(self, request: Request) -> Reply:
        """Embeds texts for the endpoint that the path names."""
        view, caller = request.admitted()
        encoded = await self._bodies.read(request)
        reader = partial(_read, _endpoint_decoder, view, request.context, self._bodies.most_bytes)
        reading = self._front.read(request.context, encoded, reader)
        del encoded
        return await self._embedded(request.context, view, caller, await reading)

    async def _embedded(
        self,
        context: RequestContext,
        view: EndpointView,
        caller: str | None,
        sent: TextsOrIdsBody[_Requested],
    ) -> Reply:
        body, texts, ids = sent
        del sent
        vocabulary = body.tokenizer or cl100k.NAME
        if ids and vocabulary == cl100k.NAME:
            # In a thread: it may read the vocabulary first.
            most = self._bodies.most_bytes
            texts = await self._front.large.do(partial(_texts_of_cl100k, ids, most), context)
        elif ids:
            _, _, texts = await self._front.texts_of_ids(context, view, caller, ids)
        del ids
        query = Query(texts, prompt_name=body.prompt_name)
        answers = await self._front.predict_in_parts(context, view, caller, query)
        headers = parts_headers(answers)
        if body.input:
            headers.append((b"x-headrace-token-ids", vocabulary.encode()))
        made = await self._front.render(context, answers, partial(render, answers, view.name, body))
        return Reply(made, headers=headers)


def _read(
    decoder: TolerantDecoder[_Requested],
    view: EndpointView,
    context: RequestContext,
    most_bytes: int,
    encoded: bytes,
) -> TextsOrIdsBody[_Requested]:
    """What was sent, where ``input`` says whether it was ids.

    Of a large body millions of ids may be made, which take the event loop long to free: they are
    checked here and, of OpenAI's, become texts here.

    Raises:
        GatewayError: it can't be read or done, or has too many texts.
    """
    body = decoder.read(view, context, encoded, most_ids=MOST_IDS)
    check(body, view)
    texts, ids = texts_and_ids("input", body.input)
    sent = TextsOrIdsBody(msgspec.structs.replace(body, input="ids" if ids else ""), texts, ids)
    if sent.number > max(_MOST_TEXTS, view.max_texts):
        raise TooLargeError(
            f"The request has {sent.number} texts; at most {_MOST_TEXTS} are taken at once."
        )
    if ids and len(encoded) > INLINE_BYTES:
        if body.tokenizer == "model":
            check_ids(ids)
        else:
            return TextsOrIdsBody(sent.body, _texts_of_cl100k(ids, most_bytes), [])
    return sent


def _texts_of_cl100k(ids: list[list[int]], most_bytes: int) -> list[str]:
    """The texts of ids, of this many bytes at most as a body of texts may have.

    Raises:
        InvalidInputError: an id that is none.
        TooLargeError: they would have more bytes, or far more than text has for this many ids.
    """
    try:
        size, most = 0, min(most_bytes, _FREE_BYTES + _BYTES_AN_ID * sum(map(len, ids)))
        for each in ids:
            size += cl100k.size_of(each)
            if size > most:
                raise TooLargeError(
                    f"input: these ids of {cl100k.NAME} are of more than {most} bytes of text, the "
                    "most that this many ids are made of: send text."
                )
        texts = [cl100k.text_of(each) for each in ids]
    except cl100k.UnknownTokenError as error:
        raise InvalidInputError(
            f"input: {error}, whose token ids these are taken for. Send text (LangChain: "
            "check_embedding_ctx_length=False), or for the model's own ids the field "
            '"tokenizer": "model".'
        ) from error
    return texts


def check(body: EmbeddingsRequest, view: EndpointView) -> None:
    """Refuses what this endpoint can't do; raises ``InvalidInputError``."""
    require_kind(view, DENSE, "model", "embeddings need")
    check_form(view, body.form())


def render(answers: Sequence[Answer], model: str, body: EmbeddingsRequest) -> EmbeddingsResponse:
    """The list of embeddings, ready for JSON; base64 is of little-endian numbers.

    ``answers`` are those of the parts of a request, in order.

    Raises:
        InvalidInputError: the version that answered has not what the precision needs.
    """
    dense = [HEADS[answer.task].dense(answer) for answer in answers]
    values = dense[0] if len(dense) == 1 else np.concatenate(dense)
    with forms_refused():
        found = formed(values, answers[0].ranges, body.form())
    vectors: Sequence[Any]  # arrays are written as lists of their numbers
    if body.encoding_format == "base64":
        little = found.astype(found.dtype.newbyteorder("<"), copy=False)
        vectors = [base64.b64encode(row.tobytes()).decode() for row in little]
    else:
        vectors = list(found)
    tokens = sum(sum(answer.tokens) for answer in answers)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(vectors)
        ],
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
