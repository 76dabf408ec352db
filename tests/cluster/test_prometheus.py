"""A real Prometheus beside the cluster finds the pods as docs/install.md tells it to.

Then each query of each dashboard gives data, after what happens to a cluster in a while: a version
that fails is rolled back, a better one promoted, callers tell the truth, texts change their
language, requests are refused, and Triton is away. What a small cluster can't cause is exposed by
the same code from synthetic counts, and only that: a GPU, an embedder, declared statistics of one's
own, a preprocessor that breaks, lost events (``synthetic_metrics.py``).
"""

import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import synthetic_metrics
import yaml
from cluster_load import go_on, load
from cluster_walk import MODEL, apply, endpoint_url, register_variant, until_answered, until_phase
from dashboard_panels import (
    ERRORS_ALONE,
    OTHER_LANGUAGE,
    RATE_SECONDS,
    STEP_SECONDS,
    TARGETS,
    TEXTS,
    VARIABLES,
    Seen,
    must_be_in_form,
)
from http_server import Answer, http_server
from own_ports import own_ports
from real_cluster import ROOT, ClientPod, Release, until
from real_prometheus import RealPrometheus, program, real_prometheus
from rolling_stack import spec

from contracts.endpoint import Phase
from dashboards.__main__ import GENERATED
from headrace.errors import RequestFailedError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

RATE = 30.0
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
        socket.create_connection((gateway, 8080), timeout=5).close()
    except OSError as error:
        pytest.skip(f"the pods' addresses are not reached from here ({error})")
    (synthetic,) = own_ports(1)
    with ExitStack() as cleanup:
        cleanup.enter_context(synthetic_metrics.served(synthetic))
        discovery = cleanup.enter_context(discovered(partial(all_pods, release)))
        yield cleanup.enter_context(
            real_prometheus(
                tmp_path / "prometheus",
                {"synthetic": synthetic},
                GENERATED / "rules.yaml",
                more=[documented_job(discovery)],
            )
        )


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


def test_prometheus_finds_the_pods_and_every_query_of_the_dashboards_has_data(
    prometheus: RealPrometheus, release: Release, client: ClientPod, served: str, tmp_path: Path
) -> None:
    until("all pods with metrics are scraped", 60, lambda: found(prometheus) == SCRAPED)
    began = time.time()
    play(release, client, tmp_path)
    seen = Seen(prometheus, began, time.time(), STEP_SECONDS, variables(prometheus))
    assert faults_of_panels(seen) == []
    offers = [name for _, name, query in VARIABLES if not seen.offered(query)]
    assert offers == []
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


def variables(prometheus: RealPrometheus) -> dict[str, str]:
    """Values of the dashboards' variables."""
    packages = prometheus.label_values("package", "headrace_version_info")
    return {
        "endpoint": ".*", "version": ".*", "arm": ".*", "label": ".*", "own": ".*",
        "lambda": ".*", "package": "|".join(packages), "__rate_interval": RATE_SECONDS,
        "__range": "30m",
    }  # fmt: skip


def faults_of_panels(seen: Seen) -> list[str]:
    """The panels' queries without data in their form."""
    faults = []
    for name, target in TARGETS.items():
        try:
            must_be_in_form(target, seen.ask(target))
        except AssertionError as error:
            faults.append(f"{name}: {error}")
    return faults


# What happens


def play(release: Release, client: ClientPod, home: Path) -> None:
    until_answered(release, client)
    with load(client, endpoint_url(release), RATE) as running:
        go_on(running, 30)
        apply(release, spec("{weight: 50}", checks=ERRORS_ALONE))
        until_phase(release, register_variant(release, client, "failing"), Phase.ROLLED_BACK)
        apply(release, spec())
        until_phase(release, register_variant(release, client, "better"), Phase.SETTLED)
        running.stop()
    replay(release, TEXTS / "held_out.jsonl", "--feedback", seconds=25)
    replay(release, other_language(home), seconds=40)
    ask_too_much(release)
    release.scale("triton", 0)
    replay(release, TEXTS / "replay.txt", seconds=5, status=RequestFailedError.exit_status)
    release.scale("triton", 1)
    until_answered(release, client, 180)
    replay(release, TEXTS / "replay.txt", seconds=25)


def gateway_url(release: Release) -> str:
    return f"http://{release.addresses('gateway')[0]}:8080"


def replay(release: Release, texts: Path, *flags: str, seconds: int, status: int = 0) -> None:
    """Sends texts for a while; ``status`` is what the command must end with."""
    pace = ("--rate", "25", "--callers", "20", "--duration", f"{seconds}s")
    command = [str(Path(sys.executable).parent / "headrace"), "replay", str(texts)]
    where = ("--endpoint", MODEL, "--url", gateway_url(release))
    done = subprocess.run(
        [*command, *where, *pace, *flags],
        capture_output=True, text=True, check=False, timeout=seconds + 120,
    )  # fmt: skip
    assert done.returncode == status, done.stderr


def other_language(home: Path) -> Path:
    path = home / "other_language.txt"
    path.write_text(f"{OTHER_LANGUAGE}\n" * 50, encoding="utf-8")
    return path


def ask_too_much(release: Release) -> None:
    url = f"{gateway_url(release)}/endpoints/{MODEL}"
    for _ in range(5):
        assert httpx.post(url, json={"inputs": ["fine"] * 300}, timeout=20).status_code == 413


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
