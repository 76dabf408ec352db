"""The Hugging Face dialect: ``POST /endpoints/{endpoint}`` with ``{"inputs": ...}``.

Answers have the shapes of the ``transformers`` pipelines. For text classification:

- one text: ``[{"label", "score"}]``; many: one ``{"label", "score"}`` each, in order;
- with ``parameters.top_k`` (null for all labels), best first: one text ``[{...}, ...]``, many a
  list of such lists.

For text ranking a pair is answered like a text of one label; with ``parameters.function_to_apply``
``none``, its score is the logit. For text embedding: one text ``[0.1, ...]``, many a list of
vectors. For token classification: one text a list of entities, many a list of such lists;
``parameters.aggregation_strategy`` and ``ignore_labels`` are those of the pipeline, ``simple`` and
``["O"]`` where they are not set. For zero-shot classification, with
``parameters.candidate_labels``: one text a list of ``{"label", "score"}``, best first, many a list
of such lists. A text is a string, or ``{"text", "text_pair"}``; a list of one
text counts as many.
"""

from dataclasses import replace
from typing import Annotated, Any, NotRequired

import msgspec
from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from gateway.dialects.described import prediction_operation
from gateway.dialects.front import Front, TextOrPair, Texts, answer_headers, query_of
from gateway.dialects.parameters import PipelineParameters, checked
from gateway.http.body import BodyReader
from gateway.http.messages import Reply, Request, decode, encode
from gateway.http.router import Route
from preprocess.tasks import HEADS


class HuggingFaceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request. ``options`` is accepted, because the hub's clients send it, and ignored."""

    inputs: TextOrPair | Texts
    parameters: PipelineParameters = PipelineParameters()
    options: dict[str, Any] = {}


class LabelScore(TypedDict):
    """A class and its probability."""

    label: str
    score: float


class FoundEntity(TypedDict):
    """A run of tokens of one type, or with ``aggregation_strategy`` ``none`` one token.

    ``start`` and ``end`` count characters of the text.
    """

    entity_group: NotRequired[str]
    entity: NotRequired[str]
    index: NotRequired[int]
    score: float
    word: str
    start: int
    end: int


HuggingFaceResponse = Annotated[
    list[LabelScore]
    | list[list[LabelScore]]
    | list[float]
    | list[list[float]]
    | list[FoundEntity]
    | list[list[FoundEntity]],
    Field(description="By task, and by whether one text was sent or a list."),
]

_PATH = "/endpoints/{endpoint}"
_EXAMPLES = {
    "one text": {"inputs": "A film that stays with you."},
    "many texts, all labels": {"inputs": ["Dull.", "Great."], "parameters": {"top_k": None}},
    "a pair": {"inputs": {"text": "Is it good?", "text_pair": "It is."}},
}
_PREDICT = prediction_operation(
    _PATH, "Hugging Face", HuggingFaceRequest, HuggingFaceResponse, _EXAMPLES
)

_decoder = msgspec.json.Decoder(HuggingFaceRequest)


class HuggingFace:
    """The dialect's one route and its handler."""

    def __init__(self, front: Front, bodies: BodyReader) -> None:
        self._front = front
        self._bodies = bodies

    def routes(self) -> list[Route]:
        """The dialect's one route. Under overload, connections refuse what ``predicts``."""
        return [Route("POST", _PATH, self.predict, "huggingface", _PREDICT, predicts=True)]

    async def predict(self, request: Request) -> Reply:
        """Handles a request: admission by its headers, body, prediction, reply."""
        context, name = request.context, request.params["endpoint"]
        view, caller = await self._front.admission.enter(context, name)
        body = decode(_decoder, await self._bodies.read(request))
        parameters = checked(body.parameters, view)
        inputs = body.inputs
        one = not isinstance(inputs, list)
        query = replace(
            query_of("inputs", inputs if isinstance(inputs, list) else [inputs]),
            truncate=body.parameters.truncation is not False,
            parameters=parameters,
        )
        answer = await self._front.predict(context, view, caller, query)
        result = HEADS[view.task].pipeline(answer, parameters, one=one)
        return Reply(encode(result), headers=answer_headers(answer))
