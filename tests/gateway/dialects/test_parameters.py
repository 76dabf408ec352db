"""A misspelt parameter is refused with the one that was meant, and what clients send is taken."""

from typing import Any

import pytest
from front_fakes import Behind, asked

from gateway.dialects.parameters import refuse_misspelt
from gateway.errors import InvalidInputError
from preprocess.tasks import HEADS

TENSOR = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}
MISSPELT = [
    ("sentiment", {"topk": 2}, "did you mean top_k?"),
    ("sentiment", {"truncate": False}, "did you mean truncation?"),
    ("sentiment", {"functions_to_apply": "none"}, "did you mean function_to_apply?"),
    ("minilm", {"normalise": True}, "did you mean normalize?"),
    ("sentiment", {"colour": "red"}, "sentiment takes function_to_apply, top_k, prompt_name"),
    ("sentiment", {"x" * 9999: 1}, "unknown"),
]


async def posted(path: str, body: object) -> tuple[int, str]:
    """Status and message, or the fields that were ignored."""
    answer = await asked(Behind(), "POST", path, json=body)
    if answer.status_code == 200:
        return 200, answer.headers.get("x-headrace-ignored", "")
    error = answer.json()["error"]
    return answer.status_code, error if isinstance(error, str) else error["message"]


@pytest.mark.parametrize(("endpoint", "parameters", "says"), MISSPELT)
async def test_an_unknown_parameter_is_refused_with_what_was_meant(
    endpoint: str, parameters: dict[str, Any], says: str
) -> None:
    body = {"inputs": "a", "parameters": parameters}
    status, message = await posted(f"/endpoints/{endpoint}", body)
    assert (status, says in message, message[:11]) == (422, True, "parameters."), message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("field", "meant"),
    [("paramters", "parameters"), ("prompt_names", "prompt_name"), ("normalise", "normalize")],
)
async def test_a_misspelt_field_is_refused_with_what_was_meant(field: str, meant: str) -> None:
    status, message = await posted("/endpoints/minilm", {"inputs": "a", field: None})
    assert (status, message) == (422, f"{field}: unknown; did you mean {meant}?")


@pytest.mark.parametrize("misspelt", ["dimension", "normalise", "promptname"])
@pytest.mark.parametrize(
    ("path", "rest"),
    [
        ("/v1/models/minilm:predict", {"instances": ["a"]}),
        ("/v2/models/minilm/infer", {"inputs": [TENSOR]}),
    ],
)
async def test_protocols_with_parameters_of_anybodys_refuse_those_that_are_nearly_ours(
    path: str, rest: dict[str, Any], misspelt: str
) -> None:
    status, message = await posted(path, {**rest, "parameters": {misspelt: 1}})
    assert (status, f"parameters.{misspelt}: unknown; did you mean" in message) == (422, True)
    foreign = {"priority": 1, "sequence_id": 3, "content_type": "str", "probability": True}
    named = ",".join(f"parameters.{name}" for name in foreign)
    assert await posted(path, {**rest, "parameters": foreign}) == (200, named)


# What clients send by themselves, by their own sources: it is as quick as anything, and not named.
BY_THEMSELVES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/embeddings", {"model": "minilm", "input": "a", "encoding_format": "base64", "user": "a"}),
    ("/v1/rerank", {"model": "reranker", "query": "a", "documents": ["a"], "top_n": 1}),
    ("/v2/models/minilm/infer", {"id": "1", "model_name": "minilm", "inputs": [TENSOR]}),
    (
        "/v2/models/minilm/infer",
        {"inputs": [TENSOR], "parameters": {"binary_data_output": True, "timeout": 10**6}},
    ),
]


@pytest.mark.parametrize(("path", "body"), BY_THEMSELVES)
async def test_what_clients_send_by_themselves_is_taken_under_strict_too(
    path: str, body: dict[str, Any]
) -> None:
    strict = {"x-headrace-strict": "true"}
    answer = await asked(Behind(), "POST", path, json=body, headers=strict)
    assert (answer.status_code, "x-headrace-ignored" in answer.headers) == (200, False)


# What the clients of each protocol send in ``parameters``, by their own sources.
OF_CLIENTS = (
    "binary_data_output", "classification", "content_type", "decoder", "headers", "priority",
    "sequence_end", "sequence_id", "sequence_start", "timeout",
    "triton_enable_empty_final_response", "explain", "probability",
)  # fmt: skip


@pytest.mark.parametrize("task", HEADS)
def test_no_name_of_a_protocol_is_taken_for_a_misspelt_one(task: Any) -> None:
    refuse_misspelt(OF_CLIENTS, (*HEADS[task].everywhere, "prompt_name"))


async def test_what_pipelines_take_beside_that_is_ignored_and_named() -> None:
    sent = {"stride": 2, "doc_stride": 3, "max_seq_len": 9, "padding": True, "top_k": 1}
    status, ignored = await posted("/endpoints/sentiment", {"inputs": "a", "parameters": sent})
    assert status == 200
    assert ignored == ",".join(f"parameters.{name}" for name in sent if name != "top_k")


def test_of_very_many_names_some_are_compared() -> None:
    names = [*(f"{number:040}" for number in range(100_000)), "dimension"]
    refuse_misspelt(names, ("dimensions",))
    with pytest.raises(InvalidInputError):
        refuse_misspelt(reversed(names), ("dimensions",))
