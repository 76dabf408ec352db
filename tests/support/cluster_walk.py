"""The example on a cluster: registered by the plain MLflow client, and asked, from a pod of it."""

import json
from collections.abc import Mapping
from typing import Any

from real_cluster import ROOT, SITE_PACKAGES, ClientPod, Release, until

from contracts.endpoint import Arm, Phase

MODEL = "sentiment-classifier"
TEXT = "a warm, funny and moving film"
DECIDED_SECONDS = 600.0  # a rollout
SERVING_SECONDS = 420.0  # its image's first start, conversion, warm-up

_REGISTER = f"{SITE_PACKAGES}/headrace/example/register.py"
_ASK = """
import json, sys
import httpx

headers = {"authorization": f"Bearer {sys.argv[3]}"} if sys.argv[3] else {}
answer = httpx.post(sys.argv[1], json={"inputs": sys.argv[2]}, headers=headers, timeout=30)
version = answer.headers.get("x-headrace-version")
print(json.dumps({"status": answer.status_code, "version": version, "body": answer.json()}))
"""


def endpoint_url(release: Release, endpoint: str = MODEL) -> str:
    """Where callers of the namespace ask."""
    return f"http://{release.host('gateway')}/endpoints/{endpoint}"


def register(release: Release, client: ClientPod, *flags: str) -> None:
    """Registers the example by the plain MLflow client, from inside the cluster."""
    uri = f"http://{release.host('mlflow')}:5000"
    client.run("python", "-P", _REGISTER, "--tracking-uri", uri, *flags, seconds=180)


def register_variant(release: Release, client: ClientPod, variant: str) -> str:
    """Registers one of the variants of ``examples/rollouts`` as a version; returns its number."""
    client.run("mkdir", "-p", "/tmp/headrace")
    for folder in ("examples", "registry"):  # variants read texts of both
        release.cluster.kubectl(
            "cp", str(ROOT / folder), f"{client.name}:/tmp/headrace/{folder}", seconds=120
        )
    said = client.run(
        "env", "-u", "PYTHONSAFEPATH",
        "python", "/tmp/headrace/examples/rollouts/register_variant.py", variant,
        "--model-name", MODEL, "--tracking-uri", f"http://{release.host('mlflow')}:5000",
        seconds=180,
    )  # fmt: skip
    return said.split("version ")[1].split()[0]


def apply(release: Release, endpoint: str) -> None:
    """Brings an endpoint's YAML to the cluster."""
    release.cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", given=endpoint
    )


def stable(release: Release, endpoint: str = MODEL) -> str | None:
    """The version that gets callers, as the endpoint's status says; None before there is one."""
    routes = release.cluster.get("mep", endpoint).get("status", {}).get("routes", [])
    return next((str(each["ref"]["version"]) for each in routes if each["arm"] == Arm.STABLE), None)


def ask(
    release: Release, client: ClientPod, endpoint: str = MODEL, key: str = ""
) -> Mapping[str, Any]:
    """Asks once: ``status``, ``version`` and ``body`` of the answer."""
    return dict(json.loads(client.python(_ASK, endpoint_url(release, endpoint), TEXT, key)))


def until_serving(release: Release, endpoint: str = MODEL) -> str:
    """Waits until a version gets callers; returns which."""
    try:
        return until(
            f"a version of {endpoint} serves", SERVING_SECONDS, lambda: stable(release, endpoint)
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{release.cluster.trouble()}") from error


def until_answered(release: Release, client: ClientPod, seconds: float = 60.0) -> Mapping[str, Any]:
    """Asks until the answer is a prediction; returns it."""

    def answered() -> Mapping[str, Any] | None:
        said = ask(release, client)
        return said if said["status"] == 200 else None

    return until("the gateway answers", seconds, answered)


def phases(release: Release, version: str) -> list[Phase]:
    """What became of a version so far, as the endpoint's status tells it."""
    history = release.cluster.get("mep", MODEL)["status"]["history"]
    return [Phase(line["phase"]) for line in history if line["version"] == version]


def until_phase(release: Release, version: str, phase: Phase) -> None:
    """Waits until a version has come to a phase."""
    try:
        until(
            f"version {version} is {phase.value}",
            DECIDED_SECONDS,
            lambda: phase in phases(release, version),
        )
    except AssertionError as error:
        candidate = release.cluster.get("mep", MODEL)["status"].get("candidate")
        raise AssertionError(f"{error}\n{candidate}\n{release.cluster.trouble()}") from error
