"""The routes of the evaluate role."""

from collections.abc import Iterator

import pytest
from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response
from fastapi.testclient import TestClient
from prometheus_client.core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from contracts import metrics
from measures.counting import CountingState, CountingStatus
from measures.losses import MessageLosses
from service.families import numbers
from stats.evaluation.app import application


class Evaluated:
    def __init__(self) -> None:
        self.since = 0.0
        self.still = 0.0
        self.now_counting = CountingStatus(CountingState.COUNTED)

    def families(self) -> list[Family]:
        return [numbers(metrics.EVENTS_SKIPPED, [((), 3)])]

    def counters(self) -> dict[str, object]:
        return {"began": {0: 5}}

    def ready(self) -> bool:
        return self.since > 0

    def counting(self) -> CountingStatus:
        return self.now_counting

    def losses(self) -> MessageLosses:
        return MessageLosses(2, {"a": {"buffer_full": 3}}, 1)

    def stood_still_seconds(self) -> float:
        return self.still


@pytest.fixture
def evaluated() -> Evaluated:
    return Evaluated()


@pytest.fixture
def client(evaluated: Evaluated) -> Iterator[TestClient]:
    routes = APIRouter()

    @routes.get("/ui/")
    def page() -> Response:
        return PlainTextResponse("the page")

    with TestClient(application(evaluated, routes)) as found:
        yield found


def test_metrics_are_read_at_each_scrape_beside_those_of_the_process(client: TestClient) -> None:
    text = client.get("/metrics").text
    samples = {s.name: s.value for f in text_string_to_metric_families(text) for s in f.samples}
    assert samples[metrics.EVENTS_SKIPPED.name] == 3
    assert "process_resident_memory_bytes" in samples


def test_it_is_ready_once_the_past_was_read(client: TestClient, evaluated: Evaluated) -> None:
    assert client.get("/livez").status_code == 200
    assert client.get("/readyz").status_code == 503
    evaluated.since = 1.0
    assert client.get("/readyz").status_code == 200


def test_the_root_leads_to_the_page_and_counters_tell_their_offsets(client: TestClient) -> None:
    assert client.get("/").text == "the page"
    assert client.get("/counters.json").json() == {"began": {"0": 5}}


def test_a_server_whose_reading_thread_stands_still_is_not_ready_and_then_not_alive(
    client: TestClient, evaluated: Evaluated
) -> None:
    evaluated.since = 1.0
    evaluated.still = 31.0
    refused = client.get("/readyz")
    assert refused.status_code == 503
    assert refused.text == "the reading of windows has stood still for 31 s\n"
    assert client.get("/livez").status_code == 200
    evaluated.still = 121.0
    assert client.get("/livez").status_code == 503


def test_traffic_that_is_not_counted_is_told_and_the_page_stays_up(
    client: TestClient, evaluated: Evaluated
) -> None:
    evaluated.since = 1.0
    evaluated.now_counting = CountingStatus(CountingState.STALLED, 1_000_000.0, 7)
    said = "traffic since 1970-01-12 13:46:40 UTC is not counted: the fold role reads nothing"
    assert client.get("/counting.json").json() == {
        "state": "stalled",
        "since": 1_000_000.0,
        "messages": 7,
        "said": said,
        "missing_messages": 2,
        "lost_events": 3,
        "silent_gateways": 1,
        "lost": "2 messages of events are missing in Kafka, gateways lost 3 events,"
        " 1 gateways fell silent in the last hour",
    }
    assert client.get("/readyz").text == f"ready: {said}\n"
