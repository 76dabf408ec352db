"""KServe's first protocol: ``POST /v1/models/{endpoint}:predict`` with ``{"instances": [...]}``.

An instance is a string or ``{"text", "text_pair"}``. The prediction of each is ``{"label", "score",
"scores"}`` (``scores`` by label) for text classification and a vector for text embedding.
``GET /v1/models`` and ``/v1/models/{endpoint}`` belong to OpenAI's dialect too, so their answers
hold the fields of both.
"""

import msgspec

from contracts.tasks import Task
from gateway.calls import Answer, EndpointView
from gateway.dialects.answers import answer_headers, best
from gateway.dialects.front import Front
from gateway.dialects.listing import allowed_views
from gateway.dialects.pairs import Texts, query
from gateway.http.body import BodyReader
from gateway.http.json_body import decode, encode
from gateway.http.messages import Reply, Request
from gateway.http.router import Route


class KServeRequest(msgspec.Struct, frozen=True):
    """The request; other fields than ``instances`` have no meaning here."""

    instances: Texts


_decoder = msgspec.json.Decoder(KServeRequest)


class KServeV1:
    """The dialect's routes."""

    def __init__(self, front: Front, bodies: BodyReader) -> None:
        self._front = front
        self._bodies = bodies

    def routes(self) -> list[Route]:
        """What the application serves for this dialect."""
        return [
            Route(
                "POST", "/v1/models/{endpoint}:predict", self.predict, "kserve_v1", predicts=True
            ),
            Route("GET", "/v1/models", self.models, "kserve_v1"),
            Route("GET", "/v1/models/{endpoint}", self.model, "kserve_v1"),
        ]

    async def predict(self, request: Request) -> Reply:
        """Answers texts."""
        context, name = request.context, request.params["endpoint"]
        view, caller = await self._front.admission.enter(context, name)
        body = decode(_decoder, await self._bodies.read(request))
        texts = query("instances", body.instances)
        answer = await self._front.predict(context, view, caller, texts)
        return Reply(encode({"predictions": predictions(answer)}), headers=answer_headers(answer))

    async def models(self, request: Request) -> Reply:
        """All endpoints that the caller may ask, for KServe's clients and for OpenAI's."""
        views = allowed_views(self._front, request.context)
        listing = {
            "models": [view.name for view in views],
            "object": "list",
            "data": [_model(view) for view in views],
        }
        return Reply(encode(listing))

    async def model(self, request: Request) -> Reply:
        """One endpoint: 200 while it answers, else 503."""
        view, _ = self._front.admission.identify(request.context, request.params["endpoint"])
        body = encode({"name": view.name, "ready": view.ready, **_model(view)})
        return Reply(body, status=200 if view.ready else 503)


def predictions(answer: Answer) -> list[object]:
    """One object or vector a text, ready for JSON."""
    rows = answer.values.tolist()
    if answer.task is Task.TEXT_EMBEDDING:
        return list(rows)
    labels, scores = best(answer)
    return [
        {"label": label, "score": score, "scores": dict(zip(answer.labels, row, strict=True))}
        for label, score, row in zip(labels, scores, rows, strict=True)
    ]


def _model(view: EndpointView) -> dict[str, object]:
    """An endpoint as OpenAI's clients read a model; when it was made is not known here."""
    return {"id": view.name, "object": "model", "created": 0, "owned_by": "headrace"}
