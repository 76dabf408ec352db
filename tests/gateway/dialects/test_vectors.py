"""Callers say in which form they want vectors, and which prompt goes before their texts."""

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from front_fakes import PROMPTS, RANGES, Behind, asked, vector

from preprocess.vectors import VectorPrecision, quantise, unit

TEXTS = ["a good film", "", "naïve 🎬"]
VECTORS = np.array([vector(text) for text in TEXTS], np.float32)
HF, OPENAI, TEI = "/endpoints/minilm", "/v1/embeddings", "/endpoints/minilm/embed"
INFER = "/v2/models/minilm/infer"


async def answer_to(path: str, behind: Behind | None = None, **body: Any) -> Any:
    found = await asked(behind or Behind(), "POST", path, json=body)
    assert found.status_code == 200, found.text
    return found.json()


async def openai(**body: Any) -> list[Any]:
    answer = await answer_to(OPENAI, model="minilm", input=TEXTS, **body)
    return [one["embedding"] for one in answer["data"]]


async def test_fewer_dimensions_are_the_first_ones_at_length_one() -> None:
    wanted = unit(VECTORS[:, :2])
    np.testing.assert_array_equal(await openai(dimensions=2), wanted)
    hf = await answer_to(HF, inputs=TEXTS, parameters={"dimensions": 2})
    np.testing.assert_array_equal(hf, wanted)
    np.testing.assert_array_equal(await answer_to(TEI, inputs=TEXTS, dimensions=2), wanted)
    np.testing.assert_array_equal(await openai(dimensions=4), VECTORS)
    asked_for = {"dimensions": 2}
    path = "/v1/models/minilm:predict"
    kserve = await answer_to(path, instances=TEXTS, parameters=asked_for)
    np.testing.assert_array_equal(kserve["predictions"], wanted)
    tensor = {"name": "TEXT", "shape": [3], "datatype": "BYTES", "data": TEXTS}
    oip = await answer_to(INFER, inputs=[tensor], parameters=asked_for)
    assert oip["outputs"][0]["shape"] == [3, 2]
    np.testing.assert_array_equal(oip["outputs"][0]["data"], wanted.ravel())
    assert np.linalg.norm(wanted, axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("precision", VectorPrecision)
async def test_precisions_are_lists_of_numbers_or_their_bytes(precision: VectorPrecision) -> None:
    wanted = quantise(VECTORS, precision, RANGES)
    np.testing.assert_array_equal(await openai(precision=precision), wanted)
    packed = await openai(precision=precision, encoding_format="base64")
    raw = [np.frombuffer(base64.b64decode(one), wanted.dtype.newbyteorder("<")) for one in packed]
    np.testing.assert_array_equal(raw, wanted)
    hf = await answer_to(HF, inputs=TEXTS[0], parameters={"precision": precision})
    assert hf == wanted[0].tolist()


async def test_bytes_of_fewer_dimensions_are_the_first_bytes() -> None:
    whole, short = await openai(precision="int8"), await openai(precision="int8", dimensions=3)
    assert [one[:3] for one in whole] == short


async def test_text_embeddings_inference_gives_a_list_for_one_text_too() -> None:
    assert await answer_to(TEI, inputs=TEXTS[0]) == unit(VECTORS[:1]).tolist()
    assert await answer_to(TEI, inputs=TEXTS[:1], normalize=False) == VECTORS[:1].tolist()


async def test_prompts_are_named_in_every_dialect() -> None:
    wanted = [vector(PROMPTS["query"] + text) for text in TEXTS]
    np.testing.assert_allclose(await openai(prompt_name="query"), wanted, rtol=1e-6)
    bodies: list[dict[str, Any]] = [
        {"prompt_name": "query"},
        {"parameters": {"prompt_name": "query"}},
    ]
    for body in bodies:
        np.testing.assert_allclose(await answer_to(HF, inputs=TEXTS, **body), wanted, rtol=1e-6)
    tei = await answer_to(TEI, inputs=TEXTS, prompt_name="query", normalize=False)
    np.testing.assert_allclose(tei, wanted, rtol=1e-6)
    tensor = {"name": "TEXT", "shape": [3], "datatype": "BYTES", "data": TEXTS}
    oip = await answer_to(INFER, inputs=[tensor], parameters={"prompt_name": "query"})
    np.testing.assert_allclose(oip["outputs"][0]["data"], np.ravel(wanted), rtol=1e-6)
    kserve = await answer_to(
        "/v1/models/minilm:predict", instances=TEXTS, parameters={"prompt_name": "query"}
    )
    np.testing.assert_allclose(kserve["predictions"], wanted, rtol=1e-6)


async def test_the_hubs_client_sends_parameters_beside_the_texts() -> None:
    body: dict[str, Any] = {
        "normalize": True,
        "truncate": True,
        "truncation_direction": "Right",
        "dimensions": 2,
    }
    answer = await answer_to(HF, inputs=TEXTS, **body)
    np.testing.assert_array_equal(answer, unit(VECTORS[:, :2]))


async def test_prompts_are_listed_in_the_models_metadata() -> None:
    found = await asked(Behind(), "GET", "/v2/models/minilm")
    assert found.json()["parameters"]["prompts"] == list(PROMPTS)


TENSOR = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}
BAD: list[tuple[str, dict[str, Any], int, str]] = [
    (OPENAI, {"model": "minilm", "input": "a", "dimensions": 5}, 422, "dimensions: minilm gives 4"),
    (OPENAI, {"model": "minilm", "input": "a", "dimensions": 0}, 400, "dimensions"),
    (OPENAI, {"model": "minilm", "input": "a", "precision": "int4"}, 400, "precision"),
    (OPENAI, {"model": "minilm", "input": "a", "prompt_name": "x"}, 422, "it has query, none"),
    (OPENAI, {"model": "minilm", "input": "a", "encoding_format": "hex"}, 400, "encoding_format"),
    (HF, {"inputs": "a", "parameters": {"dimensions": 5}}, 422, "parameters.dimensions: minilm"),
    (HF, {"inputs": "a", "parameters": {"dimensions": -1}}, 400, "parameters.dimensions"),
    (HF, {"inputs": "a", "dimensions": 3, "parameters": {"dimensions": 2}}, 422, "send one of"),
    (HF, {"inputs": "a", "truncation_direction": "Left"}, 400, "truncation_direction"),
    ("/endpoints/sentiment", {"inputs": "a", "dimensions": 3}, 422, "dimensions: sentiment does"),
    ("/endpoints/sentiment", {"inputs": "a", "prompt_name": "q"}, 422, "files name none"),
    (TEI, {"inputs": "a", "dimensions": 5}, 422, "dimensions: minilm gives 4"),
    (TEI, {"inputs": []}, 400, "inputs"),
    (TEI, {"inputs": "a", "prompt_name": "x"}, 422, "prompt_name: minilm has no prompt 'x'"),
    (TEI, {"inputs": "a", "sparse": True}, 400, "sparse"),
    ("/endpoints/sentiment/embed", {"inputs": "a"}, 422, "text-classification"),
    (INFER, {"inputs": [TENSOR], "parameters": {"dimensions": 5}}, 422, "minilm gives 4"),
    (INFER, {"inputs": [TENSOR], "parameters": {"dimensions": "2"}}, 400, "dimensions"),
    (
        INFER,
        {"inputs": [TENSOR], "parameters": {"prompt_name": 3}},
        400,
        "parameters.prompt_name",
    ),
]


@pytest.mark.parametrize(("path", "body", "status", "words"), BAD)
async def test_what_is_asked_wrongly_is_named(
    path: str, body: dict[str, Any], status: int, words: str
) -> None:
    answer = await asked(Behind(), "POST", path, json=body)
    assert answer.status_code == status, answer.text
    assert words in answer.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (OPENAI, {"model": "minilm", "input": "a", "dimensions": 5}),
        (HF, {"inputs": "a", "parameters": {"dimensions": 5}}),
        (TEI, {"inputs": "a", "dimensions": 5}),
        (INFER, {"inputs": [TENSOR], "parameters": {"dimensions": 5}}),
    ],
)
async def test_dimensions_that_another_version_gives_are_refused_by_one_that_does_not(
    path: str, body: dict[str, Any]
) -> None:
    behind = Behind()
    views = behind.predictor.views
    views["minilm"] = replace(views["minilm"], other_dimensions=(0, 6))
    answer = await asked(behind, "POST", path, json=body)
    assert answer.status_code == 422, answer.text
    assert "dimensions: this version gives 4" in answer.text
    more = await asked(behind, "POST", OPENAI, json={**BAD[0][1], "dimensions": 7})
    assert "dimensions: minilm gives 6" in more.text


@pytest.mark.parametrize("stable_has_them", [True, False])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (OPENAI, {"model": "minilm", "input": "a", "precision": "int8"}),
        (HF, {"inputs": "a", "parameters": {"precision": "uint8"}}),
    ],
)
async def test_bytes_of_a_package_without_ranges_are_refused_with_what_to_do(
    path: str,
    body: dict[str, Any],
    stable_has_them: bool,
) -> None:
    behind = Behind()
    behind.predictor.has_ranges = False
    if not stable_has_them:
        views = behind.predictor.views
        views["minilm"] = replace(views["minilm"], has_ranges=False)
    answer = await asked(behind, "POST", path, json=body)
    assert answer.status_code == 422
    assert "precision: the version was converted before" in answer.text
    assert len(behind.predictor.calls) == stable_has_them
