"""The clients that people have, unmodified, against the whole stack; all must agree."""

import itertools
import json
import shlex
import subprocess

import httpx
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from running_stack import EXAMPLE_ENDPOINT, RunningStack

from headrace.stack.state import GatewayRecord

pytestmark = pytest.mark.real

AGREE = 1e-3  # what rounding to JSON and another batch may change


def column(texts: list[str]) -> "np.ndarray[tuple[int], np.dtype[np.object_]]":
    return np.array([text.encode() for text in texts], dtype=np.object_)


def over_http(gateway: GatewayRecord, texts: list[str]) -> tuple[list[str], list[float]]:
    with tritonclient.http.InferenceServerClient(gateway.url.removeprefix("http://")) as client:
        tensor = tritonclient.http.InferInput("TEXT", [len(texts)], "BYTES")
        tensor.set_data_from_numpy(column(texts))
        result = client.infer(EXAMPLE_ENDPOINT, [tensor])
        return [label.decode() for label in result.as_numpy("LABEL")], list(
            result.as_numpy("SCORE")
        )


def over_grpc(gateway: GatewayRecord, texts: list[str]) -> tuple[list[str], list[float]]:
    with tritonclient.grpc.InferenceServerClient(gateway.grpc) as client:
        tensor = tritonclient.grpc.InferInput("TEXT", [len(texts)], "BYTES")
        tensor.set_data_from_numpy(column(texts))
        result = client.infer(EXAMPLE_ENDPOINT, [tensor])
        return [label.decode() for label in result.as_numpy("LABEL")], list(
            result.as_numpy("SCORE")
        )


def hugging_face_style(gateway: GatewayRecord, texts: list[str]) -> tuple[list[str], list[float]]:
    answer = httpx.post(
        f"{gateway.url}/endpoints/{EXAMPLE_ENDPOINT}", json={"inputs": texts}, timeout=20
    )
    answer.raise_for_status()
    best = [row[0] if isinstance(row, list) else row for row in answer.json()]
    return [row["label"] for row in best], [row["score"] for row in best]


def kserve_v1(gateway: GatewayRecord, texts: list[str]) -> tuple[list[str], list[float]]:
    answer = httpx.post(
        f"{gateway.url}/v1/models/{EXAMPLE_ENDPOINT}:predict",
        json={"instances": texts},
        timeout=60,
    )
    answer.raise_for_status()
    rows = answer.json()["predictions"]
    return [row["label"] for row in rows], [row["score"] for row in rows]


def test_all_dialects_give_the_same_labels_and_scores_at_every_gateway(
    stack: RunningStack, texts: list[str]
) -> None:
    some = texts[:40]
    labels, scores = over_http(stack.gateways[0], some)
    for gateway in stack.gateways:
        for ask in (over_http, over_grpc, hugging_face_style, kserve_v1):
            other_labels, other_scores = ask(gateway, some)
            assert other_labels == labels, (gateway.name, ask.__name__)
            np.testing.assert_allclose(other_scores, scores, atol=AGREE)


def test_a_texts_answer_does_not_depend_on_what_else_is_in_its_batch(
    stack: RunningStack, texts: list[str]
) -> None:
    some = sorted(texts, key=len)[:: len(texts) // 40][:40]
    _, together = hugging_face_style(stack.gateways[0], some)
    # In turn at each gateway, and so at each Triton.
    gateways = itertools.cycle(stack.gateways)
    alone = [hugging_face_style(next(gateways), [text])[1][0] for text in some]
    np.testing.assert_allclose(alone, together, atol=AGREE)


def test_the_curl_line_that_up_prints_works_as_printed(stack: RunningStack) -> None:
    printed = stack.output.read_text(encoding="utf-8")
    start = printed.index("curl ")
    lines = printed[start:].splitlines()
    command = ""
    for line in lines:
        command += line.strip().removesuffix("\\") + " "
        if not line.rstrip().endswith("\\"):
            break
    done = subprocess.run(
        shlex.split(command), capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "label" in json.dumps(json.loads(done.stdout))
