"""A real API server lets nobody decide about a rollout under another user's name."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import kubernetes
import pytest
from helm_chart import LIGHT, manifests
from real_api_server import real_api_server

from contracts.endpoint import API_VERSION, KIND
from contracts.rollout import COMMAND_BY_PREFIX, COMMAND_PREFIX, Command, Verb
from service.cluster import access, endpoints

pytestmark = [pytest.mark.cluster, pytest.mark.walk]

GROUP = ("admissionregistration.k8s.io", "v1")
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
KINDS = [f"{'/'.join(GROUP)}/ValidatingAdmissionPolicy"]
ANNA, MALLORY = "anna@example.com", "mallory@example.com"
NOTE, USER = f"{COMMAND_PREFIX}one", f"{COMMAND_BY_PREFIX}one"
TEXT = Command(id="one", verb=Verb.PAUSE, by=ANNA, at=1.0).written()


@dataclass(frozen=True)
class Space:
    """A namespace with the policy, and an endpoint ``e`` in it."""

    namespace: str
    objects: Any

    def patched(self, user: str, notes: dict[str, str | None]) -> bool:
        """Whether the API server lets this user write these annotations."""
        api = kubernetes.config.new_client_from_config()
        api.set_default_header("Impersonate-User", user)
        api.set_default_header("Impersonate-Group", "system:masters")
        collection = endpoints.collection(self.namespace)
        path = (*collection.version.split("/"), self.namespace, endpoints.PLURAL, "e")
        try:
            kubernetes.client.CustomObjectsApi(api).patch_namespaced_custom_object(
                *path, {"metadata": {"annotations": notes}},
                _content_type="application/merge-patch+json", _request_timeout=10,
            )  # fmt: skip
        except kubernetes.client.ApiException as error:
            if error.status != 403 or "decision" not in str(error.body):
                raise
            return False
        finally:
            api.close()
        return True


@pytest.fixture
def space() -> Iterator[Space]:
    with real_api_server() as ours:
        item = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "e"}}
        ours.client.create(endpoints.collection(ours.namespace), {**item, "spec": {"model": "m"}})
        objects = kubernetes.client.CustomObjectsApi(kubernetes.config.new_client_from_config())
        found = [each for each in manifests("", *LIGHT, apis=KINDS) if each["kind"] in PLURALS]
        assert len(found) == 2
        wanted = [in_namespace(each, ours.namespace) for each in found]
        try:
            for each in wanted:
                objects.create_cluster_custom_object(*GROUP, PLURALS[each["kind"]], each)
            made = Space(ours.namespace, objects)
            deadline = time.monotonic() + 60  # the API server reads new policies after a moment
            while made.patched(MALLORY, {USER: ANNA}):
                assert time.monotonic() < deadline, "the policy is not in force in time"
                made.patched(MALLORY, {USER: None})
                time.sleep(0.2)
            yield made
        finally:
            for each in wanted:
                name = each["metadata"]["name"]
                objects.delete_cluster_custom_object(*GROUP, PLURALS[each["kind"]], name)


def in_namespace(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The object for the test's own namespace, under a name of its own."""
    spec = manifest["spec"]
    if manifest["kind"].endswith("Binding"):
        chosen = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
        spec = {**spec, "policyName": namespace, "matchResources": {"namespaceSelector": chosen}}
    return {**manifest, "metadata": {"name": namespace}, "spec": spec}


def test_nobody_decides_under_another_users_name(space: Space) -> None:
    forged = json.dumps({**json.loads(TEXT), "verb": "abort"})
    assert not space.patched(MALLORY, {NOTE: TEXT})  # without a user
    assert not space.patched(MALLORY, {NOTE: TEXT, USER: ANNA})
    assert space.patched(MALLORY, {"team": "search"})
    assert space.patched(ANNA, {NOTE: TEXT, USER: ANNA})
    assert space.patched(MALLORY, {"team": "shop"})  # beside a command that waits
    assert not space.patched(MALLORY, {NOTE: forged})
    assert not space.patched(MALLORY, {USER: None})
    assert not space.patched(ANNA, {USER: None})
    assert space.patched(MALLORY, {NOTE: None, USER: None})  # as the controller takes it away


def test_the_api_server_says_who_asks(space: Space) -> None:
    api = kubernetes.config.new_client_from_config()
    review = kubernetes.client.AuthenticationV1Api(api).create_self_subject_review({})
    assert access.connected(os.environ).user() == review.status.user_info.username != ""
