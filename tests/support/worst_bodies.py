"""Bodies that make the most of themselves: of every dialect, within all limits on the wire.

Each is for an endpoint of ``endpoints``. What it would become, if it were read before it is
counted, stands beside it.
"""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from front_fakes import FakePredictor, guard, view

from contracts.features import Feature, FeatureKind
from contracts.tasks import Task
from gateway.calls import EndpointView

EMOJI = "\U0001f600"  # with one of these, every character of a text takes four bytes
GRPC = "grpc"  # in place of a path: a message to ModelInfer
_WIDTH = 8  # features
WIDE = 640  # those of the table of many columns
MANY = 2048  # documents of the reranker that takes many


@dataclass(frozen=True)
class WorstBody:
    """One of them.

    Attributes:
        name: what is many in it.
        path: of its route.
        make: its bytes, about as many as are asked for.
        headers: beside content-length.
    """

    name: str
    path: str
    make: Callable[[int], bytes]
    headers: dict[str, str] = field(default_factory=dict)


def endpoints() -> FakePredictor:
    """What all of them are for."""
    predictor = FakePredictor.with_endpoints()
    predictor.views["topics"] = view("topics", Task.ZERO_SHOT_CLASSIFICATION)
    predictor.views["tags"] = guard(Task.TOKEN_CLASSIFICATION, "tags")
    predictor.views["answers"] = view("answers", Task.QUESTION_ANSWERING)
    predictor.views["pii"] = view("pii", Task.ENTITY_RECOGNITION)
    predictor.views["weights"] = view("weights", Task.SPARSE_EMBEDDING)
    predictor.views["tokens"] = view("tokens", Task.HYBRID_EMBEDDING)
    predictor.views["many"] = replace(view("many", Task.TEXT_RANKING), max_texts=MANY)
    predictor.views["table"] = _table("table", _WIDTH)
    predictor.views["wide"] = _table("wide", WIDE)
    return predictor


def _table(name: str, width: int) -> EndpointView:
    features = tuple(
        Feature(name=f"feature{at}", kind=FeatureKind.NUMBER, edges=(0.0, 1.0))
        for at in range(width)
    )
    return replace(view(name, Task.TABULAR_CLASSIFICATION), features=features)


def many(before: str, element: str, after: str) -> Callable[[int], bytes]:
    """As many of an element as fit, with commas between them."""

    def make(size: int) -> bytes:
        head, one, tail = before.encode(), element.encode() + b",", after.encode()
        count = max(1, (size - len(head) - len(tail)) // len(one))
        return head + (one * count)[:-1] + tail

    return make


def long(before: str, text: str, after: str) -> Callable[[int], bytes]:
    """A text that is as long as fits."""

    def make(size: int) -> bytes:
        head, one, tail = before.encode(), text.encode(), after.encode()
        return head + one * max(1, (size - len(head) - len(tail)) // len(one)) + tail

    return make


def _template(size: int) -> bytes:
    parameters = {
        "candidate_labels": [str(at) for at in range(64)],
        "hypothesis_template": EMOJI + " {} " + "x" * size,
    }
    return json.dumps({"inputs": "a", "parameters": parameters}, ensure_ascii=False).encode()


def _binary(datatype: str, shape: list[int], element: bytes) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        blob = element * (size // len(element))
        name = "TEXT" if datatype == "BYTES" else "matrix"
        tensor = {
            "name": name,
            "shape": [size // len(element) // shape[0], shape[0]] if shape else [1],
            "datatype": datatype,
            "parameters": {"binary_data_size": len(blob)},
        }
        header = json.dumps({"inputs": [tensor]}).encode().ljust(400)
        return header + blob

    return make


_HEADER = {"inference-header-content-length": "400"}
_TENSOR = '{"inputs":[{"name":"TEXT","shape":[1],"datatype":"BYTES","data":['


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def _part(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _message(endpoint: str, element: bytes) -> Callable[[int], bytes]:
    return lambda size: _part(1, endpoint.encode()) + element * (size // len(element))


def _contents(endpoint: str, name: str, datatype: str, element: bytes) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        shape = _part(3, _varint(1))
        contents = _part(5, element * (size // len(element)))
        tensor = _part(1, name.encode()) + _part(2, datatype.encode()) + shape + contents
        return _part(1, endpoint.encode()) + _part(5, tensor)

    return make


def _raw(endpoint: str, name: str, datatype: str, element: bytes) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        tensor = _part(1, name.encode()) + _part(2, datatype.encode()) + _part(3, _varint(1))
        return (
            _part(1, endpoint.encode())
            + _part(5, tensor)
            + _part(7, element * (size // len(element)))
        )

    return make


def _shape(endpoint: str) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        tensor = _part(1, b"TEXT") + _part(2, b"BYTES") + _part(3, b"\1" * size)
        return _part(1, endpoint.encode()) + _part(5, tensor)

    return make


def _id(endpoint: str) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        tensor = _part(1, b"TEXT") + _part(2, b"BYTES") + _part(3, b"\1")
        tensor += _part(5, _part(8, b"a"))
        return _part(1, endpoint.encode()) + _part(3, b"a" * size) + _part(5, tensor)

    return make


def _wide_rows(size: int) -> bytes:
    row = "[" + ",".join(["1"] * WIDE) + "]"
    rows = min(64, size // len(row))
    return ('{"instances":[' + ",".join([row] * rows) + "]}").encode()


def _wide_columns(size: int) -> bytes:
    rows = min(64, max(1, size // WIDE // 70))
    data = "[" + ",".join(["1"] * rows) + "]"
    inputs = ",".join(
        f'{{"name":"feature{at}","shape":[{rows}],"datatype":"FP32","data":{data}}}'
        for at in range(WIDE)
    )
    return f'{{"inputs":[{inputs}]}}'.encode()


def _wide_message(size: int) -> bytes:
    rows = min(64, max(1, size // WIDE))
    shape = _part(3, _varint(rows) + _varint(WIDE))
    tensor = _part(1, b"matrix") + _part(2, b"INT8") + shape
    return _part(1, b"wide") + _part(5, tensor) + _part(7, b"\1" * (rows * WIDE))


def _column_messages(size: int) -> bytes:
    rows = min(64, max(1, size // WIDE // 40))
    shape, contents = _part(3, _varint(rows)), _part(5, _part(6, b"\0\0\x80\x3f" * rows))
    return _part(1, b"wide") + b"".join(
        _part(5, _part(1, b"feature%d" % at) + _part(2, b"FP32") + shape + contents)
        for at in range(WIDE)
    )


_HF, _KSERVE, _OIP = "/endpoints/{}", "/v1/models/{}:predict", "/v2/models/{}/infer"
_TEI = "/endpoints/{}/"
WORST = [
    WorstBody("hf: a long text", _HF.format("sentiment"), long('{"inputs":"' + EMOJI, "x", '"}')),
    WorstBody("hf: texts", _HF.format("sentiment"), many('{"inputs":[', '"a"', "]}")),
    WorstBody("hf: pairs", _HF.format("sentiment"), many('{"inputs":[', '{"text":"ab"}', "]}")),
    WorstBody("hf: numbers", _HF.format("sentiment"), many('{"inputs":[', "257", "]}")),
    WorstBody(
        "hf: contexts",
        _HF.format("answers"),
        many('{"inputs":{"question":"a","context":[', '"b"', "]}}"),
    ),
    WorstBody(
        "hf: options", _HF.format("sentiment"), many('{"inputs":"a","options":{"x":[', "{}", "]}}")
    ),
    WorstBody(
        "hf: objects within objects",
        _HF.format("sentiment"),
        many('{"inputs":"a","options":{"x":[', '{"":{"":{"":{}}}}', "]}}"),
    ),
    WorstBody(
        "hf: fields that mean nothing",
        _HF.format("sentiment"),
        lambda size: (
            b'{"inputs":"a",' + b",".join(b'"%x":1' % at for at in range(size // 9)) + b"}"
        ),
    ),
    WorstBody("hf: a template", _HF.format("topics"), _template),
    WorstBody(
        "hf: labels",
        _HF.format("topics"),
        many('{"inputs":"a","parameters":{"candidate_labels":[', '"a"', "]}}"),
    ),
    WorstBody(
        "hf: labels of entities",
        _HF.format("pii"),
        many('{"inputs":"a","parameters":{"labels":[', '"a"', "]}}"),
    ),
    WorstBody(
        "hf: texts with many labels",
        _HF.format("pii"),
        many(
            '{"parameters":{"labels":'
            + json.dumps([str(at) * 60 for at in range(64)])
            + '},"inputs":[',
            '"a"',
            "]}",
        ),
    ),
    WorstBody(
        "hf: sentences",
        _HF.format("minilm"),
        many('{"inputs":{"source_sentence":"a","sentences":[', '"b"', "]}}"),
    ),
    WorstBody("hf: brackets", _HF.format("sentiment"), long('{"inputs":', "[", "")),
    WorstBody("hf: half a string", _HF.format("sentiment"), long('{"inputs":"', "\\\\", "")),
    WorstBody("kserve: texts", _KSERVE.format("sentiment"), many('{"instances":[', '"a"', "]}")),
    WorstBody(
        "kserve: keys that mean nothing",
        _KSERVE.format("sentiment"),
        many('{"instances":[', '{"text":"","a":1}', "]}"),
    ),
    WorstBody(
        "kserve: parameters",
        _KSERVE.format("sentiment"),
        many('{"instances":["a"],"parameters":{"x":[', "[]", "]}}"),
    ),
    WorstBody("kserve: rows", _KSERVE.format("table"), many('{"instances":[', "[]", "]}")),
    WorstBody(
        "kserve: rows of nothing", _KSERVE.format("table"), many('{"instances":[', "1", "]}")
    ),
    WorstBody("kserve: a long row", _KSERVE.format("table"), many('{"instances":[[', "257", "]]}")),
    WorstBody("oip: texts", _OIP.format("sentiment"), many(_TENSOR, '"a"', "]}]}")),
    WorstBody("oip: lists of texts", _OIP.format("sentiment"), many(_TENSOR, '["a"]', "]}]}")),
    WorstBody("oip: numbers", _OIP.format("sentiment"), many(_TENSOR, "1.5", "]}]}")),
    WorstBody(
        "oip: inputs",
        _OIP.format("sentiment"),
        many('{"inputs":[', '{"name":"","shape":[1],"datatype":""}', "]}"),
    ),
    WorstBody(
        "oip: outputs", _OIP.format("sentiment"), many('{"inputs":[],"outputs":[', "{}", "]}")
    ),
    WorstBody(
        "oip: bytes of texts",
        _OIP.format("sentiment"),
        _binary("BYTES", [], struct.pack("<I", 0)),
        _HEADER,
    ),
    WorstBody(
        "oip: bytes of many texts",
        _OIP.format("sentiment"),
        _binary("BYTES", [1], struct.pack("<I", 0)),
        _HEADER,
    ),
    WorstBody("oip: rows of INT8", _OIP.format("table"), _binary("INT8", [_WIDTH], b"\1"), _HEADER),
    WorstBody("oip: a row of FP16", _OIP.format("table"), _binary("FP16", [], b"\1\1"), _HEADER),
    WorstBody(
        "oip: numbers of a table",
        _OIP.format("table"),
        many('{"inputs":[{"name":"m","shape":[1,8],"datatype":"FP32","data":[', "257", "]}]}"),
    ),
    WorstBody("openai: texts", "/v1/embeddings", many('{"model":"minilm","input":[', '"a"', "]}")),
    WorstBody("openai: ids", "/v1/embeddings", many('{"model":"minilm","input":[', "257", "]}")),
    WorstBody(
        "openai: lists of ids", "/v1/embeddings", many('{"model":"minilm","input":[', "[1]", "]}")
    ),
    WorstBody(
        "openai: ids of long tokens",
        "/v1/embeddings",
        many('{"model":"minilm","input":[', "58040", "]}"),
    ),
    WorstBody(
        "openai: a long text",
        "/v1/embeddings",
        long('{"model":"minilm","input":"' + EMOJI, "x", '"}'),
    ),
    WorstBody(
        "openai: the model's ids",
        "/v1/embeddings",
        many('{"model":"minilm","tokenizer":"model","input":[', "7", "]}"),
    ),
    WorstBody(
        "openai: ids for what does not embed",
        "/v1/embeddings",
        many('{"model":"sentiment","input":[', "257", "]}"),
    ),
    WorstBody(
        "openai: ids that are none",
        "/v1/embeddings",
        lambda size: many('{"model":"minilm","input":[', "257", ",4000000000]}")(size - 20),
    ),
    WorstBody(
        "openai: before the model",
        "/v1/embeddings",
        many('{"x":[', '{"":[]}', '],"model":"minilm","input":"a"}'),
    ),
    WorstBody(
        "rerank: documents",
        "/v1/rerank",
        many('{"model":"reranker","query":"a","documents":[', '"b"', "]}"),
    ),
    WorstBody(
        "rerank: documents as objects",
        "/v2/rerank",
        many('{"model":"reranker","query":"a","documents":[', '{"text":"b"}', "]}"),
    ),
    WorstBody(
        "tei: texts to rerank",
        _TEI.format("reranker") + "rerank",
        many('{"query":"a","texts":[', '"b"', "]}"),
    ),
    WorstBody("tei: ids", _TEI.format("minilm") + "embed", many('{"inputs":[', "[7]", "]}")),
    WorstBody(
        "tei: sparse", _TEI.format("minilm") + "embed_sparse", many('{"inputs":[', "[7]", "]}")
    ),
    WorstBody("tei: tokens", _TEI.format("minilm") + "embed_all", many('{"inputs":[', '"a"', "]}")),
    WorstBody("tei: texts", _TEI.format("minilm") + "embed", many('{"inputs":[', '"a"', "]}")),
    WorstBody(
        "tei: pairs", _TEI.format("sentiment") + "predict", many('{"inputs":[', '["a"]', "]}")
    ),
    WorstBody(
        "tei: sentences",
        _TEI.format("minilm") + "similarity",
        many('{"inputs":{"source_sentence":"a","sentences":[', '"b"', "]}}"),
    ),
    WorstBody(
        "tei: to tokenise", _TEI.format("minilm") + "tokenize", many('{"inputs":[', '"a"', "]}")
    ),
    WorstBody("tei: to decode", _TEI.format("minilm") + "decode", many('{"ids":[', "[7]", "]}")),
    WorstBody("tei: a text's ids", _TEI.format("minilm") + "decode", many('{"ids":[', "7", "]}")),
    WorstBody(
        "rerank: long documents that come back",
        "/v1/rerank",
        long(
            '{"model":"reranker","query":"a","documents":["', "\\n", '"],"return_documents":true}'
        ),
    ),
    WorstBody(
        "tei: a long text to rerank that comes back",
        _TEI.format("reranker") + "rerank",
        long('{"query":"a","return_text":true,"texts":["', "\\n", '"]}'),
    ),
    WorstBody(
        "guardrail: texts",
        _HF.format("sentiment") + "/beta/litellm_basic_guardrail_api",
        many('{"texts":[', '"a"', "]}"),
    ),
    WorstBody(
        "guardrail: images",
        _HF.format("sentiment") + "/beta/litellm_basic_guardrail_api",
        many('{"texts":["a"],"images":[', '""', "]}"),
    ),
    WorstBody(
        "guardrail: a long text",
        _HF.format("sentiment") + "/beta/litellm_basic_guardrail_api",
        long('{"texts":["' + EMOJI, "x", '"]}'),
    ),
    WorstBody(
        "detectors: texts",
        _HF.format("sentiment") + "/api/v1/text/contents",
        many('{"contents":[', '"a"', "]}"),
    ),
    WorstBody(
        "completions: stops",
        "/v1/completions",
        many('{"model":"minilm","prompt":"a","stop":[', '"a"', "]}"),
    ),
    WorstBody(
        "completions: a long stop",
        "/v1/completions",
        long('{"model":"minilm","prompt":"a","stop":"', "ab", '"}'),
    ),
    WorstBody("feedback: receipts", "/feedback", many('{"receipts":[', '{"receipt":"a"}', "]}")),
    WorstBody("feedback: a list", "/feedback", many("[", '{"receipt":"a","label":"b"}', "]")),
    WorstBody(
        "feedback: a long receipt", "/feedback", long('{"receipt":"', "a", '","labels":["b"]}')
    ),
    WorstBody("openai: a long name", "/v1/embeddings", long('{"model":"', "a", '","input":"a"}')),
    WorstBody(
        "oip: a long name of an input",
        _OIP.format("sentiment"),
        long('{"inputs":[{"name":"', EMOJI, '","shape":[1],"datatype":"BYTES","data":["a"]}]}'),
    ),
    WorstBody(
        "oip: a long shape",
        _OIP.format("sentiment"),
        many('{"inputs":[{"name":"TEXT","datatype":"BYTES","data":["a"],"shape":[', "1", "]}]}"),
    ),
    WorstBody(
        "oip: a long id",
        _OIP.format("sentiment"),
        long(
            '{"id":"',
            "\\n",
            '","inputs":[{"name":"TEXT","shape":[1],"datatype":"BYTES","data":["a"]}]}',
        ),
    ),
    WorstBody(
        "hf: a long option",
        _HF.format("sentiment"),
        long('{"inputs":"a","parameters":{"function_to_apply":"', EMOJI, '"}}'),
    ),
    WorstBody(
        "hf: a long label",
        _HF.format("topics"),
        long('{"inputs":"a","parameters":{"candidate_labels":["', "\\n", '"]}}'),
    ),
    WorstBody(
        "completions: a prompt of ids",
        "/v1/completions",
        many('{"model":"minilm","prompt":[', "[1]", "]}"),
    ),
    WorstBody(
        "completions: biases",
        "/v1/completions",
        lambda size: (
            b'{"model":"minilm","prompt":"a","logit_bias":{'
            + b",".join(b'"%x":1' % at for at in range(size // 9))
            + b"}}"
        ),
    ),
    WorstBody("grpc: inputs", GRPC, _message("sentiment", b"\x2a\x00")),
    WorstBody("grpc: inputs with parameters", GRPC, _message("sentiment", b"\x2a\x02\x22\x00")),
    WorstBody("grpc: outputs", GRPC, _message("sentiment", b"\x32\x00")),
    WorstBody("grpc: parameters", GRPC, _message("sentiment", _part(4, _part(1, b"a")))),
    WorstBody("grpc: contents", GRPC, _message("sentiment", b"\x3a\x00")),
    WorstBody("grpc: texts", GRPC, _contents("sentiment", "TEXT", "BYTES", b"\x42\x00")),
    WorstBody("grpc: bytes of texts", GRPC, _raw("sentiment", "TEXT", "BYTES", b"\0\0\0\0")),
    WorstBody("grpc: shapes", GRPC, _shape("sentiment")),
    WorstBody("grpc: a long name", GRPC, lambda size: _part(1, b"a" * size)),
    WorstBody("grpc: a long id", GRPC, _id("sentiment")),
    WorstBody("grpc: no text of bytes", GRPC, _contents("sentiment", "TEXT", "BYTES", b"\x0a\0")),
    WorstBody("kserve: rows of many columns", _KSERVE.format("wide"), _wide_rows),
    WorstBody("oip: many columns", _OIP.format("wide"), _wide_columns),
    WorstBody("grpc: rows of many columns", GRPC, _wide_message),
    WorstBody("grpc: many columns", GRPC, _column_messages),
    WorstBody(
        "rerank: many documents",
        "/v1/rerank",
        lambda size: many('{"model":"many","query":"a","documents":[', '"b"', "]}")(
            min(size, 4 * MANY)
        ),
    ),
    WorstBody("grpc: numbers", GRPC, _raw("table", "feature0", "INT8", b"\1")),
]
