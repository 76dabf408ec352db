"""Pods as Prometheus' Kubernetes discovery shows them, served over HTTP to one that has none.

Debian builds its Prometheus without ``kubernetes_sd_configs``. This answers ``http_sd_configs``
with the same targets under the same ``__meta_kubernetes_*`` labels, so that a scrape job's rules of
relabelling are those that a user writes. Only what our documented job reads is there.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from http_server import Answer, http_server

Pod = dict[str, Any]
Target = dict[str, Any]


def targets(pods: list[Pod]) -> list[Target]:
    """A target for each port of each container, as of ``role: pod``."""
    return [
        _target(pod, container, port)
        for pod in pods
        if "podIP" in pod["status"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", [])
    ]


def _target(pod: Pod, container: dict[str, Any], port: dict[str, Any]) -> Target:
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


@contextlib.contextmanager
def served(pods: Callable[[], list[Pod]]) -> Iterator[str]:
    """Serves them at the URL that it gives, read anew for each question."""

    as_json = {"Content-Type": "application/json"}
    with http_server(lambda _: Answer(200, targets(pods()), headers=as_json)) as url:
        yield f"{url}/"
