"""KServe's first protocol: ``POST /v1/models/{endpoint}:predict`` with ``{"instances": [...]}``.

Beside ``instances``, ``parameters`` has what a task can't be asked without (candidate labels).

An instance is a string or ``{"text", "text_pair"}``. The prediction of each is ``{"label", "score",
"scores"}`` (``scores`` by label) for text classification, a vector for text embedding, and
``{"score", "logit"}`` for text ranking. For token classification it is a list of entities, for
zero-shot classification ``{"labels", "scores"}``, best first. For question answering an instance is
``{"question", "context"}``, and its prediction a list of answers. Of an endpoint of tables it is an
object of features by name, or an array of them in the model's order; the prediction is as for text
classification, or a number.
``GET /v1/models`` and ``/v1/models/{endpoint}`` belong to OpenAI's dialect too, so their answers
hold the fields of both.
"""

from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from gateway.calls import EndpointView, Query
from gateway.dialects.described import prediction_operation, reading
from gateway.dialects.front import Front, Texts, answer_headers, query_of
from gateway.dialects.huggingface import FoundAnswer, FoundEntity
from gateway.dialects.operations import allowed_views
from gateway.dialects.parameters import forms_refused, of_any_dialect, prompt_name_in
from gateway.errors import BadRequestError, InvalidInputError
from gateway.http.body import BodyReader
from gateway.http.error_replies import ErrorForm
from gateway.http.messages import Reply, Request, decode, encode
from gateway.http.router import Route
from preprocess.tasks import HEADS


class KServeRequest(msgspec.Struct, frozen=True):
    """The request; other fields have no meaning here."""

    instances: Texts
    parameters: dict[str, Any] | None = None


class KServeRows(msgspec.Struct, frozen=True):
    """The request for an endpoint of tables: objects by feature, or arrays in their order."""

    instances: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)]


class LabelScores(TypedDict):
    """The best class of a text, and the probability of each."""

    label: str
    score: float
    scores: dict[str, float]


class PairScore(TypedDict):
    """How well a second text answers the first one: the probability, and its logit."""

    score: float
    logit: float


class RankedLabels(TypedDict):
    """The caller's labels, best first, and the probability of each."""

    labels: list[str]
    scores: list[float]


class KServeResponse(TypedDict):
    """One prediction a text or row, by the endpoint's task."""

    predictions: list[
        float
        | LabelScores
        | list[float]
        | PairScore
        | list[FoundEntity]
        | RankedLabels
        | list[FoundAnswer]
    ]


class OpenAIModel(TypedDict):
    """An endpoint as OpenAI's clients read a model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(TypedDict):
    """All endpoints, for KServe's clients by name and for OpenAI's as models."""

    models: list[str]
    object: Literal["list"]
    data: list[OpenAIModel]


class Model(OpenAIModel):
    """One endpoint, for the clients of both."""

    name: str
    ready: bool


_PREDICT = "/v1/models/{endpoint}:predict"
_MODELS, _MODEL = "/v1/models", "/v1/models/{endpoint}"
_EXAMPLES = {"two texts": {"instances": ["Dull.", "Great."]}}
_PREDICTS = prediction_operation(_PREDICT, "KServe v1", KServeRequest, KServeResponse, _EXAMPLES)
_ALL = reading(_MODELS, "OpenAI", "All endpoints, for OpenAI's and KServe's clients", Models)
_ONE = reading(_MODEL, "OpenAI", "One endpoint", Model, unready=True)

_decoder = msgspec.json.Decoder(KServeRequest)
_rows_decoder = msgspec.json.Decoder(KServeRows)


class KServeV1:
    """The dialect's routes."""

    def __init__(self, front: Front, bodies: BodyReader) -> None:
        self._front = front
        self._bodies = bodies

    def routes(self) -> list[Route]:
        """What the application serves for this dialect."""
        return [
            Route("POST", _PREDICT, self.predict, "kserve_v1", _PREDICTS, predicts=True),
            Route("GET", _MODELS, self.models, "kserve_v1", _ALL, ErrorForm.OPENAI),
            Route("GET", _MODEL, self.model, "kserve_v1", _ONE, ErrorForm.OPENAI),
        ]

    async def predict(self, request: Request) -> Reply:
        """Answers texts."""
        context, name = request.context, request.params["endpoint"]
        view, caller = await self._front.admission.enter(context, name)
        body = await self._bodies.read(request)
        query = _rows_of(body) if HEADS[view.task].reads_rows else _texts_of(body, view)
        answer = await self._front.predict(context, view, caller, query)
        with forms_refused():
            result: KServeResponse = {"predictions": HEADS[answer.task].predictions(answer)}
        return Reply(encode(result), headers=answer_headers(answer))

    async def models(self, request: Request) -> Reply:
        """All endpoints that the caller may ask, for KServe's clients and for OpenAI's."""
        views = allowed_views(self._front, request.context)
        listing: Models = {
            "models": [view.name for view in views],
            "object": "list",
            "data": [_model(view) for view in views],
        }
        return Reply(encode(listing))

    async def model(self, request: Request) -> Reply:
        """One endpoint: 200 while it answers, else 503."""
        view, _ = self._front.admission.identify(request.context, request.params["endpoint"])
        model: Model = {"name": view.name, "ready": view.ready, **_model(view)}
        return Reply(encode(model), status=200 if view.ready else 503)


def _texts_of(body: bytes, view: EndpointView) -> Query:
    parsed = decode(_decoder, body)
    query = query_of("instances", parsed.instances)
    if len(query.texts) != len(parsed.instances):
        raise InvalidInputError("instances: each has one context.")
    if not parsed.parameters:
        return query
    return replace(
        query,
        parameters=of_any_dialect(parsed.parameters, view),
        prompt_name=prompt_name_in(parsed.parameters),
    )


def _rows_of(body: bytes) -> Query:
    """Rows as they were sent: the version that answers reads them."""
    rows = decode(_rows_decoder, body).instances
    try:
        return Query([bytes(row).decode() for row in rows], are_rows=True)
    except UnicodeDecodeError as error:
        raise BadRequestError(f"instances: not UTF-8 ({error.reason}).") from None


def _model(view: EndpointView) -> OpenAIModel:
    """An endpoint as OpenAI's clients read a model; when it was made is not known here."""
    return {"id": view.name, "object": "model", "created": 0, "owned_by": "headrace"}
