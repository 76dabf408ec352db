"""The Hugging Face dialect answers as the pipelines do."""

from typing import Any

import pytest
from front_fakes import LABELS, Behind, asked, scores, vector

PATH = "/endpoints/sentiment"


async def ask(body: object, path: str = PATH) -> Any:
    answer = await asked(Behind(), "POST", path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def top(text: str, pair: str = "") -> dict[str, object]:
    values = scores(text, pair)
    return {"label": LABELS[values.index(max(values))], "score": max(values)}


def ranked(text: str) -> list[dict[str, object]]:
    both = sorted(zip(scores(text), LABELS, strict=True), key=lambda one: -one[0])
    return [{"label": label, "score": score} for score, label in both]


async def test_one_text_and_many_get_the_best_label_each() -> None:
    assert await ask({"inputs": "good"}) == [top("good")]
    assert await ask({"inputs": ["good", "bad"]}) == [top("good"), top("bad")]
    assert await ask({"inputs": ["good"]}) == [top("good")]


async def test_top_k_makes_a_list_of_each_text() -> None:
    all_labels = {"parameters": {"top_k": None}}
    assert await ask({"inputs": "good", **all_labels}) == ranked("good")
    assert await ask({"inputs": ["good", "b"], **all_labels}) == [ranked("good"), ranked("b")]
    assert await ask({"inputs": ["b"], "parameters": {"top_k": 2}}) == [ranked("b")[:2]]
    assert await ask({"inputs": "b", "parameters": {"top_k": 99}}) == ranked("b")


async def test_pairs_are_read_together() -> None:
    pair = {"text": "q", "text_pair": "answer"}
    assert await ask({"inputs": pair}) == [top("q", "answer")]
    assert await ask({"inputs": [pair, {"text": "q", "text_pair": ""}]}) == [
        top("q", "answer"),
        top("q"),
    ]
    assert await ask({"inputs": {"text": "q"}}) == [top("q")]


async def test_one_text_gives_one_vector_and_many_a_list() -> None:
    assert await ask({"inputs": "abc"}, "/endpoints/minilm") == vector("abc")
    assert await ask({"inputs": ["abc", ""]}, "/endpoints/minilm") == [vector("abc"), vector("")]


BAD: list[tuple[object, int, str]] = [
    ({}, 400, "inputs"),
    ([], 400, "object"),
    ({"inputs": 1}, 400, "inputs: expected"),
    ({"inputs": None}, 400, "inputs: expected"),
    ({"inputs": []}, 400, "inputs: expected `array` of length >= 1"),
    ({"inputs": ["a", 1]}, 400, "inputs[1]: expected"),
    ({"inputs": [["a"]]}, 400, "inputs[0]: expected"),
    ({"inputs": {"txt": "a"}}, 400, "txt"),
    ({"inputs": [{"text": "a", "text_pair": "b"}, "c"]}, 422, "text_pair"),
    ({"inputs": "a", "parameters": {"top_k": 0}}, 400, "parameters.top_k"),
    ({"inputs": "a", "parameters": {"top_k": "all"}}, 400, "parameters.top_k"),
    ({"inputs": "a", "parameters": {"function_to_apply": "none"}}, 422, "function_to_apply"),
    ({"inputs": "a", "parameters": {"function_to_apply": "sigmoid"}}, 422, "softmax"),
    ({"inputs": "a", "parameters": {"truncation": "no"}}, 400, "truncation"),
]


@pytest.mark.parametrize(("body", "status", "word"), BAD)
async def test_what_is_wrong_is_named(body: object, status: int, word: str) -> None:
    answer = await asked(Behind(), "POST", PATH, json=body)
    assert answer.status_code == status
    assert word in answer.json()["error"]["message"]


RAW: list[tuple[bytes, int, str]] = [
    (b"", 400, "empty"),
    (b"  ", 400, "empty"),
    (b"inputs=x", 400, "not JSON"),
    (b'{"inputs": "a"', 400, "not JSON"),
    (b'{"inputs": "a"} tail', 400, "not JSON"),
    (b'{"inputs": NaN}', 400, "NaN is no number"),
    (b'{"inputs": "\xff"}', 400, "not UTF-8: byte 12 is 0xff"),
    (b'{"inputs": "\xed\xa0\x80"}', 400, "not UTF-8"),
    (b'{"inputs": "\\ud800"}', 422, "inputs: half of a surrogate pair"),
    (b'{"inputs": ["a", {"text": "x\\udc00y"}]}', 422, "inputs[1].text: half of a surrogate"),
    (b'{"inputs": ' + b"[" * 30_000, 400, "inputs"),
    (b'{"inputs": "a", "options": {"x": ' + b"[" * 30_000 + b"]" * 30_000 + b"}}", 400, "deeply"),
    (b'{"inputs": "a", "options": {"x": ' + b"[" * 100_000, 413, "more than 36864 strings"),
]


@pytest.mark.parametrize(("body", "status", "word"), RAW)
async def test_what_is_no_json_is_said_to_be_none(body: bytes, status: int, word: str) -> None:
    answer = await asked(Behind(), "POST", PATH, content=body)
    assert answer.status_code == status, answer.text
    assert word in answer.json()["error"]["message"]


async def test_parameters_of_another_task_are_refused() -> None:
    body = {"inputs": "a", "parameters": {"top_k": 2}}
    answer = await asked(Behind(), "POST", "/endpoints/minilm", json=body)
    assert answer.status_code == 422
    assert "text-embedding" in answer.json()["error"]["message"]
