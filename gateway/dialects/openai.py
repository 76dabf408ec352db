"""OpenAI's embeddings: ``POST /v1/embeddings``, with the endpoint's name as ``model``.

The unmodified ``openai`` client works; it asks for base64 by default. Arrays of tokens are refused,
for their numbers come from another model's vocabulary; ``dimensions`` is taken where it is the
model's own. ``GET /v1/models`` is in ``kserve_v1``.
"""

import base64
from typing import Annotated, Literal

import msgspec
import numpy as np
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from contracts.tasks import Task
from gateway.calls import Answer, EndpointView, Query
from gateway.dialects.described import prediction_operation
from gateway.dialects.front import Front, answer_headers, endpoint_in, endpoint_of, require_task
from gateway.errors import InvalidInputError
from gateway.http.body import BodyReader
from gateway.http.messages import Reply, Request, decode, encode
from gateway.http.router import Route

# Tokens are read only to be refused with a sentence, so the document names texts alone.
_TextOrTokens = Annotated[str | int | list[int], msgspec.Meta(extra_json_schema={"type": "string"})]


class EmbeddingsRequest(msgspec.Struct, frozen=True):
    """The request; other fields, ``user`` among them, have no meaning here."""

    model: str
    input: str | Annotated[list[_TextOrTokens], msgspec.Meta(min_length=1)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Embedding(TypedDict):
    """The vector of one text; base64 of little-endian float32 where that was asked for."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


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


_PATH = "/v1/embeddings"
_EMBED = prediction_operation(
    _PATH,
    "OpenAI",
    EmbeddingsRequest,
    EmbeddingsResponse,
    {"one text": {"model": "minilm", "input": "A film."}},
    summary="Embed texts",
)


_decoder = msgspec.json.Decoder(EmbeddingsRequest)


class OpenAI:
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
                self.embeddings,
                "openai",
                _EMBED,
                predicts=True,
                endpoint_in=endpoint_in,
            )
        ]

    async def embeddings(self, request: Request) -> Reply:
        """Embeds texts."""
        encoded = await self._bodies.read(request)
        name = endpoint_of(encoded)
        view, caller = await self._front.admission.enter(request.context, name)
        body = decode(_decoder, encoded)
        check(body, view)
        answer = await self._front.predict(request.context, view, caller, query(body))
        result = render(answer, view.name, base64_vectors=body.encoding_format == "base64")
        return Reply(encode(result), headers=answer_headers(answer))


def query(body: EmbeddingsRequest) -> Query:
    """The texts of a body; raises ``InvalidInputError``."""
    items = [body.input] if isinstance(body.input, str) else body.input
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) != len(items):
        raise InvalidInputError(
            "input: arrays of tokens are not taken, for they hold another model's vocabulary; "
            "send the text."
        )
    return Query(texts)


def check(body: EmbeddingsRequest, view: EndpointView) -> None:
    """Refuses what this endpoint can't do; raises ``InvalidInputError``."""
    require_task(view, Task.TEXT_EMBEDDING, "model", "embeddings need")
    if body.dimensions not in (None, view.dimension):
        raise InvalidInputError(
            f"dimensions: {view.name} gives {view.dimension} and no other number."
        )


def render(answer: Answer, model: str, *, base64_vectors: bool) -> EmbeddingsResponse:
    """The list of embeddings, ready for JSON; base64 is of little-endian float32."""
    vectors: list[list[float] | str] = (
        [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in answer.values]
        if base64_vectors
        else answer.values.astype(np.float64).tolist()
    )
    tokens = sum(answer.tokens)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(vectors)
        ],
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
