"""The example on a cluster: registered by the plain MLflow client, and asked, from a pod of it."""

import json
from collections.abc import Mapping
from typing import Any

from real_cluster import SITE_PACKAGES, ClientPod, Release, until

MODEL = "sentiment-classifier"
TEXT = "a warm, funny and moving film"
SERVING_SECONDS = 420.0  # its image's first start, conversion, warm-up

_REGISTER = f"{SITE_PACKAGES}/headrace/example/register.py"
_ASK = """
import json, sys
import httpx

answer = httpx.post(sys.argv[1], json={"inputs": sys.argv[2]}, timeout=30)
version = answer.headers.get("x-headrace-version")
print(json.dumps({"status": answer.status_code, "version": version, "body": answer.json()}))
"""


def endpoint_url(release: Release) -> str:
    """Where callers of the namespace ask."""
    return f"http://{release.host('gateway')}/endpoints/{MODEL}"


def register(release: Release, client: ClientPod, *flags: str) -> None:
    """Registers the example by the plain MLflow client, from inside the cluster."""
    uri = f"http://{release.host('mlflow')}:5000"
    client.run("python", "-P", _REGISTER, "--tracking-uri", uri, *flags, seconds=180)


def stable(release: Release) -> str | None:
    """The version that gets callers, as the endpoint's status says; None before there is one."""
    routes = release.cluster.get("mep", MODEL).get("status", {}).get("routes", [])
    return next((str(each["ref"]["version"]) for each in routes if each["weight"]), None)


def ask(release: Release, client: ClientPod) -> Mapping[str, Any]:
    """Asks once: ``status``, ``version`` and ``body`` of the answer."""
    return dict(json.loads(client.python(_ASK, endpoint_url(release), TEXT)))


def until_serving(release: Release) -> str:
    """Waits until a version gets callers; returns which."""
    try:
        return until("the registered version serves", SERVING_SECONDS, lambda: stable(release))
    except AssertionError as error:
        raise AssertionError(f"{error}\n{release.cluster.trouble()}") from error


def until_answered(release: Release, client: ClientPod, seconds: float = 60.0) -> Mapping[str, Any]:
    """Asks until the answer is a prediction; returns it."""

    def answered() -> Mapping[str, Any] | None:
        said = ask(release, client)
        return said if said["status"] == 200 else None

    return until("the gateway answers", seconds, answered)
