"""KServe's first protocol: ``POST /v1/models/{endpoint}:predict`` with ``{"instances": [...]}``.

``inputs`` stands for ``instances`` where these are not there, as in KServe. Fields and keys of an
instance that mean nothing here are ignored and named in ``x-headrace-ignored``, or refused where
the request has ``x-headrace-strict: true``. ``:explain`` gets 501: no explainer is offered.

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

from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from gateway.calls import EndpointView, Query
from gateway.dialects.described import prediction_operation, reading
from gateway.dialects.front import Front, Pair, Texts, answer_headers, query_of
from gateway.dialects.huggingface import FoundAnswer, FoundEntity
from gateway.dialects.operations import allowed_views
from gateway.dialects.parameters import (
    TolerantDecoder,
    forms_refused,
    ignore,
    ignore_unknown,
    is_unknown_field,
    of_any_dialect,
    prompt_name_in,
)
from gateway.dialects.reading import check_texts, check_values, decode_counted
from gateway.errors import BadRequestError, InvalidInputError, UnsupportedError
from gateway.http.body import BodyReader
from gateway.http.error_replies import ErrorForm
from gateway.http.messages import Reply, Request, decode, encode
from gateway.http.router import Route
from gateway.request_context import RequestContext
from preprocess.tasks import HEADS


class KServeRequest(msgspec.Struct, frozen=True):
    """The request as it is documented; other fields have no meaning here."""

    instances: Texts
    parameters: dict[str, Any] | None = None


class ReadRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request as it is read: ``inputs`` is another name of the instances."""

    instances: Texts | None = None
    inputs: Texts | None = None
    parameters: dict[str, Any] | None = None


class LooseInstance(Pair, frozen=True, forbid_unknown_fields=False):
    """An instance with keys that mean nothing here."""


_LooseTexts = Annotated[list[str | LooseInstance], msgspec.Meta(min_length=1)]


class LooseRequest(msgspec.Struct, frozen=True):
    """The request where it or its instances have names that mean nothing here."""

    instances: _LooseTexts | None = None
    inputs: _LooseTexts | None = None
    parameters: dict[str, Any] | None = None


_Raws = Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)]


class KServeRows(msgspec.Struct, frozen=True):
    """The request for an endpoint of tables: objects by feature, or arrays in their order."""

    instances: _Raws | None = None
    inputs: _Raws | None = None


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

_EXPLAIN = "/v1/models/{endpoint}:explain"

_decoder = msgspec.json.Decoder(ReadRequest)
_loose_decoder = msgspec.json.Decoder(LooseRequest)
_KEYS = frozenset(Pair.__struct_fields__)
_whole_decoder = msgspec.json.Decoder(dict[str, Any])
_rows_decoder = TolerantDecoder(KServeRows)


class KServeV1:
    """The dialect's routes."""

    def __init__(self, front: Front, bodies: BodyReader) -> None:
        self._front = front
        self._bodies = bodies

    def routes(self) -> list[Route]:
        """What the application serves for this dialect."""
        return [
            Route("POST", _PREDICT, self.predict, "kserve_v1", _PREDICTS, predicts=True),
            Route("POST", _EXPLAIN, self.explain, "kserve_v1"),
            Route("GET", _MODELS, self.models, "kserve_v1", _ALL, ErrorForm.OPENAI),
            Route("GET", _MODEL, self.model, "kserve_v1", _ONE, ErrorForm.OPENAI),
        ]

    async def predict(self, request: Request) -> Reply:
        """Answers texts."""
        view, caller = request.admitted()
        read = _rows_of if HEADS[view.task].reads_rows else _texts_of
        reader = partial(read, view, request.context)
        query = await self._front.read(request.context, await self._bodies.read(request), reader)
        answer = await self._front.predict(request.context, view, caller, query)

        def result() -> KServeResponse:
            with forms_refused():
                return {"predictions": HEADS[answer.task].predictions(answer)}

        made = await self._front.render(request.context, [answer], result)
        return Reply(made, headers=answer_headers(answer))

    async def explain(self, request: Request) -> Reply:
        """Refuses whatever is sent."""
        raise UnsupportedError(
            "Headrace explains no predictions. An explainer of your own can ask "
            f"/v1/models/{request.params['endpoint']}:predict."
        )

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


def _texts_of(view: EndpointView, context: RequestContext, body: bytes) -> Query:
    parsed = _decoded(body, view, context)
    field = "inputs" if parsed.instances is None else "instances"
    instances = parsed.inputs if parsed.instances is None else parsed.instances
    if instances is None:
        raise BadRequestError("instances: missing.")
    sent = parsed.parameters
    parameters = of_any_dialect(sent, view, context) if sent else None
    query = query_of(field, instances, parameters, prompt_name_in(sent) if sent else None)
    if len(query.texts) != len(instances):
        raise InvalidInputError(f"{field}: each has one context.")
    check_texts(len(query.texts), view)
    return query


def _decoded(
    body: bytes, view: EndpointView, context: RequestContext
) -> ReadRequest | LooseRequest:
    try:
        return decode_counted(_decoder, view, body)
    except BadRequestError as error:
        if context.strict or not is_unknown_field(error):
            raise
    known = decode_counted(_loose_decoder, view, body)
    check_texts(max(len(known.instances or ()), len(known.inputs or ())), view)
    names: dict[str, None] = {}
    whole = decode(_whole_decoder, body)  # strings that mean nothing may be no UTF-8
    ignore_unknown(context, whole, known.__struct_fields__)
    for field in ("instances", "inputs"):
        for instance in whole.get(field) or ():
            if isinstance(instance, dict):
                names |= dict.fromkeys(name for name in instance if name not in _KEYS)
    ignore(context, list(names))
    return known


def _rows_of(view: EndpointView, context: RequestContext, body: bytes) -> Query:
    """Rows as they were sent: the version that answers reads them, and knows their fields."""
    check_values(body, view)
    parsed = _rows_decoder.read(view, context, body)
    rows = parsed.inputs if parsed.instances is None else parsed.instances
    if rows is None:
        raise BadRequestError("instances: missing.")
    check_texts(len(rows), view)
    try:
        return Query([bytes(row).decode() for row in rows], are_rows=True)
    except UnicodeDecodeError as error:
        raise BadRequestError(f"instances: not UTF-8 ({error.reason}).") from None


def _model(view: EndpointView) -> OpenAIModel:
    """An endpoint as OpenAI's clients read a model; when it was made is not known here."""
    return {"id": view.name, "object": "model", "created": 0, "owned_by": "headrace"}
