"""The Open Inference Protocol's JSON and bytes, where they are wrong or unusual."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from front_fakes import Behind, asked, client_of, scores, space_of, view

from contracts.tasks import Task

PATH = "/v2/models/sentiment/infer"


def tensor(**changes: Any) -> dict[str, Any]:
    return {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]} | changes


def without_data(**changes: Any) -> dict[str, Any]:
    made = tensor(**changes)
    del made["data"]
    return made


BAD: list[tuple[Any, int, str]] = [
    ({}, 400, "inputs"),
    ({"inputs": []}, 400, "inputs"),
    ({"inputs": [tensor(), tensor(name="WORDS")]}, 400, "no input 'WORDS'"),
    ({"inputs": [tensor(name="TEXT_PAIR")]}, 422, "TEXT is missing"),
    ({"inputs": [tensor(), tensor()]}, 422, "there twice"),
    ({"inputs": [tensor(datatype="FP32")]}, 400, "TEXT.datatype"),
    ({"inputs": [tensor(shape=[])]}, 400, "shape"),
    ({"inputs": [tensor(shape=[0], data=[])]}, 400, "shape[0]"),
    ({"inputs": [tensor(shape=[-1])]}, 400, "shape[0]"),
    ({"inputs": [tensor(shape=[1, 2])]}, 422, "expected [N] or [N, 1]"),
    ({"inputs": [tensor(shape=[1, 1, 1])]}, 400, "shape"),
    ({"inputs": [tensor(shape=[1.5])]}, 400, "shape"),
    ({"inputs": [tensor(shape=[2])]}, 422, "the shape says 2 texts, the data holds 1"),
    ({"inputs": [tensor(shape=[10**18])]}, 413, "this endpoint takes 64 at once"),
    ({"inputs": [tensor(data=[1])]}, 422, "TEXT.data[0]: expected a string"),
    ({"inputs": [tensor(data=[None])]}, 422, "TEXT.data[0]: expected a string, got null"),
    ({"inputs": [tensor(data=[["a"]])]}, 422, "TEXT.data[0]: expected a string, got a list"),
    ({"inputs": [without_data()]}, 422, "TEXT.data: missing"),
    (
        {"inputs": [tensor(), tensor(name="TEXT_PAIR", shape=[2], data=["a", "b"])]},
        422,
        "TEXT_PAIR",
    ),
    ({"inputs": [tensor()], "outputs": [{"name": "LOGITS"}]}, 422, "no output 'LOGITS'"),
    ({"inputs": [tensor()], "parameters": {"timeout": "soon"}}, 400, "parameters.timeout"),
    ({"inputs": [tensor()], "parameters": {"timeout": -1}}, 400, "parameters.timeout"),
    ({"inputs": [tensor()], "parameters": {"binary_data_output": 1}}, 400, "true or false"),
    ({"inputs": [without_data(parameters={"binary_data_size": 4})]}, 422, "0 bytes are left"),
    ({"inputs": [without_data(parameters={"binary_data_size": "x"})]}, 400, "binary_data_size"),
    ({"inputs": [tensor(parameters={"binary_data_size": 0})]}, 400, "not both"),
    ({"inputs": [tensor(parameters={"shared_memory_region": "r"})]}, 501, "shared memory"),
]


@pytest.mark.parametrize(("body", "status", "sentence"), BAD)
async def test_what_is_wrong_is_named(body: Any, status: int, sentence: str) -> None:
    behind = Behind()
    answer = await asked(behind, "POST", PATH, json=body)
    assert answer.status_code == status, answer.text
    assert sentence in answer.json()["error"]
    assert behind.predictor.calls == []


async def test_rows_of_one_are_read_with_a_column_shape() -> None:
    body = {"inputs": [tensor(shape=[2, 1], data=[["a"], ["good"]])]}
    answer = await asked(Behind(), "POST", PATH, json=body)
    outputs = {one["name"]: one for one in answer.json()["outputs"]}
    assert outputs["SCORES"]["shape"] == [2, 3]
    assert outputs["SCORES"]["data"] == scores("a") + scores("good")
    assert outputs["LABEL"]["shape"] == [2]


async def test_tritons_timeout_parameter_shortens_the_deadline() -> None:
    behind = Behind()
    async with client_of(behind) as client:
        body = {"inputs": [tensor()], "parameters": {"timeout": 250_000}}
        await client.post(PATH, json=body)
        await client.post(PATH, json={"inputs": [tensor()], "parameters": {"timeout": 0}})
    first, second = behind.predictor.calls
    assert first.deadline == first.started + 0.25
    assert second.deadline == second.started + 60.0


async def test_outputs_are_binary_only_where_asked() -> None:
    wanted = [
        {"name": "SCORE", "parameters": {"binary_data": True}},
        {"name": "LABEL"},
    ]
    answer = await asked(Behind(), "POST", PATH, json={"inputs": [tensor()], "outputs": wanted})
    length = int(answer.headers["inference-header-content-length"])
    header, blob = json.loads(answer.content[:length]), answer.content[length:]
    assert answer.headers["content-type"] == "application/octet-stream"
    assert header["outputs"][0]["parameters"] == {"binary_data_size": 4}
    assert np.frombuffer(blob, "<f4").tolist() == [max(scores("a"))]
    assert header["outputs"][1]["data"] == ["negative"]


def binary_body(blob: bytes, **changes: Any) -> tuple[bytes, dict[str, str]]:
    described = without_data(parameters={"binary_data_size": len(blob)}, **changes)
    header = json.dumps({"inputs": [described]})
    return header.encode() + blob, {"inference-header-content-length": str(len(header))}


def element(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


@pytest.mark.parametrize(
    ("blob", "sentence"),
    [
        (b"", "the shape says 1 texts, the data holds 0"),
        (element(b"a") + element(b"b"), "says 1 texts, the data holds more"),
        (b"\x01\x00", "2 bytes are left"),
        (b"\xff\xff\xff\xffabc", "TEXT[0]: its length says 4294967295 bytes, 3 are left"),
        (element(b"a\xff"), "TEXT[0]: not UTF-8, byte 1 is 0xff"),
        (element(b"\xed\xa0\x80"), "not UTF-8"),
    ],
)
async def test_bytes_that_are_no_texts_are_refused(blob: bytes, sentence: str) -> None:
    body, headers = binary_body(blob)
    answer = await asked(Behind(), "POST", PATH, content=body, headers=headers)
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]


@pytest.mark.parametrize("length", ["x", "-1", "99999", "1e3", ""])
async def test_a_wrong_header_length_is_refused(length: str) -> None:
    body, _ = binary_body(element(b"a"))
    headers = {"inference-header-content-length": length}
    answer = await asked(Behind(), "POST", PATH, content=body, headers=headers)
    assert answer.status_code == 400
    assert "Inference-Header-Content-Length" in answer.json()["error"]


async def test_bytes_after_the_last_input_are_refused() -> None:
    body, headers = binary_body(element(b"a"))
    answer = await asked(Behind(), "POST", PATH, content=body + b"tail", headers=headers)
    assert answer.status_code == 422
    assert "4 bytes follow" in answer.json()["error"]


async def test_a_body_without_json_is_one_text() -> None:
    behind = Behind()
    headers = {"inference-header-content-length": "0"}
    answer = await asked(behind, "POST", PATH, content=b"a film", headers=headers)
    assert answer.status_code == 200
    assert behind.predictor.calls[0].texts == ["a film"]


async def test_the_path_and_the_header_must_agree_on_a_version() -> None:
    async with client_of(Behind()) as client:
        path = "/v2/models/sentiment/versions/2/infer"
        good = await client.post(path, json={"inputs": [tensor()]})
        both = {"x-headrace-version": "3"}
        bad = await client.post(path, json={"inputs": [tensor()]}, headers=both)
    assert good.json()["model_version"] == "2"
    assert good.headers["x-headrace-arm"] == "forced"
    assert bad.status_code == 422


async def test_parts_of_tritons_api_that_are_not_offered_say_so() -> None:
    async with client_of(Behind()) as client:
        for method, path in (
            ("POST", "/v2/repository/index"),
            ("GET", "/v2/models/sentiment/stats"),
            ("GET", "/v2/models/stats"),
            ("POST", "/v2/systemsharedmemory/region/a/register"),
            ("GET", "/v2/cudasharedmemory/status"),
            ("GET", "/v2/logging"),
        ):
            answer = await client.request(method, path)
            assert answer.status_code == 501
            assert answer.json()["error"].startswith("Headrace does not offer")


@pytest.mark.parametrize(
    ("task", "inputs"),
    [
        (Task.TEXT_CLASSIFICATION, {"TEXT": False, "TEXT_PAIR": True}),
        (Task.TEXT_RANKING, {"TEXT": False, "TEXT_PAIR": False}),
        (Task.TOKEN_CLASSIFICATION, {"TEXT": False}),
        (Task.ZERO_SHOT_CLASSIFICATION, {"TEXT": False}),
    ],
)
async def test_metadata_names_the_inputs_that_the_task_reads(
    task: Task, inputs: dict[str, bool]
) -> None:
    behind = Behind()
    behind.predictor.views["one"] = view("one", task)
    metadata = (await asked(behind, "GET", "/v2/models/one")).json()["inputs"]
    assert {one["name"]: one.get("optional", False) for one in metadata} == inputs
    config = (await asked(behind, "GET", "/v2/models/one/config")).json()["input"]
    assert {one["name"]: one.get("optional", False) for one in config} == inputs


async def test_the_class_of_a_request_is_a_parameter_too() -> None:
    behind = Behind()
    body = {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["a"]}]}
    for named, status in (("bulk", 200), ("interactive", 200), ("slow", 400), (1, 400)):
        asking = {**body, "parameters": {"headrace_class": named}}
        answer = await asked(behind, "POST", "/v2/models/minilm/infer", json=asking)
        assert answer.status_code == status, answer.text
    assert [call.bulk for call in behind.predictor.calls] == [True, False]
    # Bulk requests are counted apart, of each dialect.
    counted = [each for each in behind.metrics.finished if each[0].startswith("oip")]
    assert counted == [
        ("oip_http_bulk", 200), ("oip_http", 200), ("oip_http", 400), ("oip_http", 400),
    ]  # fmt: skip


async def test_metadata_names_the_space_of_the_version_that_is_asked_for() -> None:
    async def parameters(path: str) -> dict[str, object]:
        found: dict[str, object] = (await asked(Behind(), "GET", path)).json()["parameters"]
        return found

    assert (await parameters("/v2/models/minilm"))["space"] == space_of("3")
    assert (await parameters("/v2/models/minilm/versions/2"))["space"] == space_of("2")
    assert "space" not in await parameters("/v2/models/sentiment")


async def test_the_server_is_found_with_a_slash_too_as_it_is_published() -> None:
    behind = Behind()
    plain, slash = [(await asked(behind, "GET", path)).json() for path in ("/v2", "/v2/")]
    assert plain == slash
    assert set(plain) == {"name", "version", "extensions"}
