"""Guardrails: LiteLLM's form and the Detectors API."""

from typing import Any

import httpx
import numpy as np
import pytest
from front_fakes import MAX_CHARACTERS, RECEIPT, Behind, FakePredictor, asked, guard, scores, view
from gateway_world import MemoryRecorder
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.endpoint import Guardrail
from contracts.tasks import Task
from gateway.calls import EndpointView
from gateway.errors import OverloadedError

LITELLM = "/endpoints/guard/beta/litellm_basic_guardrail_api"
CONTENTS = "/endpoints/guard/api/v1/text/contents"
BAD, FINE = "good good", "a rainy day"  # by the scores of front_fakes
LONG = "x" * (MAX_CHARACTERS + 1)


def behind(made: EndpointView | None = None) -> Behind:
    return Behind(FakePredictor({"guard": made or guard()}))


async def checked(
    texts: list[str] | None, made: EndpointView | None = None, **more: Any
) -> httpx.Response:
    body = {"input_type": "request", "request_data": {}, "texts": texts, **more}
    return await asked(behind(made), "POST", LITELLM, json=body)


async def detected(
    texts: list[str], made: EndpointView | None = None, **more: Any
) -> httpx.Response:
    return await asked(behind(made), "POST", CONTENTS, json={"contents": texts, **more})


async def test_texts_without_a_label_go_on() -> None:
    answer = await checked([FINE, ""])
    assert (answer.status_code, answer.json()) == (200, {"action": "NONE"})
    assert answer.headers["x-headrace-version"] == "3"
    assert answer.headers["x-headrace-receipt"] == RECEIPT


async def test_a_text_with_a_label_blocks_all_and_the_reason_says_which_but_no_text() -> None:
    answer = (await checked([FINE, BAD, "good morning"])).json()
    assert answer == {
        "action": "BLOCKED",
        "blocked_reason": "Blocked by guard: text 1 has the label positive, text 2 has the label "
        "positive.",
    }


async def test_a_reason_names_twenty_and_counts_the_rest() -> None:
    reason = (await checked([BAD] * 25)).json()["blocked_reason"]
    assert "text 19 has the label positive, and 5." in reason


@pytest.mark.parametrize("beyond", [0.0, 1e-4])
async def test_a_score_that_is_the_threshold_is_reached(beyond: float) -> None:
    threshold = float(np.float32(scores(BAD)[2])) + beyond
    answer = (await checked([BAD], guard(labels={"positive": threshold}))).json()
    assert answer["action"] == ("NONE" if beyond else "BLOCKED")


async def test_entities_are_replaced_and_all_texts_come_back_in_order() -> None:
    entities = guard(Task.TOKEN_CLASSIFICATION)
    answer = (await checked(["the soup was warm", FINE, "soup"], entities)).json()
    assert answer == {
        "action": "GUARDRAIL_INTERVENED",
        "texts": ["the [FOOD] was warm", FINE, "[FOOD]"],
    }
    assert (await checked(["rain"], entities)).json() == {"action": "NONE"}
    sure = guard(Task.TOKEN_CLASSIFICATION, labels={"FOOD": 0.9})
    assert (await checked(["soup"], sure)).json() == {"action": "NONE"}


@pytest.mark.parametrize("task", [Task.TEXT_CLASSIFICATION, Task.TOKEN_CLASSIFICATION])
async def test_what_is_not_read_whole_is_not_said_to_be_clean(task: Task) -> None:
    blocked = (await checked([FINE, LONG], guard(task))).json()
    assert blocked["action"] == "BLOCKED"
    assert "text 1 is longer than the model reads" in blocked["blocked_reason"]
    cut = await checked([FINE, LONG], guard(task, long_texts="cut"))
    assert cut.json() == {"action": "NONE"}
    assert cut.headers["x-headrace-truncated"] == "1"


@pytest.mark.parametrize(("long_texts", "truncate"), [("block", False), ("cut", True)])
async def test_detectors_refuse_long_texts_unless_they_may_be_cut(
    long_texts: str, truncate: bool
) -> None:
    made = behind(guard(long_texts=long_texts))
    await asked(made, "POST", CONTENTS, json={"contents": [FINE]})
    assert made.predictor.calls[0].truncate is truncate


@pytest.mark.parametrize("texts", [None, []])
async def test_a_request_without_a_text_asks_no_model(texts: list[str] | None) -> None:
    made = behind()
    body = {"texts": texts, "images": ["data:image/png;base64,AA=="], "tool_calls": [{"id": "1"}]}
    answer = await asked(made, "POST", LITELLM, json=body)
    assert answer.json() == {"action": "NONE"}
    assert answer.headers["x-headrace-ignored"] == "images,tool_calls"
    assert made.predictor.calls == []


async def test_what_no_guardrail_reads_is_named_or_under_strict_refused() -> None:
    body = {"texts": [FINE], "images": ["data:image/png;base64,AA=="], "tools": [{"type": "x"}]}
    answer = await asked(behind(), "POST", LITELLM, json=body)
    assert (answer.json(), answer.headers["x-headrace-ignored"]) == ({"action": "NONE"}, "images")
    strict = {"x-headrace-strict": "true"}
    refused = await asked(behind(), "POST", LITELLM, json=body, headers=strict)
    assert (refused.status_code, "images" in refused.text) == (400, True)


@pytest.mark.parametrize("misspelt", ["text", "Texts", "textes"])
async def test_texts_under_a_misspelt_name_are_not_said_to_be_clean(misspelt: str) -> None:
    answer = await asked(behind(), "POST", LITELLM, json={misspelt: [BAD], "input_type": "request"})
    assert (answer.status_code, "did you mean texts?" in answer.text) == (422, True), answer.text


async def test_detections_are_of_the_whole_text_or_of_a_place() -> None:
    answer = await detected([FINE, BAD])
    (none, (one,)) = answer.json()
    assert none == []
    assert one == {
        "start": 0,
        "end": len(BAD),
        "text": BAD,
        "detection": "positive",
        "detection_type": "positive",
        "score": scores(BAD)[2],
    }
    assert answer.headers["x-headrace-receipt"] == RECEIPT
    entities = await detected(["the soup"], guard(Task.TOKEN_CLASSIFICATION))
    ((food,),) = entities.json()
    assert (food["start"], food["end"], food["text"], food["detection_type"]) == (
        4, 8, "soup", "FOOD",
    )  # fmt: skip


async def test_a_callers_threshold_leaves_out_more_and_never_less() -> None:
    high = await detected([BAD], detector_params={"threshold": 1.0, "other": "x"})
    assert high.json() == [[]]
    low = await detected([FINE, BAD], detector_params={"threshold": 0.0})
    assert [len(found) for found in low.json()] == [0, 1]


async def test_a_long_text_is_not_repeated_for_each_label() -> None:
    labels = dict.fromkeys(("negative", "neutral", "positive"), 1e-6)
    text = "good " * 200
    (found,) = (await detected([text], guard(labels=labels, long_texts="cut"))).json()
    assert [(one["end"], one["text"]) for one in found] == [(1000, text[:256])] * 3


NO_RULES = view("guard", Task.TEXT_CLASSIFICATION)
REFUSED = [
    (NO_RULES, "guard has no spec.guardrail"),
    (view("guard", Task.TEXT_EMBEDDING), "a guardrail needs an endpoint of text-classification"),
    (guard(labels={"toxic": 0.5}), "no label toxic; it has negative, neutral, positive"),
    (guard(Task.TOKEN_CLASSIFICATION, labels={"B-FOOD": 0.5}), "no label B-FOOD; it has"),
    (guard(Task.TOKEN_CLASSIFICATION, labels={"O": 0.5}), "no label O; it has FOOD, WEATHER"),
]


@pytest.mark.parametrize("path", [LITELLM, CONTENTS])
@pytest.mark.parametrize(("made", "why"), REFUSED)
async def test_an_endpoint_without_rules_that_fit_refuses(
    path: str, made: EndpointView, why: str
) -> None:
    body = {"texts": [FINE], "contents": [FINE]}
    answer = await asked(behind(made), "POST", path, json=body)
    # Not 502, 503 or 504: LiteLLM lets these pass where it is told to fail open.
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_input")
    assert why in answer.json()["error"]["message"]


async def test_a_version_that_answers_with_other_labels_lets_nothing_pass() -> None:
    class Renamed(FakePredictor):
        async def predict(self, call: Any) -> Any:
            answer = await super().predict(call)
            return type(answer)(
                **{name: getattr(answer, name) for name in answer.__struct_fields__}
                | {"labels": ("LABEL_0", "LABEL_1", "LABEL_2")}
            )

    for path in (LITELLM, CONTENTS):
        made = Behind(Renamed({"guard": guard()}))
        answer = await asked(made, "POST", path, json={"texts": [FINE], "contents": [FINE]})
        assert (answer.status_code, "no label positive" in answer.text) == (422, True)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (LITELLM, {"texts": "a"}, 400),
        (LITELLM, {"texts": [1]}, 400),
        (LITELLM, {"texts": ["a"] * 65}, 413),
        (CONTENTS, {"contents": []}, 400),
        (CONTENTS, {"contents": ["a"], "detector_params": {"threshold": "x"}}, 400),
        (CONTENTS, {"contents": ["a"] * 65}, 413),
        (CONTENTS, {}, 400),
    ],
)
async def test_what_is_no_list_of_few_texts_is_refused(
    path: str, body: object, status: int
) -> None:
    assert (await asked(behind(), "POST", path, json=body)).status_code == status


async def test_without_room_the_answer_is_503_with_the_time_to_come_again() -> None:
    made = Behind(FakePredictor({"guard": guard()}), recorder=MemoryRecorder())
    with made.predictor.failing(OverloadedError("full", retry_after_seconds=2.0)):
        answer = await asked(made, "POST", LITELLM, json={"texts": [FINE]})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.json()["error"]["code"] == "overloaded"


WORDS = st.lists(st.sampled_from(["soup", "rain", "the", "was", "warm"]), max_size=8)
TEXTS = st.lists(WORDS.map(" ".join), min_size=1, max_size=6)


@given(texts=TEXTS)
@settings(max_examples=50)
async def test_masks_keep_the_number_the_order_and_all_other_words(texts: list[str]) -> None:
    answer = (await checked(texts, guard(Task.TOKEN_CLASSIFICATION))).json()
    said = answer.get("texts", texts)
    assert said == [text.replace("soup", "[FOOD]") for text in texts]
    assert (answer["action"] == "NONE") == all("soup" not in text for text in texts)


@given(texts=st.lists(st.text(alphabet="god ", max_size=20), min_size=1, max_size=6))
@settings(max_examples=50)
async def test_each_text_is_judged_as_if_it_were_alone(texts: list[str]) -> None:
    rules = guard(labels={"positive": 0.5, "neutral": 0.2})
    together = (await detected(texts, rules)).json()
    alone = [(await detected([text], rules)).json()[0] for text in texts]
    assert together == alone
    blocked = (await checked(texts, rules)).json()["action"] == "BLOCKED"
    assert blocked is any(together)


def test_rules_need_a_label_and_thresholds_within_bounds() -> None:
    wrong: list[dict[str, float]] = [{}, {"a": 0.0}, {"a": 1.1}]
    for labels in wrong:
        with pytest.raises(ValueError, match="labels"):
            Guardrail(labels=labels)
