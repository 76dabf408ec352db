"""The Open Inference Protocol over HTTP: ``/v2`` and all below it.

Endpoints look like Triton's models that take text: unmodified ``tritonclient.http`` works, with
JSON and with the binary tensor data extension. The parts of Triton's API that Headrace does not
offer (shared memory, model control, statistics, tracing, logging) are refused with a sentence.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import (
    Annotated,
    Any,
    NotRequired,  # pydantic reads no other before Python 3.12
)

import msgspec
import numpy as np
from typing_extensions import TypedDict

from contracts.tasks import TEXT, TEXT_PAIR
from contracts.tensors import Datatype
from gateway.calls import Answer, EndpointView, Query
from gateway.dialects import oip, oip_tables
from gateway.dialects.described import BOUNDS, prediction_operation, probing, reading
from gateway.dialects.front import Front, answer_headers, hold_filling, truncated_texts
from gateway.dialects.operations import Live
from gateway.dialects.parameters import TolerantDecoder
from gateway.errors import BadRequestError, InvalidInputError, UnsupportedError
from gateway.http.body import BodyReader
from gateway.http.error_replies import ErrorForm
from gateway.http.messages import BINARY, Handler, Reply, Request, encode
from gateway.http.openapi import Operation
from gateway.http.router import Route
from gateway.request_context import RequestContext

_HEADER_LENGTH = b"inference-header-content-length"
_UNSUPPORTED = {
    ("GET", "/v2/models/{endpoint}/stats"): "statistics: /metrics has them",
    ("GET", "/v2/models/{endpoint}/versions/{version}/stats"): "statistics: /metrics has them",
    ("GET", "/v2/models/stats"): "statistics: /metrics has them",
    ("POST", "/v2/repository/index"): "the model repository: GET /endpoints lists what is served",
    ("POST", "/v2/repository/models/{endpoint}/load"): "loading by hand: register a version",
    ("POST", "/v2/repository/models/{endpoint}/unload"): "unloading by hand: register a version",
    ("GET", "/v2/models/{endpoint}/trace/setting"): "trace settings",
    ("POST", "/v2/models/{endpoint}/trace/setting"): "trace settings",
    ("GET", "/v2/trace/setting"): "trace settings",
    ("POST", "/v2/trace/setting"): "trace settings",
    ("GET", "/v2/logging"): "log settings",
    ("POST", "/v2/logging"): "log settings",
    **{
        (method, f"/v2/{kind}sharedmemory/{rest}"): "shared memory: send the tensors themselves"
        for kind in ("system", "cuda")
        for method, rest in (
            ("GET", "status"),
            ("POST", "unregister"),
            ("GET", "region/{region}/status"),
            ("POST", "region/{region}/register"),
            ("POST", "region/{region}/unregister"),
        )
    },
}


def _one_of(*values: str) -> msgspec.Meta:
    """For the documentation; ``oip`` refuses other values with a better sentence."""
    return msgspec.Meta(extra_json_schema={"enum": list(values)})


_Size = Annotated[int, msgspec.Meta(ge=1)]
# For the documentation as well: these are read as anything, to be refused with a better sentence.
_TEXT_OR_ROW = msgspec.Meta(
    extra_json_schema={
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 1},
        ]
    }
)
_MOST_INPUTS = 4096  # of texts two, of tables one for each feature
_ARRAY = msgspec.Meta(extra_json_schema={"type": "array"})
_INFER_PARAMETERS = msgspec.Meta(
    extra_json_schema={
        "properties": {
            "timeout": {
                "type": ["integer", "null"],
                "minimum": 0,
                "maximum": 600_000_000,
                "description": "microseconds; 0 for the endpoint's own",
            },
            "binary_data_output": {"type": "boolean"},
            "headrace_class": {"enum": ["interactive", "bulk", None]},
        }
    }
)


class InputTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An input as it is in the JSON; ``data`` is missing where it follows as bytes."""

    name: Annotated[str, _one_of(TEXT, TEXT_PAIR)]
    shape: Annotated[list[_Size], msgspec.Meta(min_length=1, max_length=2)]
    datatype: Annotated[str, _one_of(Datatype.BYTES)]
    parameters: dict[str, Any] = {}
    data: Annotated[list[Annotated[Any, _TEXT_OR_ROW]] | None, _ARRAY] = None


class RequestedOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An output that the caller wants."""

    name: str
    parameters: dict[str, Any] = {}


class InferRequest(msgspec.Struct, frozen=True):
    """The JSON of an inference request. KServe's client repeats the path's ``model_name``."""

    inputs: Annotated[list[InputTensor], msgspec.Meta(min_length=1, max_length=_MOST_INPUTS)]
    id: str = ""
    parameters: Annotated[dict[str, Any], _INFER_PARAMETERS] = {}
    outputs: list[RequestedOutput] = []
    model_name: str | None = None


class Tensor(TypedDict):
    """One output; ``data`` is missing where it follows as bytes."""

    name: str
    datatype: str
    shape: Sequence[int]
    data: NotRequired[list[Any]]
    parameters: NotRequired[dict[str, Any]]


class InferResponse(TypedDict):
    """The outputs for all texts; ``parameters.truncated`` says which were cut."""

    model_name: str
    model_version: str
    outputs: list[Tensor]
    id: NotRequired[str]
    parameters: NotRequired[dict[str, Any]]


class Ready(TypedDict):
    """Whether this gateway should get traffic."""

    ready: bool


class ModelReady(TypedDict):
    """Whether an endpoint answers."""

    name: str
    ready: bool


_TAG = "Open Inference Protocol"
_INFER_DESCRIPTION = (
    f"{BOUNDS} The binary tensor data extension is offered both ways, as Triton has it "
    "(Inference-Header-Content-Length); such bodies and answers are application/octet-stream."
)
_EXAMPLES = {
    "one text": {"inputs": [{"name": TEXT, "shape": [1], "datatype": "BYTES", "data": ["A film."]}]}
}

_decoder = TolerantDecoder(InferRequest)


class OpenInferenceHttp:
    """The dialect's routes."""

    def __init__(self, front: Front, bodies: BodyReader, version: str) -> None:
        self._front = front
        self._bodies = bodies
        self._server = encode(
            {"name": oip.SERVER_NAME, "version": version, "extensions": oip.EXTENSIONS}
        )

    def routes(self) -> list[Route]:
        """What the application serves for this dialect."""
        model = "/v2/models/{endpoint}"
        served = [
            _route(
                "GET",
                "/v2",
                self.server_metadata,
                probing(_TAG, "Name, version and extensions", dict[str, Any]),
            ),
            # The published OpenAPI document has it with a slash.
            _route(
                "GET",
                "/v2/",
                self.server_metadata,
                probing(_TAG, "Name, version and extensions", dict[str, Any]),
            ),
            _route("GET", "/v2/health/live", self.live, probing(_TAG, "Alive", Live)),
            _route(
                "GET",
                "/v2/health/ready",
                self.ready,
                probing(_TAG, "Ready for traffic", Ready, unready=True),
            ),
        ]
        for base in (model, f"{model}/versions/{{version}}"):
            served += self._of_model(base)
        return served + [_refusal(*key, what) for key, what in _UNSUPPORTED.items()]

    def _of_model(self, path: str) -> list[Route]:
        infer = prediction_operation(
            path,
            _TAG,
            InferRequest,
            InferResponse,
            _EXAMPLES,
            description=_INFER_DESCRIPTION,
            binary=True,
        )
        metadata = reading(path, _TAG, "Inputs, outputs and versions", dict[str, Any])
        ready = reading(path, _TAG, "Ready", ModelReady, unready=True)
        config = reading(path, _TAG, "Triton's model configuration", dict[str, Any])
        return [
            _route("POST", f"{path}/infer", self.infer, infer, predicts=True),
            _route("GET", path, self.model_metadata, metadata),
            _route("GET", f"{path}/ready", self.model_ready, ready),
            _route("GET", f"{path}/config", self.model_config, config),
        ]

    async def infer(self, request: Request) -> Reply:
        """Answers texts."""
        context = request.context
        view, caller = request.admitted()
        header_length = request.headers.get(_HEADER_LENGTH)
        reader = partial(_read, header_length, view, context)
        query, named, binary = await self._front.read(
            request.context, await self._bodies.read(request), reader
        )
        answer = await self._front.predict(context, view, caller, query)
        filling = hold_filling(context, answer)
        blobs: list[bytes] = []
        header = await self._front.render(
            context,
            [answer],
            lambda: _described(answer, view, named, binary, blobs),
            further=filling,
        )
        headers = answer_headers(answer)
        if not blobs:
            return Reply(header, headers=headers)
        headers.append((_HEADER_LENGTH, str(len(header)).encode()))
        body = await self._front.rendered(context, [answer], lambda: b"".join([header, *blobs]))
        return Reply(body, content_type=BINARY, headers=headers)

    async def server_metadata(self, _: Request) -> Reply:
        """Name, version and extensions."""
        return Reply(self._server)

    async def live(self, _: Request) -> Reply:
        """The process answers."""
        alive: Live = {"live": True}
        return Reply(encode(alive))

    async def ready(self, _: Request) -> Reply:
        """Whether this gateway should get traffic: 200 or 503."""
        ready: Ready = {"ready": self._front.endpoints.ready}
        return Reply(encode(ready), status=200 if ready["ready"] else 503)

    async def model_metadata(self, request: Request) -> Reply:
        """Inputs, outputs, versions and labels."""
        view, version = self._view(request), request.params.get("version")
        return Reply(encode(oip.metadata(view, version)))

    async def model_ready(self, request: Request) -> Reply:
        """Whether the endpoint answers: 200 or 503."""
        view = self._view(request)
        ready: ModelReady = {"name": view.name, "ready": view.ready}
        return Reply(encode(ready), status=200 if view.ready else 503)

    async def model_config(self, request: Request) -> Reply:
        """The model configuration in Triton's format."""
        return Reply(encode(oip.config(self._view(request))))

    def _view(self, request: Request) -> EndpointView:
        view, _ = self._front.admission.identify(request.context, request.params["endpoint"])
        oip.check_version(view, request.params.get("version"))
        return view


def _route(
    method: str,
    pattern: str,
    handle: Handler,
    operation: Operation | None = None,
    *,
    predicts: bool = False,
) -> Route:
    return Route(method, pattern, handle, "oip_http", operation, ErrorForm.SENTENCE, predicts)


def _refusal(method: str, pattern: str, what: str) -> Route:
    async def refuse(_: Request) -> Reply:
        raise UnsupportedError(f"Headrace does not offer {what}.")

    return _route(method, pattern, refuse)


def _raw_text(blob: bytes) -> list[str]:
    """A body without JSON (header length 0) is one text, as Triton reads it."""
    return [oip.utf8(TEXT, 0, blob)]


def _read(
    header_length: bytes | None, view: EndpointView, context: RequestContext, body: bytes
) -> tuple[Query, str, "_BinaryOutputs"]:
    """What is asked, the request's id, and which outputs go out as bytes."""
    header, blob = oip.split_header(body, header_length)
    if blob and not header:
        parsed, query = InferRequest([]), Query(_raw_text(blob))
    else:
        parsed = _decoder.read(view, context, header)
        query = (_rows if view.features else _query)(parsed, blob, view)
    binary = _BinaryOutputs(parsed)
    wanted = [(output.name, output.parameters) for output in parsed.outputs]
    parameters = oip.read_options(parsed.parameters, wanted, view, context)
    return replace(query, parameters=parameters), parsed.id, binary


def _query(parsed: InferRequest, blob: bytes, view: EndpointView) -> Query:
    """The texts of all inputs, each from the JSON or from its part of the bytes after it."""
    tensors: list[oip.TextTensor] = []
    position = 0
    names = oip.canonical([tensor.name for tensor in parsed.inputs])
    for name, tensor in zip(names, parsed.inputs, strict=True):
        count = oip.element_count(name, tensor.datatype, tensor.shape, view)
        oip.refuse_extensions(tensor.parameters, name)
        size = tensor.parameters.get("binary_data_size")
        if size is None:
            texts = _json_texts(tensor, count)
        else:
            end = position + _binary_size(tensor, size, len(blob) - position)
            texts = oip.unpack_texts(name, blob[position:end], count)
            position = end
        tensors.append(oip.TextTensor(name, texts))
    if position != len(blob):
        raise InvalidInputError(f"{len(blob) - position} bytes follow the last input's data.")
    return oip.query(tensors, parsed.parameters)


def _rows(parsed: InferRequest, blob: bytes, view: EndpointView) -> Query:
    """The rows of a table that all inputs together hold."""
    tensors: list[oip_tables.Column] = []
    position = 0
    for tensor in parsed.inputs:
        oip.refuse_extensions(tensor.parameters, tensor.name)
        size = tensor.parameters.get("binary_data_size")
        if size is None:
            if tensor.data is None:
                raise InvalidInputError(f"{tensor.name}.data: missing.")
            oip_tables.check_shape(tensor.name, tensor.shape, view)
            values = oip_tables.flat(tensor.name, tensor.data)
        else:
            end = position + _binary_size(tensor, size, len(blob) - position)
            count = oip_tables.check_shape(tensor.name, tensor.shape, view)
            values = oip_tables.unpack(tensor.name, tensor.datatype, blob[position:end], count)
            position = end
        tensors.append(oip_tables.Column(tensor.name, tensor.datatype, tensor.shape, values))
    if position != len(blob):
        raise InvalidInputError(f"{len(blob) - position} bytes follow the last input's data.")
    return oip_tables.query(tensors, view.features)


def _binary_size(tensor: InputTensor, size: object, left: int) -> int:
    place = f"{tensor.name}.parameters.binary_data_size"
    if type(size) is not int or size < 0:
        raise BadRequestError(f"{place}: expected a number of bytes, got {str(size)[:40]!r}.")
    if tensor.data is not None:
        raise BadRequestError(f"{tensor.name}: send data or binary_data_size, not both.")
    if size > left:
        raise InvalidInputError(f"{place}: {size}, but {left} bytes are left in the body.")
    return size


def _json_texts(tensor: InputTensor, count: int) -> list[str]:
    if tensor.data is None:
        raise InvalidInputError(f"{tensor.name}.data: missing.")
    oip.check_count(tensor.name, count, len(tensor.data))
    texts: list[str] = []
    for index, element in enumerate(tensor.data):
        text = element
        if len(tensor.shape) == 2 and type(element) is list and len(element) == 1:
            text = element[0]
        if type(text) is not str:
            kind = {dict: "an object", list: "a list", type(None): "null"}.get(type(text))
            raise InvalidInputError(
                f"{tensor.name}.data[{index}]: expected a string, got {kind or repr(text)[:40]}."
            )
        texts.append(text)
    return texts


class _BinaryOutputs:
    """Which outputs go out as bytes after the JSON."""

    def __init__(self, body: InferRequest) -> None:
        self._default = _flag(body.parameters, "binary_data_output", default=False)
        self.wanted = {
            output.name: _flag(output.parameters, "binary_data", default=self._default)
            for output in body.outputs
        }

    def __contains__(self, output: str) -> bool:
        return self.wanted.get(output, self._default)


def _flag(parameters: dict[str, Any], name: str, *, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise BadRequestError(f"parameters.{name}: expected true or false.")
    return value


def _described(
    answer: Answer, view: EndpointView, named: str, binary: _BinaryOutputs, blobs: list[bytes]
) -> InferResponse:
    """The JSON of an answer; what follows it as bytes is appended to ``blobs``."""
    described: list[Tensor] = []
    for tensor in oip.outputs(answer, list(binary.wanted)):
        one: Tensor = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        if tensor.name in binary:
            blobs.append(oip.pack(tensor))
            one["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            one["data"] = _json_data(tensor)
        described.append(one)
    result: InferResponse = {
        "model_name": view.name,
        "model_version": answer.ref.version,
        "outputs": described,
    }
    if named:
        result["id"] = named
    if any(answer.truncated):
        result["parameters"] = {"truncated": truncated_texts(answer)}
    return result


def _json_data(tensor: oip.OutputTensor) -> Any:  # noqa: ANN401 - an array is written as a list
    return tensor.data.ravel() if isinstance(tensor.data, np.ndarray) else tensor.data
