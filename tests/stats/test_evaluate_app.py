"""The routes of the evaluate role."""

from collections.abc import Iterator

import pytest
from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response
from fastapi.testclient import TestClient
from prometheus_client.core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from contracts import metrics
from service.families import numbers
from stats.evaluate_app import application


class Evaluated:
    def __init__(self) -> None:
        self.since = 0.0

    def families(self) -> list[Family]:
        return [numbers(metrics.EVENTS_SKIPPED, [((), 3)])]

    def counters(self) -> dict[str, object]:
        return {"began": {0: 5}}

    def ready(self) -> bool:
        return self.since > 0


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
