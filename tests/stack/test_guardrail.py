"""A real endpoint as a guardrail: what it looks for is told as soon as it is applied."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import httpx
import pytest
import yaml
from running_stack import EXAMPLE_ENDPOINT, PATIENT, RunningStack
from waiting import until

pytestmark = pytest.mark.real

PLAIN = f"/endpoints/{EXAMPLE_ENDPOINT}"
CHECK, DETECT = f"{PLAIN}/beta/litellm_basic_guardrail_api", f"{PLAIN}/api/v1/text/contents"


def guarded(label: str, threshold: float) -> str:
    document = yaml.safe_load(PATIENT)
    document["spec"]["guardrail"] = {"labels": {label: threshold}, "longTexts": "cut"}
    return str(yaml.safe_dump(document))


def posted(url: str, body: object) -> httpx.Response:
    return httpx.post(url, json=body, timeout=60)


def answers(url: str) -> bool:
    return posted(url, {"texts": []}).is_success


@pytest.fixture(autouse=True)
def _as_before(stack: RunningStack) -> Iterator[None]:
    yield
    stack.apply(PATIENT)


def test_every_gateway_tells_what_the_endpoint_finds_and_the_status_a_label_that_is_none(
    stack: RunningStack, texts: list[str]
) -> None:
    some = texts[:20]
    plain = posted(stack.gateway + PLAIN, {"inputs": some, "parameters": {"top_k": None}})
    rows = [{one["label"]: one["score"] for one in each} for each in plain.json()]
    label = next(iter(rows[0]))
    scores = [row[label] for row in rows]
    # In the widest gap: another batch changes a score by a little.
    low, high = max(pairwise(sorted(scores)), key=lambda both: both[1] - both[0])
    threshold = (low + high) / 2
    expected = [score >= threshold for score in scores]
    stack.apply(guarded(label, threshold))
    for gateway in stack.gateways:
        check, detect = gateway.url + CHECK, gateway.url + DETECT
        until("the guardrail is known", 60, partial(answers, check))
        detected = posted(detect, {"contents": some})
        assert [bool(each) for each in detected.json()] == expected
        assert detected.headers["x-headrace-receipt"]
        actions = [posted(check, {"texts": [text]}).json()["action"] for text in some]
        assert actions == ["BLOCKED" if found else "NONE" for found in expected]
    stack.apply(guarded("toxic", 0.5))
    until(
        "the status says that there is no such label",
        60,
        lambda: "the model has no label toxic" in stack.command("status", EXAMPLE_ENDPOINT).stdout,
    )
    assert posted(stack.gateway + CHECK, {"texts": some}).status_code == 422
