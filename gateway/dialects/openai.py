"""OpenAI's embeddings: ``POST /v1/embeddings``, with the endpoint's name as ``model``.

The unmodified ``openai`` client works; it asks for base64 by default. Arrays of tokens are refused,
for their numbers come from another model's vocabulary. ``dimensions`` takes the first ones of any
model's vectors, and only of those that were trained for it they say much. Two fields are not
OpenAI's (``extra_body`` of its client): ``prompt_name``, and ``precision`` with the names of
sentence-transformers. ``GET /v1/models`` is in ``kserve_v1``.
"""

import base64
from typing import Annotated, Any, Literal

import msgspec
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from contracts.tasks import DENSE
from gateway.calls import Answer, EndpointView, Query
from gateway.dialects.described import prediction_operation
from gateway.dialects.front import Front, answer_headers, endpoint_in, endpoint_of, require_kind
from gateway.dialects.parameters import check_form, forms_refused
from gateway.errors import InvalidInputError
from gateway.http.body import BodyReader
from gateway.http.messages import Reply, Request, decode, encode
from gateway.http.router import Route
from preprocess.tasks import HEADS
from preprocess.tasks.embedding import formed
from preprocess.vectors import VectorPrecision

# Tokens are read only to be refused with a sentence, so the document names texts alone.
_TextOrTokens = Annotated[str | int | list[int], msgspec.Meta(extra_json_schema={"type": "string"})]


class EmbeddingsRequest(msgspec.Struct, frozen=True):
    """The request; other fields, ``user`` among them, have no meaning here."""

    model: str
    input: str | Annotated[list[_TextOrTokens], msgspec.Meta(min_length=1)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None
    precision: VectorPrecision | None = None
    prompt_name: str | None = None

    def form(self) -> dict[str, Any]:
        """What the head of embeddings takes."""
        wanted = {"dimensions": self.dimensions, "precision": self.precision}
        return {name: value for name, value in wanted.items() if value is not None}


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
        if request.body is None:  # it costs nothing yet
            self._front.admission.recognise(request.context)
        encoded = await self._bodies.read(request)
        name = endpoint_of(encoded)
        view, caller = await self._front.admission.enter(request.context, name)
        body = decode(_decoder, encoded)
        check(body, view)
        answer = await self._front.predict(request.context, view, caller, query(body))
        result = render(answer, view.name, body)
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
    return Query(texts, prompt_name=body.prompt_name)


def check(body: EmbeddingsRequest, view: EndpointView) -> None:
    """Refuses what this endpoint can't do; raises ``InvalidInputError``."""
    require_kind(view, DENSE, "model", "embeddings need")
    check_form(view, body.form())


def render(answer: Answer, model: str, body: EmbeddingsRequest) -> EmbeddingsResponse:
    """The list of embeddings, ready for JSON; base64 is of little-endian numbers.

    Raises:
        InvalidInputError: the version that answered has not what the precision needs.
    """
    with forms_refused():
        found = formed(HEADS[answer.task].dense(answer), answer.ranges, body.form())
    vectors: list[list[float] | list[int] | str]
    if body.encoding_format == "base64":
        little = found.astype(found.dtype.newbyteorder("<"), copy=False)
        vectors = [base64.b64encode(row.tobytes()).decode() for row in little]
    else:
        vectors = found.tolist()
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
