"""A real Prometheus that scrapes what a test names, with our rules loaded, and its HTTP interface.

Debian's package ``prometheus``, on a free port of 127.0.0.1; its data lies in a folder of the test.
"""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from own_ports import own_ports
from waiting import until

SCRAPE_SECONDS = 3  # also the longest that a scrape may take
START_SECONDS = 90.0
STOP_SECONDS = 20.0


def program(name: str) -> str:
    """The path of ``prometheus`` or ``promtool``; skips the test where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} here (Debian, Ubuntu: apt-get install prometheus)")
    return found


@dataclass(frozen=True)
class Series:
    """One series of an answer: its labels, and ``(unix seconds, value)`` oldest first."""

    labels: dict[str, str]
    samples: list[tuple[float, float]]


@dataclass(frozen=True)
class RealPrometheus:
    """A running Prometheus."""

    url: str

    def now(self, expr: str) -> list[Series]:
        """What an expression gives at this moment."""
        return self.at(expr, time.time())

    def at(self, expr: str, moment: float) -> list[Series]:
        """What an expression gave at a moment, unix seconds."""
        found = self._get("query", query=expr, time=str(moment))["result"]
        return [Series(item["metric"], [_sample(item["value"])]) for item in found]

    def over(self, expr: str, begin: float, end: float, step: float) -> list[Series]:
        """What an expression gives from ``begin`` to ``end``, unix seconds."""
        found = self._get(
            "query_range", query=expr, start=str(begin), end=str(end), step=str(step)
        )["result"]
        return [
            Series(item["metric"], [_sample(each) for each in item["values"]]) for item in found
        ]

    def label_values(self, label: str, selector: str) -> list[str]:
        """What Grafana asks for ``label_values(selector, label)``."""
        values: list[str] = self._get(f"label/{label}/values", **{"match[]": selector})
        return values

    def exemplars(self, expr: str, begin: float, end: float) -> list[dict[str, Any]]:
        """Single observations of the series that an expression reads, as Grafana asks for them."""
        found = self._get("query_exemplars", query=expr, start=str(begin), end=str(end))
        return [each for series in found for each in series["exemplars"]]

    def targets(self) -> dict[str, str]:
        """Job -> health: up, down or unknown."""
        return {labels["job"]: health for labels, health in self.scraped()}

    def scraped(self) -> list[tuple[dict[str, str], str]]:
        """Labels and health of every target."""
        active = self._get("targets")["activeTargets"]
        return [(target["labels"], target["health"]) for target in active]

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with its health."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, route: str, **query: str) -> Any:
        answer = httpx.get(f"{self.url}/api/v1/{route}", params=query, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]


def _sample(pair: list[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])


@contextlib.contextmanager
def real_prometheus(
    home: Path, jobs: Mapping[str, int], rules: Path, more: Sequence[Mapping[str, Any]] = ()
) -> Iterator[RealPrometheus]:
    """Starts one that scrapes each job's port on 127.0.0.1, and stops it at the end.

    ``more``: further jobs, as Prometheus' configuration has them.
    """
    executable = program("prometheus")
    home.mkdir(parents=True)
    config = {
        "global": {
            "scrape_interval": f"{SCRAPE_SECONDS}s",
            "evaluation_interval": f"{SCRAPE_SECONDS}s",
        },
        "rule_files": [str(_evaluated_often(rules, home))],
        "scrape_configs": [
            {
                "job_name": job,
                "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": _place(job)}],
            }
            for job, port in jobs.items()
        ]
        + [dict(job) for job in more],
    }
    (home / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (port,) = own_ports(1)
    with (home / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                executable,
                f"--config.file={home / 'prometheus.yml'}",
                f"--storage.tsdb.path={home / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--enable-feature=exemplar-storage",
            ],
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        running = RealPrometheus(f"http://127.0.0.1:{port}")
        try:
            until(
                f"Prometheus is ready; see {home}", START_SECONDS, lambda: _ready(running, process)
            )
            yield running
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)


def _place(job: str) -> dict[str, str]:
    """Labels that a cluster's Prometheus has."""
    return {"cluster": "here", "namespace": "tests", "pod": f"{job}-0"}


def _evaluated_often(rules: Path, home: Path) -> Path:
    """The rules with no interval of their own: a test sees them all within seconds."""
    whole = yaml.safe_load(rules.read_text(encoding="utf-8"))
    for group in whole["groups"]:
        group.pop("interval", None)
    path = home / rules.name
    path.write_text(yaml.safe_dump(whole), encoding="utf-8")
    return path


def _ready(running: RealPrometheus, process: "subprocess.Popen[bytes]") -> bool:
    assert process.poll() is None, "prometheus has ended"
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{running.url}/-/ready", timeout=60).status_code == 200
    return False
