"""A real Prometheus beside the cluster finds the pods as docs/install.md tells it to.

Then it takes each query of each dashboard, with two gateways and the labels of pods. That each has
data after what may happen is the claim of ``tests/dashboards/test_on_the_stack.py``.
"""

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_load import go_on, load
from cluster_walk import endpoint_url, until_answered
from dashboard_panels import FREE, RATE_SECONDS, STEP_SECONDS, TARGETS, Seen, numbers
from http_server import Answer, http_server
from real_cluster import ROOT, ClientPod, Release, until
from real_prometheus import RealPrometheus, program, real_prometheus

from dashboards.__main__ import GENERATED

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

RATE = 30.0
REQUESTS = 600  # over some scrapes
# Ports with metrics, of the pods that the chart makes.
SCRAPED = Counter(
    {"gateway": 2, "controller": 1, "fold": 1, "evaluate": 1, "triton": 2}  # and its loader
)


@pytest.fixture
def prometheus(release: Release, served: str, tmp_path: Path) -> Iterator[RealPrometheus]:
    """One that runs here, and reaches the pods by their addresses."""
    program("prometheus")
    (gateway, *_) = release.addresses("gateway")
    try:
        socket.create_connection((gateway, 9310), timeout=5).close()
    except OSError as error:
        pytest.skip(f"the pods' addresses are not reached from here ({error})")
    rules = GENERATED / "rules.yaml"
    with (
        discovered(partial(all_pods, release)) as url,
        real_prometheus(tmp_path / "prometheus", {}, rules, more=[documented_job(url)]) as running,
    ):
        yield running


def documented_job(discovery: str) -> dict[str, Any]:
    """The scrape job of docs/install.md, with its pods by HTTP: see ``discovered``."""
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    (block,) = (
        part.split("```")[0] for part in text.split("```yaml\n") if part.startswith("- job_name")
    )
    (job,) = yaml.safe_load(block)
    (by_kubernetes,) = job.pop("kubernetes_sd_configs")
    assert by_kubernetes["role"] == "pod"
    return {**job, "http_sd_configs": [{"url": discovery, "refresh_interval": "5s"}]}


def test_prometheus_finds_the_pods_and_takes_every_query_of_the_dashboards(
    prometheus: RealPrometheus, release: Release, client: ClientPod, served: str
) -> None:
    until("all pods with metrics are scraped", 60, lambda: found(prometheus) == SCRAPED)
    began = time.time()
    until_answered(release, client)
    with load(client, endpoint_url(release), RATE) as running:
        go_on(running, REQUESTS)
    values = dict.fromkeys(FREE, ".*")
    values |= {"package": ".*", "__rate_interval": RATE_SECONDS, "__range": "30m"}
    seen = Seen(prometheus, began, time.time(), STEP_SECONDS, values)
    # Series of several pods that one side of a query can't tell apart would be an error.
    with_data = [name for name, target in TARGETS.items() if numbers(seen.ask(target))]
    assert with_data
    rules = prometheus.rules()
    assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []


def all_pods(release: Release) -> list[dict[str, Any]]:
    return list(release.cluster.get("pods").get("items", []))


def found(prometheus: RealPrometheus) -> Counter[str]:
    """Targets that are up, by their pod's component."""
    return Counter(
        component_of(labels["pod"])
        for labels, health in prometheus.scraped()
        if health == "up" and "pod" in labels
    )


def component_of(pod: str) -> str:
    return next(name for name in SCRAPED if f"-{name}-" in pod)


def discovery_targets(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A target for each port of each container, as of ``role: pod``."""
    return [
        _target(pod, container, port)
        for pod in pods
        if "podIP" in pod["status"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
    ]


def _target(pod: dict[str, Any], container: dict[str, Any], port: dict[str, Any]) -> dict[str, Any]:
    about = pod["metadata"]
    meta = {
        "namespace": about["namespace"],
        "pod_name": about["name"],
        "pod_container_name": container["name"],
        "pod_container_port_name": port.get("name", ""),
    }
    meta |= {f"pod_label_{_clean(name)}": value for name, value in about["labels"].items()}
    return {
        "targets": [f"{pod['status']['podIP']}:{port['containerPort']}"],
        "labels": {f"__meta_kubernetes_{name}": value for name, value in meta.items()},
    }


def _clean(name: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in name)


@contextmanager
def discovered(pods: Callable[[], list[dict[str, Any]]]) -> Iterator[str]:
    """Serves the pods, read anew for each question, at the URL that it gives.

    Debian builds its Prometheus without ``kubernetes_sd_configs``. This answers ``http_sd_configs``
    with the same targets under the same ``__meta_kubernetes_*`` labels, so that a scrape job's
    rules of relabelling are those that a user writes. Only what our documented job reads is there.
    """

    as_json = {"Content-Type": "application/json"}
    with http_server(lambda _: Answer(200, discovery_targets(pods()), headers=as_json)) as url:
        yield f"{url}/"
