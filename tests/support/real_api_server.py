"""The API server that KUBECONFIG names and a namespace for one test, without kubectl or helm."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubernetes
import pytest
import yaml
from chart_definition import crd
from cluster_guard import take_cluster
from kubernetes.client import ApiException

from service.cluster import access
from service.cluster.client import ClusterClient
from service.cluster.errors import AccessError

DEFINITIONS = ("apiextensions.k8s.io", "v1", "customresourcedefinitions")
RECORDS = Path(__file__).parents[2] / "charts" / "headrace" / "files" / "endpointrecords.crd.yaml"
ESTABLISHED_SECONDS = 30.0
CALL_SECONDS = 10.0


@dataclass(frozen=True)
class RealApi:
    client: ClusterClient
    namespace: str


@contextmanager
def real_api_server() -> Iterator[RealApi]:
    """A client and a namespace of its own; skips with a reason where there is no cluster."""
    config = os.environ.get("KUBECONFIG")
    if not config:
        pytest.skip("KUBECONFIG names no cluster")
    try:
        api = kubernetes.config.new_client_from_config(config)
        kubernetes.client.VersionApi(api).get_code(_request_timeout=CALL_SECONDS)
        client = access.connect(os.environ)
    except (ApiException, kubernetes.config.ConfigException, AccessError, OSError) as error:
        pytest.skip(f"the cluster that KUBECONFIG names can't be used: {error}")
    take_cluster()
    core, definitions = kubernetes.client.CoreV1Api(api), kubernetes.client.CustomObjectsApi(api)
    name = f"headrace-edges-{uuid.uuid4().hex[:8]}"
    core.create_namespace({"metadata": {"name": name}}, _request_timeout=CALL_SECONDS)
    try:
        define(definitions)
        yield RealApi(client, name)
    finally:
        core.delete_namespace(name, _request_timeout=CALL_SECONDS)
        api.close()


def define(api: Any) -> None:
    """Gives the cluster the definitions as they are now."""
    for wanted in (crd.definition(), yaml.safe_load(RECORDS.read_text(encoding="utf-8"))):
        _define(api, wanted)


def _define(api: Any, wanted: dict[str, Any]) -> None:
    name, plural = wanted["metadata"]["name"], wanted["spec"]["names"]["plural"]
    try:
        found = api.get_cluster_custom_object(*DEFINITIONS, name)
    except ApiException as error:
        if error.status != 404:
            raise
        api.create_cluster_custom_object(*DEFINITIONS, wanted)
    else:
        if found["spec"]["versions"][0]["schema"] != wanted["spec"]["versions"][0]["schema"]:
            changed = {**found, "spec": wanted["spec"]}
            api.replace_cluster_custom_object(*DEFINITIONS, name, changed)
    deadline = time.monotonic() + ESTABLISHED_SECONDS
    while not _is_served(api, name, plural):
        assert time.monotonic() < deadline, "the definition is not served in time"
        time.sleep(0.1)


def _is_served(api: Any, name: str, plural: str) -> bool:
    found = api.get_cluster_custom_object(*DEFINITIONS, name)
    conditions = found.get("status", {}).get("conditions") or ()
    established = {each["type"]: each["status"] for each in conditions}.get("Established")
    if established != "True":
        return False
    with suppress(ApiException):
        api.list_cluster_custom_object(crd.GROUP, crd.VERSION, plural)
        return True
    return False
