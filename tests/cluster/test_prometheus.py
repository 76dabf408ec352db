"""A real Prometheus beside the cluster finds the pods as docs/install.md tells it to.

Then each query of each dashboard gives data, after what happens to a cluster in a while: a version
that fails is rolled back, a better one promoted, callers tell the truth, texts change their
language, requests are refused, and Triton is away. What a small cluster can't cause is exposed by
the same code from made-up counts, and only that: a GPU, an embedder, declared statistics of one's
own, a preprocessor that breaks, lost events (``made_up_metrics.py``).
"""

import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import grafana_panels
import httpx
import made_up_metrics
import pod_discovery
import prometheus_programs
import pytest
import yaml
from cluster_load import go_on, load
from cluster_walk import MODEL, apply, endpoint_url, register_variant, until_answered, until_phase
from dashboards_scenario import (
    ERRORS_ALONE,
    OTHER_LANGUAGE,
    RATE_SECONDS,
    STEP_SECONDS,
    TEXTS,
)
from own_ports import own_ports
from panel_answers import TARGETS, Seen, must_be_in_form
from real_cluster import ROOT, ClientPod, Release, until
from real_prometheus import RealPrometheus, real_prometheus
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
    prometheus_programs.program("prometheus")
    (gateway, *_) = release.addresses("gateway")
    try:
        socket.create_connection((gateway, 8080), timeout=5).close()
    except OSError as error:
        pytest.skip(f"the pods' addresses are not reached from here ({error})")
    (made_up,) = own_ports(1)
    with ExitStack() as cleanup:
        cleanup.enter_context(made_up_metrics.served(made_up, made_up_metrics.MadeUp()))
        discovery = cleanup.enter_context(pod_discovery.served(partial(all_pods, release)))
        yield cleanup.enter_context(
            real_prometheus(
                tmp_path / "prometheus",
                {"made_up": made_up},
                GENERATED / "rules.yaml",
                more=[documented_job(discovery)],
            )
        )


def documented_job(discovery: str) -> dict[str, Any]:
    """The scrape job of docs/install.md, with its pods by HTTP: see ``pod_discovery.py``."""
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
    offers = [name for _, name, query in grafana_panels.variables() if not seen.offered(query)]
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
