"""Every request is answered, errors in the form of their route, and refusals are recorded."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from front_fakes import Behind, FakeKeys, FakeMetrics, asked, client_of, view

from contracts.tasks import Task
from gateway import errors

GOOD = {"inputs": "a good film"}
PATH = "/endpoints/sentiment"


def error_of(answer: httpx.Response) -> dict[str, str]:
    body = answer.json()
    assert set(body["error"]) == {"code", "message", "request_id"}
    assert body["error"]["request_id"] == answer.headers["x-request-id"]
    error: dict[str, str] = body["error"]
    return error


async def test_an_answer_names_its_request_and_version() -> None:
    behind = Behind()
    answer = await asked(behind, "POST", PATH, json=GOOD, headers={"x-request-id": "mine"})
    assert answer.status_code == 200
    assert answer.headers["x-request-id"] == "mine"
    assert answer.headers["x-headrace-version"] == "3"
    assert answer.headers["x-headrace-arm"] == "stable"
    assert "x-headrace-truncated" not in answer.headers
    assert behind.metrics.finished == [("huggingface", 200)]


async def test_a_call_carries_what_the_headers_say() -> None:
    behind = Behind()
    headers = {
        "x-headrace-key": "user",
        "x-headrace-version": "2",
        "x-request-timeout": "0.5",
        "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01",
    }
    answer = await asked(behind, "POST", PATH, json=GOOD, headers=headers)
    (call,) = behind.predictor.calls
    assert answer.headers["x-headrace-version"] == "2"
    assert (call.sticky_key, call.forced_version) == ("user", "2")
    assert call.trace_parent == headers["traceparent"]
    assert call.deadline == call.started + 0.5


async def test_a_text_that_was_cut_is_named() -> None:
    texts = ["short", "word " * 100_000, "short", "w" * 2000]
    answer = await asked(Behind(), "POST", PATH, json={"inputs": texts})
    assert answer.headers["x-headrace-truncated"] == "1,3"


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (errors.RateLimitedError("Slow down.", retry_after_seconds=0.2), 429),
        (errors.OverloadedError("Full.", retry_after_seconds=1.5), 503),
        (errors.ModelUnavailableError("Gone.", retry_after_seconds=1), 503),
        (errors.DeadlineExceededError("Too slow."), 504),
        (errors.ModelFailedError("Broken."), 502),
        (errors.TooLargeError("Too many texts."), 413),
    ],
)
async def test_what_the_predictor_refuses_is_told_and_left_for_it_to_record(
    failure: errors.GatewayError, status: int
) -> None:
    behind = Behind()
    behind.predictor.failure = failure
    answer = await asked(behind, "POST", PATH, json=GOOD)
    assert answer.status_code == status
    assert error_of(answer)["message"] == failure.message
    assert error_of(answer)["code"] == failure.code
    if failure.retry_after_seconds is not None:
        assert int(answer.headers["retry-after"]) >= failure.retry_after_seconds
    assert behind.recorder.refusals == []


async def test_what_the_front_refuses_is_recorded_once_for_its_endpoint() -> None:
    behind = Behind()
    async with client_of(behind) as client:
        assert (await client.post(PATH, content=b"{")).status_code == 400
        assert (await client.post(PATH, json=GOOD, headers={"x-request-timeout": "x"})).is_error
        assert (await client.post("/endpoints/nobody", json=GOOD)).status_code == 404
        assert (await client.put(PATH)).status_code == 405
    assert behind.recorder.refusals == [("sentiment", 400, "bad_request")]
    assert [status for _, status in behind.metrics.finished] == [400, 400, 404, 405]


async def test_what_finds_no_room_is_refused_before_its_body_is_read_and_recorded() -> None:
    behind = Behind()
    behind.predictor.full = errors.OverloadedError("Too much to do.", retry_after_seconds=1)
    answer = await asked(behind, "POST", PATH, content=b"{")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert behind.recorder.refusals == [("sentiment", 503, "overloaded")]


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_a_caller_that_another_gateway_may_take_has_its_connection_closed(
    *, elsewhere: bool
) -> None:
    behind = Behind()
    behind.predictor.failure = errors.RateLimitedError(
        "Too often.", retry_after_seconds=0.2, elsewhere=elsewhere
    )
    answer = await asked(behind, "POST", PATH, json=GOOD)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    assert answer.headers.get("connection") == ("close" if elsewhere else None)


async def test_a_bug_is_a_500_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    behind = Behind()
    behind.predictor.failure = RuntimeError("secret detail")
    with caplog.at_level(logging.ERROR):
        answer = await asked(behind, "POST", PATH, json=GOOD)
    assert answer.status_code == 500
    assert error_of(answer)["code"] == "internal"
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "secret detail" in caplog.text


async def test_a_wrong_method_is_told_the_right_one() -> None:
    answer = await asked(Behind(), "DELETE", PATH)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, POST, HEAD"
    assert "GET and POST" in error_of(answer)["message"]


@pytest.mark.parametrize("path", ["/", "/nowhere", "/endpoints/a/b"])
async def test_an_unknown_route_is_a_404(path: str) -> None:
    answer = await asked(Behind(), "GET", path)
    assert answer.status_code == 404
    assert error_of(answer)["code"] == "unknown_route"


async def test_errors_of_the_open_inference_protocol_are_sentences() -> None:
    async with client_of(Behind()) as client:
        for path in ("/v2/models/nobody", "/v2/nowhere"):
            answer = await client.get(path)
            body = answer.json()
            assert answer.status_code == 404
            assert isinstance(body["error"], str)
            assert body["request_id"] == answer.headers["x-request-id"]
            assert body["code"] in ("unknown_endpoint", "unknown_route")


async def test_keys_are_asked_for_before_anything_is_told() -> None:
    behind = Behind(keys=FakeKeys({"good": {"sentiment"}, "other": {"minilm"}}))
    async with client_of(behind) as client:
        nameless = await client.post(PATH, content=b"not read")
        wrong = await client.post(PATH, json=GOOD, headers={"x-api-key": "other"})
        right = await client.post(PATH, json=GOOD, headers={"authorization": "Bearer good"})
        hidden = await client.get("/endpoints/nobody")
        listed = await client.get("/endpoints", headers={"x-api-key": "good"})
        unlisted = await client.get("/v1/models")
        probe = await client.get("/v2/health/ready")
    assert (nameless.status_code, wrong.status_code, right.status_code) == (401, 403, 200)
    assert nameless.headers["www-authenticate"] == "Bearer"
    assert (hidden.status_code, unlisted.status_code, probe.status_code) == (401, 401, 200)
    assert [one["name"] for one in listed.json()["endpoints"]] == ["sentiment"]
    assert behind.predictor.calls[0].caller == "good"
    assert behind.recorder.refusals == [
        ("sentiment", 401, "unauthenticated"),
        ("sentiment", 403, "forbidden"),
    ]


@pytest.mark.parametrize("named", ["header", "path"])
async def test_a_version_is_named_by_keys_with_that_right_alone(named: str) -> None:
    tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["a"]}
    path, body = PATH, dict[str, object](GOOD)
    headers = {"x-headrace-version": "2"} if named == "header" else {}
    if named == "path":
        path, body = "/v2/models/sentiment/versions/2/infer", {"inputs": [tensor]}
    keys = FakeKeys({"plain": {"sentiment"}, "trusted": {"sentiment"}}, forcing={"trusted"})
    async with client_of(Behind(keys=keys)) as client:
        found = [
            await client.post(path, json=body, headers={**headers, "x-api-key": key})
            for key in ("plain", "trusted")
        ]
    assert [answer.status_code for answer in found] == [403, 200]


async def test_probes_say_no_while_the_gateway_should_get_no_traffic() -> None:
    behind = Behind()
    async with client_of(behind) as client, client_of(behind, operations=True) as probes:
        assert [(await probes.get(path)).status_code for path in ("/livez", "/readyz")] == [
            200,
            200,
        ]
        behind.predictor.ready = False
        assert (await probes.get("/readyz")).status_code == 503
        assert (await client.get("/v2/health/ready")).status_code == 503
        assert (await probes.get("/livez")).status_code == 200


async def test_callers_reach_nothing_of_operations_and_the_other_way_round() -> None:
    behind = Behind()
    async with client_of(behind) as client, client_of(behind, operations=True) as operations:
        for path in ("/livez", "/readyz", "/metrics", "/openapi.json", "/docs"):
            assert (await client.get(path)).status_code == 404
            assert (await operations.get(path)).status_code == 200
        assert (await operations.post(PATH, json=GOOD)).status_code == 404
    assert behind.predictor.calls == []


async def test_an_endpoint_that_is_not_ready_says_so() -> None:
    behind = Behind()
    behind.predictor.views["late"] = replace(view("late", Task.TEXT_EMBEDDING), ready=False)
    async with client_of(behind) as client:
        for path in ("/v2/models/late/ready", "/v1/models/late"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["ready"]) == (503, False)


async def test_metrics_are_prometheus_text() -> None:
    async with client_of(Behind(), operations=True) as client:
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "requests_total" in answer.text


async def test_metrics_are_openmetrics_for_who_asks_for_it_so_that_traces_have_a_place() -> None:
    accept = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5"
    async with client_of(Behind(), operations=True) as client:
        answer = await client.get("/metrics", headers={"accept": accept})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


async def test_requests_go_on_while_metrics_of_a_thousand_endpoints_are_written() -> None:
    turns: list[str] = []

    class ManyMetrics(FakeMetrics):
        def pieces(self, *, openmetrics: bool = False) -> Iterator[bytes]:
            for number in range(5):
                turns.append("piece")
                # As a request that came in does, in the loop's next turn.
                asyncio.get_running_loop().call_soon(turns.append, "request")
                yield b"%d\n" % number

    async with client_of(Behind(metrics=ManyMetrics()), operations=True) as client:
        answer = await client.get("/metrics")
    assert answer.text == "0\n1\n2\n3\n4\n"
    assert turns == ["piece", "request"] * 5


async def test_a_large_body_is_refused_while_it_arrives() -> None:
    answer = await asked(Behind(), "POST", PATH, content=b"x" * 10_000_000)
    assert answer.status_code == 413
    assert error_of(answer)["code"] == "too_large"
