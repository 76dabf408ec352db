"""The Open Inference Protocol's tensors and metadata, for both HTTP and gRPC.

``oip_http`` and ``oip_grpc`` read requests into ``TextTensor`` objects and get ``OutputTensor``
objects for the answer. Everything here is a function of values.

The binary tensor data extension carries tensors as bytes: after the JSON of an HTTP body, or in a
gRPC message. A BYTES tensor is each element's length (four bytes, little-endian) and the element;
other tensors are the row-major numbers, little-endian. No length is trusted before it was compared
with the bytes that are there.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.tasks import PUBLIC_OUTPUTS, TEXT, TEXT_PAIR
from contracts.tensors import Datatype
from gateway.calls import Answer, EndpointView, Query
from gateway.dialects.parameters import forms_refused, of_any_dialect, prompt_name_in
from gateway.dialects.reading import check_texts
from gateway.errors import BadRequestError, InvalidInputError, UnknownVersionError, UnsupportedError
from gateway.request_context import RequestContext
from preprocess.tasks import HEADS, SecondText

PLATFORM = "headrace"
SERVER_NAME = "headrace"
_PAIR = {"question": TEXT, "context": TEXT_PAIR}
CLASS = "headrace_class"  # a request's parameter: bulk or interactive
_OWN = (CLASS, "timeout", "binary_data_output")  # parameters that both protocols' clients send
_TIMEOUT_LIMIT = 600_000_000  # microseconds
EXTENSIONS = ("binary_tensor_data", "model_configuration")


@dataclass(frozen=True, slots=True)
class TextTensor:
    """An input tensor whose elements are read: ``texts`` has one string an element."""

    name: str
    texts: list[str]


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """One output; ``data`` is row-major: labels of a BYTES tensor, else float32 of ``shape``."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    data: list[str] | NDArray[np.float32]


def element_count(name: str, datatype: str, shape: Sequence[int], view: EndpointView) -> int:
    """How many texts an input must hold by its shape.

    Raises:
        BadRequestError: an unknown input, or a datatype other than BYTES.
        InvalidInputError: a shape other than ``[N]`` and ``[N, 1]``.
        TooLargeError: more than the endpoint takes.
    """
    if name not in (TEXT, TEXT_PAIR):  # see ``canonical``
        raise BadRequestError(
            f"inputs: there is no input {name[:80]!r}; send {TEXT}, with {TEXT_PAIR} for pairs."
        )
    if datatype != Datatype.BYTES:
        raise BadRequestError(f"{name}.datatype: expected BYTES, got {datatype[:40]!r}.")
    if len(shape) not in (1, 2) or shape[0] < 0 or (len(shape) == 2 and shape[1] != 1):
        shown = list(shape[:8])
        raise InvalidInputError(f"{name}.shape: expected [N] or [N, 1], got {shown}.")
    check_texts(shape[0], view)
    return shape[0]


def canonical(names: Sequence[str]) -> list[str]:
    """The inputs' names as they are here, for requests that were written for other servers.

    A lone input is the text, whatever it is called: ``args`` or ``array_inputs`` at MLServer,
    ``input-0`` at KServe. ``question`` and ``context`` are MLServer's names of a pair.
    """
    if len(names) == 1 and names[0] != TEXT_PAIR:
        return [TEXT]
    if sorted(names) == sorted(_PAIR):
        return [_PAIR[name] for name in names]
    return list(names)


def check_count(name: str, expected: int, found: int) -> None:
    """Refuses a tensor whose shape and data disagree; raises ``InvalidInputError``."""
    if expected != found:
        raise InvalidInputError(f"{name}: the shape says {expected} texts, the data holds {found}.")


def utf8(name: str, index: int, element: bytes) -> str:
    """One element as text; raises ``InvalidInputError``."""
    try:
        return element.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{name}[{index}]: not UTF-8, byte {error.start} is {element[error.start]:#04x}."
        ) from None


def query(tensors: list[TextTensor], parameters: Mapping[str, object]) -> Query:
    """The texts of a request's inputs, with the prompt that ``prompt_name`` names.

    Raises:
        BadRequestError: ``prompt_name`` is no string.
        InvalidInputError: an input is missing, twice there, or not as long as the other.
    """
    by_name = {tensor.name: tensor.texts for tensor in tensors}
    if len(by_name) != len(tensors):
        raise InvalidInputError("inputs: the same input is there twice.")
    if TEXT not in by_name:
        raise InvalidInputError(f"inputs: {TEXT} is missing.")
    texts, pairs = by_name[TEXT], by_name.get(TEXT_PAIR)
    if pairs is not None and len(pairs) != len(texts):
        raise InvalidInputError(
            f"{TEXT_PAIR}: expected {len(texts)} elements, as many as {TEXT}; got {len(pairs)}."
        )
    return Query(texts, pairs, prompt_name=prompt_name_in(parameters))


def read_options(
    parameters: dict[str, object],
    wanted: list[tuple[str, dict[str, object]]],
    view: EndpointView,
    context: RequestContext,
) -> dict[str, object]:
    """Reads Triton's ``timeout`` (microseconds) and the class, and checks the outputs asked for.

    Returns:
        The parameters that the task takes; ``prompt_name`` is read with the texts. Others
        (priority, sequences) are ignored, as for a model that is not configured for them.

    Raises:
        BadRequestError: a timeout that is no such number, a class that is none, or a parameter of
            another type.
        InvalidInputError: no such output of the task.
        UnsupportedError: an extension that is not offered.
    """
    if (named := parameters.get(CLASS)) is not None:
        context.classify(named)
    timeout = parameters.get("timeout")
    if timeout is not None:
        if type(timeout) is not int or not 0 <= timeout <= _TIMEOUT_LIMIT:
            raise BadRequestError(
                f"parameters.timeout: expected microseconds up to {_TIMEOUT_LIMIT}, "
                f"got {str(timeout)[:40]!r}."
            )
        if timeout:
            context.shorten(timeout / 1e6)
    known = [spec.name for spec in PUBLIC_OUTPUTS[view.task]]
    for name, own in wanted:
        if name not in known:
            raise InvalidInputError(
                f"outputs: there is no output {name[:80]!r}; {view.task} has {', '.join(known)}."
            )
        refuse_extensions(own, name)
    return of_any_dialect(parameters, view, context, _OWN) if parameters else {}


def check_version(view: EndpointView, version: str | None) -> None:
    """Refuses a version that the endpoint does not hold; None stands for any.

    Raises:
        UnknownVersionError: names those that it holds.
    """
    held = versions(view)
    if version is not None and version not in held:
        raise UnknownVersionError(
            f"{view.name} does not hold version {version[:40]!r}, but {', '.join(held)}."
        )


def refuse_extensions(parameters: dict[str, object], place: str) -> None:
    """Refuses the two extensions that come as a tensor's parameters.

    Raises:
        UnsupportedError: says what to use instead.
    """
    if parameters.get("classification"):
        raise UnsupportedError(
            f"{place}: the classification extension is not offered; LABEL, SCORE and SCORES hold "
            "the same."
        )
    if "shared_memory_region" in parameters:
        raise UnsupportedError(
            f"{place}: shared memory is not offered, for gateway and caller share no machine; send "
            "the data itself."
        )


def outputs(answer: Answer, names: list[str]) -> list[OutputTensor]:
    """The outputs asked for, in that order; all of the task's where ``names`` is empty."""
    made = {tensor.name: tensor for tensor in _all_outputs(answer)}
    return [made[name] for name in names] if names else list(made.values())


def _all_outputs(answer: Answer) -> list[OutputTensor]:
    with forms_refused():
        made = HEADS[answer.task].outputs(answer)
    return [
        OutputTensor(spec.name, spec.datatype, np.shape(made[spec.name]), made[spec.name])
        for spec in PUBLIC_OUTPUTS[answer.task]
    ]


def versions(view: EndpointView) -> list[str]:
    """The versions that the endpoint can be asked for, stable first."""
    return list(dict.fromkeys(ref.version for ref in view.refs))


def _space(view: EndpointView, version: str | None) -> str:
    """Of the vectors of a version; of the stable one if None."""
    refs = (ref for ref in view.refs if version in (None, ref.version))
    return next((ref.space for ref in refs), "")


def metadata(view: EndpointView, version: str | None) -> dict[str, object]:
    """The body of model metadata; the last dimension of an output is the model's own.

    ``optional`` is not the protocol's: clients that send every input they find here would send
    second texts to a model that takes one, without it.
    """
    return {
        "name": view.name,
        "versions": [version] if version else versions(view),
        "platform": PLATFORM,
        "inputs": [
            {
                "name": name,
                "datatype": datatype,
                "shape": [-1],
                **({"optional": True} if name in _optional(view) else {}),
            }
            for name, datatype in _inputs(view)
        ],
        "outputs": [
            {"name": spec.name, "datatype": spec.datatype, "shape": _shape(spec.shape, view)}
            for spec in PUBLIC_OUTPUTS[view.task]
        ],
        "parameters": {
            "task": view.task,
            "labels": list(view.labels),
            "max_tokens": view.max_tokens,
            "max_texts": view.max_texts,
            "timeout_seconds": view.timeout_seconds,
            **({"prompts": list(view.prompts)} if view.prompts else {}),
            **({"space": space} if (space := _space(view, version)) else {}),
            **view.metadata,
        },
    }


def config(view: EndpointView) -> dict[str, object]:
    """The fields of Triton's ``ModelConfig``.

    ``max_batch_size`` is 0, because the dimensions include the batch.
    """
    datatypes = {
        Datatype.BYTES: "TYPE_STRING",
        Datatype.BOOL: "TYPE_BOOL",
        Datatype.INT64: "TYPE_INT64",
        Datatype.FP32: "TYPE_FP32",
        Datatype.FP64: "TYPE_FP64",
    }
    optional = _optional(view)
    return {
        "name": view.name,
        "platform": PLATFORM,
        "max_batch_size": 0,
        "input": [
            {
                "name": name,
                "data_type": datatypes[datatype],
                "dims": [-1],
                **({"optional": True} if name in optional else {}),
            }
            for name, datatype in _inputs(view)
        ],
        "output": [
            {
                "name": spec.name,
                "data_type": datatypes[spec.datatype],
                "dims": _shape(spec.shape, view),
            }
            for spec in PUBLIC_OUTPUTS[view.task]
        ],
    }


def _inputs(view: EndpointView) -> list[tuple[str, Datatype]]:
    """Names and datatypes of what callers send."""
    if view.features:
        return [(feature.name, feature.datatype) for feature in view.features]
    head = HEADS[view.task]
    if head.second_text is SecondText.NONE or head.makes_second_text:
        return [(TEXT, Datatype.BYTES)]
    return [(TEXT, Datatype.BYTES), (TEXT_PAIR, Datatype.BYTES)]


def _optional(view: EndpointView) -> list[str]:
    """Of these, those that a request may leave out."""
    if view.features:
        return [feature.name for feature in view.features if feature.nullable]
    return [TEXT_PAIR] if HEADS[view.task].second_text is SecondText.OPTIONAL else []


def _shape(shape: tuple[int, ...], view: EndpointView) -> list[int]:
    # Vectors are as long as the model's unless a caller asks for fewer dimensions. Labels of the
    # callers' own are as many as they send.
    last = view.dimension or (0 if HEADS[view.task].everywhere else len(view.labels))
    return list(shape) if len(shape) < 2 or not last else [*shape[:-1], last]


_LENGTH = struct.Struct("<I")


def split_header(body: bytes, header_length: bytes | None) -> tuple[bytes, bytes]:
    """The JSON and the binary part of a body, by its ``Inference-Header-Content-Length``.

    Raises:
        BadRequestError: the length is no number or longer than the body.
    """
    if header_length is None:
        return body, b""
    if not header_length.isdigit() or len(header_length) > 12 or int(header_length) > len(body):
        raise BadRequestError(
            f"Inference-Header-Content-Length: expected a number up to the body's {len(body)} "
            f"bytes, got {header_length.decode('latin-1')[:40]!r}."
        )
    end = int(header_length)
    return body[:end], body[end:]


def unpack_texts(name: str, data: bytes, expected: int) -> list[str]:
    """The elements of a BYTES tensor, as many as its shape says.

    Raises:
        InvalidInputError: there are others, or they are cut short or no UTF-8.
    """
    found: list[str] = []
    position, end = 0, len(data)
    while position < end:
        if len(found) == expected:
            raise InvalidInputError(
                f"{name}: the shape says {expected} texts, the data holds more."
            )
        if end - position < _LENGTH.size:
            raise InvalidInputError(f"{name}: {end - position} bytes are left after the last text.")
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if length > end - position:
            raise InvalidInputError(
                f"{name}[{len(found)}]: its length says {length} bytes, {end - position} are left."
            )
        found.append(utf8(name, len(found), data[position : position + length]))
        position += length
    check_count(name, expected, len(found))
    return found


def pack(tensor: OutputTensor) -> bytes:
    """The bytes of an output."""
    if isinstance(tensor.data, list):
        encoded = [label.encode() for label in tensor.data]
        return b"".join(part for label in encoded for part in (_LENGTH.pack(len(label)), label))
    return np.ascontiguousarray(tensor.data, dtype="<f4").tobytes()
