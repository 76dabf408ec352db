"""What ``docs/migrate`` says of clients: the bodies that they send to other servers, sent here.

The bodies are those of the servers' own public documentation: docs/examples/huggingface of
github.com/SeldonIO/MLServer, and the text classification task of KServe's Hugging Face runtime.
"""

import struct
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from front_fakes import LABELS, Behind, FakePredictor, asked, scores, view
from front_server import Served, serving

from contracts.tasks import Task

TEXT = "This is terrible!"
INFER = "/v2/models/sentiment/infer"
NAMES = ("args", "array_inputs", "text_inputs", "inputs", "input-0", "x" * 300)


def body(name: str, *texts: str, column: bool = False, **fields: Any) -> dict[str, Any]:
    shape = [len(texts), 1] if column else [len(texts)]
    tensor = {"name": name, "shape": shape, "datatype": "BYTES", "data": list(texts), **fields}
    return {"inputs": [tensor]}


def by_name(answer: dict[str, Any]) -> dict[str, Any]:
    return {tensor["name"]: tensor["data"] for tensor in answer["outputs"]}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("column", [False, True])
async def test_a_lone_input_of_bytes_is_the_text_whatever_it_is_called(
    name: str, column: bool
) -> None:
    behind = Behind()
    named = await asked(behind, "POST", INFER, json=body(name, TEXT, "good", column=column))
    usual = await asked(behind, "POST", INFER, json=body("TEXT", TEXT, "good"))
    assert named.status_code == 200
    assert named.json()["outputs"] == usual.json()["outputs"]
    assert behind.predictor.calls[0].texts == [TEXT, "good"]


async def test_the_content_types_that_mlservers_codecs_write_are_no_reason_to_refuse() -> None:
    asked_for = body("inputs", TEXT, parameters={"content_type": "str"})
    asked_for["parameters"] = {"content_type": "str"}
    assert (await asked(Behind(), "POST", INFER, json=asked_for)).status_code == 200


async def test_a_lone_input_may_follow_the_json_as_bytes() -> None:
    behind = Behind()
    blob = struct.pack("<I", len(TEXT)) + TEXT.encode()
    header = (
        b'{"inputs":[{"name":"args","shape":[1],"datatype":"BYTES",'
        b'"parameters":{"binary_data_size":%d}}]}' % len(blob)
    )
    answer = await asked(
        behind, "POST", INFER, content=header + blob,
        headers={"inference-header-content-length": str(len(header))},
    )  # fmt: skip
    assert answer.status_code == 200
    assert behind.predictor.calls[0].texts == [TEXT]


async def test_a_lone_input_that_holds_no_text_is_refused_and_named() -> None:
    wrong = body("input_ids", TEXT)
    wrong["inputs"][0] |= {"datatype": "INT64", "data": [101]}
    answer = await asked(Behind(), "POST", INFER, json=wrong)
    assert answer.status_code == 400
    assert "expected BYTES" in answer.json()["error"]


@pytest.mark.parametrize("first", ["question", "context"])
async def test_mlservers_question_and_context_are_a_pair_in_either_order(first: str) -> None:
    behind = Behind(FakePredictor.with_endpoints())
    behind.predictor.views["reader"] = view("reader", Task.QUESTION_ANSWERING)
    said = {"question": "was it warm", "context": "the soup was warm"}
    names = sorted(said, key=lambda name: name != first)
    pair = {"inputs": [body(name, said[name])["inputs"][0] for name in names]}
    answer = await asked(behind, "POST", "/v2/models/reader/infer", json=pair)
    assert answer.status_code == 200, answer.text
    (call,) = behind.predictor.calls
    assert (call.texts, call.pairs) == ([said["question"]], [said["context"]])


def test_a_lone_input_is_the_text_over_grpc_too() -> None:
    with serving(Served()) as served:
        check_grpc(served)


def check_grpc(served: Served) -> None:
    client = triton_grpc.InferenceServerClient(served.grpc_address)
    tensor = triton_grpc.InferInput("args", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([TEXT.encode()], dtype=object))
    answer = client.infer("sentiment", [tensor])
    assert answer.as_numpy("LABEL")[0].decode() in LABELS
    client.close()


async def test_mlservers_label_and_score_are_the_first_two_outputs_by_text() -> None:
    answer = (await asked(Behind(), "POST", INFER, json=body("args", TEXT, "good"))).json()
    found = by_name(answer)
    assert [tensor["name"] for tensor in answer["outputs"]] == ["LABEL", "SCORE", "SCORES"]
    assert [len(found["LABEL"]), len(found["SCORE"])] == [2, 2]


async def test_kserves_class_index_is_the_place_of_the_largest_of_the_scores() -> None:
    behind = Behind()
    answer = (await asked(behind, "POST", INFER, json=body("input-0", TEXT))).json()
    labels = (await asked(behind, "GET", "/v2/models/sentiment")).json()["parameters"]["labels"]
    found = by_name(answer)
    index = int(np.argmax(found["SCORES"]))
    assert labels[index] == found["LABEL"][0]
    assert index == int(np.argmax(scores(TEXT)))


async def test_an_answer_over_kserve_v1_names_the_class_and_not_its_index() -> None:
    sent = {"instances": [TEXT]}
    answer = await asked(Behind(), "POST", "/v1/models/sentiment:predict", json=sent)
    (prediction,) = answer.json()["predictions"]
    assert set(prediction) == {"label", "score", "scores"}
    assert list(prediction["scores"]) == list(LABELS)


@pytest.mark.parametrize("name", ["output", "output-0"])
async def test_an_output_by_its_name_at_the_other_server_is_refused_with_those_that_there_are(
    name: str,
) -> None:
    asked_for = {**body("args", TEXT), "outputs": [{"name": name}]}
    answer = await asked(Behind(), "POST", INFER, json=asked_for)
    assert answer.status_code == 422
    assert "LABEL, SCORE, SCORES" in answer.json()["error"]
