"""A real API server goes the way to a next API version that docs/api-versions.md states.

Under another group, so that the definition of the cluster's own endpoints is never touched.
"""

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import kubernetes
import pytest
from chart_definition import crd
from kubernetes.client import ApiException
from real_api_server import DEFINITIONS, RealApi, real_api_server
from real_cluster import REHEARSAL_GROUP, until

from contracts.endpoint import KIND

pytestmark = [pytest.mark.cluster, pytest.mark.walk]

GROUP = REHEARSAL_GROUP
NAME = f"{crd.PLURAL}.{GROUP}"
OLD, NEW = crd.VERSION, "v1beta1"
SPEC = {"model": "m", "rollout": {"steps": [{"shadow": 50}, {"weight": 5}]}}


@dataclass(frozen=True)
class Rehearsal:
    """A copy of the definition under a group of its own, and one endpoint of it."""

    objects: Any
    namespace: str

    def define(self, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Replaces the definition by a changed one; the API server's answer."""
        found = copy.deepcopy(self.objects.get_cluster_custom_object(*DEFINITIONS, NAME))
        change(found)
        return dict(self.objects.replace_cluster_custom_object(*DEFINITIONS, NAME, found))

    def versions(self, *wanted: tuple[str, bool, bool]) -> None:
        """Gives the definition these versions: name, served, stored; all of one schema."""

        def change(definition: dict[str, Any]) -> None:
            shape = definition["spec"]["versions"][0]
            definition["spec"]["versions"] = [
                {**shape, "name": name, "served": served, "storage": stored}
                for name, served, stored in wanted
            ]

        self.define(change)

    def stored(self) -> list[str]:
        """The versions in which the API server may have stored an endpoint."""
        found = self.objects.get_cluster_custom_object(*DEFINITIONS, NAME)
        return list(found["status"]["storedVersions"])

    def is_rewritten(self) -> bool:
        """Whether a write that changes nothing is one: the API server stores another version now.

        It takes a changed definition up after a moment. What it stored before that as a version
        that is then taken away, nobody can read.
        """
        item = self.read(NEW)
        written = self.objects.replace_namespaced_custom_object(
            GROUP, NEW, self.namespace, crd.PLURAL, "e", item
        )
        return bool(written["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"])

    def get(self, version: str) -> dict[str, Any] | None:
        """The endpoint as a version; None where that is not served (yet)."""
        try:
            found = self.objects.get_namespaced_custom_object(
                GROUP, version, self.namespace, crd.PLURAL, "e"
            )
        except ApiException as error:
            if error.status != 404:
                raise
            return None
        return dict(found)

    def read(self, version: str) -> dict[str, Any]:
        """The endpoint as a version, once that is served."""
        until(f"{version} is served", 30, lambda: self.get(version) is not None)
        found = self.get(version)
        assert found is not None
        return found


def remove(objects: Any) -> None:
    """Takes the rehearsed definition away, also one whose objects an API server can't read.

    Its finalizer waits for ever for such objects.
    """

    def is_gone() -> bool:
        try:
            objects.delete_cluster_custom_object(*DEFINITIONS, NAME)
        except ApiException as error:
            if error.status != 404:
                raise
            return True
        return False

    with suppress(AssertionError):
        until("the rehearsed definition is gone", 20, is_gone)
        return
    bare: dict[str, Any] = {"metadata": {"finalizers": []}}
    objects.patch_cluster_custom_object(*DEFINITIONS, NAME, bare)
    until("the rehearsed definition is gone", 20, is_gone)


@pytest.fixture(scope="module")
def api() -> Iterator[RealApi]:
    with real_api_server() as ours:
        yield ours


@pytest.fixture
def rehearsal(api: RealApi) -> Iterator[Rehearsal]:
    connection = kubernetes.config.new_client_from_config(os.environ["KUBECONFIG"])
    objects = kubernetes.client.CustomObjectsApi(connection)
    wanted = crd.definition()
    wanted["metadata"] = {"name": NAME}
    wanted["spec"]["group"] = GROUP
    wanted["spec"]["names"] |= {"shortNames": [], "categories": []}
    remove(objects)  # what a run that was cut short left
    objects.create_cluster_custom_object(*DEFINITIONS, wanted)
    try:
        ours = Rehearsal(objects, api.namespace)
        item = {
            "apiVersion": f"{GROUP}/{OLD}", "kind": KIND,
            "metadata": {"name": "e"}, "spec": SPEC,
        }  # fmt: skip

        def made() -> bool:
            try:
                objects.create_namespaced_custom_object(
                    GROUP, OLD, ours.namespace, crd.PLURAL, item
                )
            except ApiException as error:
                if error.status != 404:
                    raise
                return False
            return True

        until("an endpoint is taken", 30, made)
        yield ours
    finally:
        remove(objects)
        connection.close()


def test_an_endpoint_goes_from_one_api_version_to_the_next_without_a_webhook(
    rehearsal: Rehearsal,
) -> None:
    before = rehearsal.read(OLD)["spec"]
    rehearsal.versions((OLD, True, True), (NEW, True, False))  # both served, the old one stored
    assert rehearsal.read(NEW)["spec"] == before
    rehearsal.versions((OLD, True, False), (NEW, True, True))  # the new one stored
    assert rehearsal.stored() == [OLD, NEW]
    until("it is stored as the new version", 30, rehearsal.is_rewritten)

    # While it is said to be stored, the old one can't go: an upgrade too early does no harm.
    with pytest.raises(ApiException) as refused:
        rehearsal.versions((NEW, True, True))
    assert refused.value.status == 422
    assert "storedVersions" in refused.value.body

    rehearsal.objects.patch_cluster_custom_object_status(
        *DEFINITIONS, NAME, {"status": {"storedVersions": [NEW]}}
    )
    rehearsal.versions((OLD, False, False), (NEW, True, True))  # the old one no longer served
    until("the old version is gone", 30, lambda: rehearsal.get(OLD) is None)
    rehearsal.versions((NEW, True, True))
    after = rehearsal.read(NEW)
    assert after["apiVersion"] == f"{GROUP}/{NEW}"
    assert after["spec"] == before
