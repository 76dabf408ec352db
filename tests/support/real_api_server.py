"""The API server that KUBECONFIG names and a namespace for one test, without kubectl or helm."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest

from headrace.crd import definition as crd
from service.cluster import access
from service.cluster.client import KubernetesClient
from service.cluster.errors import ApiRefusedError, KubernetesError, MissingError

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/{crd.PLURAL}.{crd.GROUP}"
ESTABLISHED_SECONDS = 30.0


@dataclass(frozen=True)
class RealApi:
    client: KubernetesClient
    namespace: str


@contextmanager
def real_api_server() -> Iterator[RealApi]:
    """A client and a namespace of its own; skips with a reason where there is no cluster."""
    if not os.environ.get("KUBECONFIG"):
        pytest.skip("KUBECONFIG names no cluster")
    client = KubernetesClient(access.found(os.environ), timeout_seconds=10)
    try:
        client.call("GET", "/version")
    except KubernetesError as error:
        pytest.skip(f"the cluster that KUBECONFIG names can't be used: {error}")
    name = f"headrace-edges-{uuid.uuid4().hex[:8]}"
    client.call(
        "POST",
        "/api/v1/namespaces",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
    )
    try:
        define(client)
        yield RealApi(client, name)
    finally:
        with suppress(MissingError):
            client.call("DELETE", f"/api/v1/namespaces/{name}")


def define(client: KubernetesClient) -> None:
    """Gives the cluster the definition as it is now."""
    wanted = crd.definition()
    try:
        found = client.call("GET", DEFINITION)
    except MissingError:
        client.call("POST", DEFINITIONS, wanted)
    else:
        if found["spec"]["versions"][0]["schema"] != wanted["spec"]["versions"][0]["schema"]:
            client.call("PUT", DEFINITION, {**found, "spec": wanted["spec"]})
    deadline = time.monotonic() + ESTABLISHED_SECONDS
    while not _is_served(client):
        assert time.monotonic() < deadline, "the definition is not served in time"
        time.sleep(0.1)


def _is_served(client: KubernetesClient) -> bool:
    conditions = client.call("GET", DEFINITION).get("status", {}).get("conditions") or ()
    established = {each["type"]: each["status"] for each in conditions}.get("Established")
    if established != "True":
        return False
    with suppress(ApiRefusedError):
        client.call("GET", f"/apis/{crd.GROUP}/{crd.VERSION}/{crd.PLURAL}")
        return True
    return False
