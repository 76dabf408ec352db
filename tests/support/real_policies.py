"""The chart's admission policies on a real API server, for one namespace of a test."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kubernetes
from helm_chart import policies

GROUP = ("admissionregistration.k8s.io", "v1")
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
IN_FORCE_SECONDS = 60.0


@contextmanager
def in_force(
    policy: str, namespace: str, refuses: Callable[[], bool], *settings: str
) -> Iterator[None]:
    """One of the chart's policies holds in the namespace while the block runs.

    ``refuses`` says whether the API server refuses what the policy forbids: it reads new ones after
    a moment.
    """
    objects = kubernetes.client.CustomObjectsApi(kubernetes.config.new_client_from_config())
    found = policies(policy, *settings)
    assert len(found) == 2
    try:
        for each in found:
            objects.create_cluster_custom_object(
                *GROUP, PLURALS[each["kind"]], _in_namespace(each, namespace)
            )
        deadline = time.monotonic() + IN_FORCE_SECONDS
        while not refuses():
            assert time.monotonic() < deadline, "the policy is not in force in time"
            time.sleep(0.2)
        yield
    finally:
        for each in found:
            objects.delete_cluster_custom_object(*GROUP, PLURALS[each["kind"]], namespace)
        objects.api_client.close()


def _in_namespace(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    spec = manifest["spec"]
    if manifest["kind"].endswith("Binding"):
        chosen = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        spec = {**spec, "policyName": namespace, "matchResources": {"namespaceSelector": chosen}}
    return {**manifest, "metadata": {"name": namespace}, "spec": spec}
