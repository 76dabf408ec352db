"""A real API server lets nobody decide about a rollout under another user's name."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

import kubernetes
import pytest
from real_api_server import real_api_server
from real_policies import in_force

from contracts.endpoint import API_VERSION, KIND
from contracts.rollout import COMMAND_BY_PREFIX, COMMAND_PREFIX, Command, Verb
from service.cluster import access, endpoints

pytestmark = [pytest.mark.cluster, pytest.mark.walk]

ANNA, MALLORY = "anna@example.com", "mallory@example.com"
NOTE, USER = f"{COMMAND_PREFIX}one", f"{COMMAND_BY_PREFIX}one"
TEXT = Command(id="one", verb=Verb.PAUSE, by=ANNA, at=1.0).to_text()


@dataclass(frozen=True)
class Space:
    """A namespace with the policy, and an endpoint ``e`` in it."""

    namespace: str

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
        made = Space(ours.namespace)
        with in_force("commands", ours.namespace, lambda: refuses(made)):
            yield made


def refuses(space: Space) -> bool:
    if not space.patched(MALLORY, {USER: ANNA}):
        return True
    space.patched(MALLORY, {USER: None})
    return False


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
    assert access.connect(os.environ).user() == review.status.user_info.username != ""
