"""Probes pass or say why not, and metrics are where Prometheus looks."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from service.pages import Pages, serve


class Health:
    fault = ""

    def __call__(self) -> str:
        return self.fault


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def pages(health: Health) -> Iterator[Pages]:
    server = serve("127.0.0.1", 0, {"/readyz": health})
    yield server
    server.shutdown()
    server.server_close()


def get(pages: Pages, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{pages.port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_probe_passes_and_fails_with_its_reason(pages: Pages, health: Health) -> None:
    assert get(pages, "/readyz") == (200, "ok\n")
    health.fault = "not yet"
    assert get(pages, "/readyz?verbose") == (503, "not yet\n")


def test_metrics_are_served_beside(pages: Pages) -> None:
    status, text = get(pages, "/metrics")
    assert status == 200
    assert "python_info" in text


def test_any_other_path_is_not_found(pages: Pages) -> None:
    assert get(pages, "/")[0] == 404
