"""A real API server lets a loader write its own reports, and nothing else that is a Lease."""

from collections.abc import Iterator
from typing import Any

import kubernetes
import pytest
from helm_chart import SPACE, policies
from kubernetes.client import ApiException
from real_api_server import real_api_server
from real_policies import in_force

from contracts.loading import LoaderReport
from service.cluster import leases, reports

pytestmark = [pytest.mark.cluster, pytest.mark.walk]

POD_NAME = "Impersonate-Extra-authentication.kubernetes.io%2Fpod-name"
OURS, OTHERS = "triton-7c-aaaaa", "triton-7c-bbbbb"


class Pod:
    """A loader's account as a pod of this name has it; the empty one has a token of no pod."""

    def __init__(self, namespace: str, name: str) -> None:
        self._at = (*leases.VERSION.split("/"), namespace, "leases")
        api = kubernetes.config.new_client_from_config()
        (_, account) = policies("reports")[0]["spec"]["matchConditions"][0]["expression"].split(
            " == "
        )
        assert SPACE in account
        api.set_default_header("Impersonate-User", account.strip("'"))
        api.set_default_header("Impersonate-Group", "system:masters")
        if name:
            api.set_default_header(POD_NAME, name)
        # Of the typed API a time has no microseconds, which an API server asks for.
        self._leases = kubernetes.client.CustomObjectsApi(api)

    def creates(self, lease: dict[str, Any]) -> bool:
        return self._may(self._leases.create_namespaced_custom_object, *self._at, lease)

    def changes(self, lease: dict[str, Any]) -> bool:
        name = lease["metadata"]["name"]
        return self._may(self._leases.patch_namespaced_custom_object, *self._at, name, lease)

    def deletes(self, lease: dict[str, Any]) -> bool:
        name = lease["metadata"]["name"]
        return self._may(self._leases.delete_namespaced_custom_object, *self._at, name)

    def _may(self, call: Any, *arguments: Any) -> bool:
        try:
            call(*arguments, _request_timeout=10)
        except ApiException as error:
            if error.status != 403 or "its own reports only" not in str(error.body):
                raise
            return False
        return True


@pytest.fixture
def namespace() -> Iterator[str]:
    with real_api_server() as ours:
        stranger, owner = Pod(ours.namespace, ""), Pod(ours.namespace, OTHERS)

        def refuses() -> bool:
            probe = lease(OTHERS)
            if not stranger.creates(probe):
                return True
            assert owner.deletes(probe)  # which the policy allows, if it came in between
            return False

        with in_force("reports", ours.namespace, refuses):
            yield ours.namespace


def lease(loader: str) -> dict[str, Any]:
    report = LoaderReport(loader=loader, triton_grpc="10.0.0.1:8001", at=1.5, ready=True)
    return reports.leases(report, "i").report


def beat() -> dict[str, Any]:
    """The controller's, as a loader would forge it."""
    return leases.build_lease(leases.BEAT_NAME, {}, {}, holder=OURS, seconds=15, at=1.0)


def test_a_loader_writes_its_own_reports_alone(namespace: str) -> None:
    ours, others, nobody = (Pod(namespace, name) for name in (OURS, OTHERS, ""))
    assert ours.creates(lease(OURS))
    assert ours.changes(lease(OURS))
    assert not ours.creates(lease(OTHERS))
    assert not ours.creates(beat())
    assert not nobody.creates(lease(OTHERS))
    assert others.creates(lease(OTHERS))
    taken = {**lease(OTHERS), "spec": {**lease(OTHERS)["spec"], "holderIdentity": OURS}}
    assert not ours.changes(lease(OTHERS))
    assert not ours.changes(taken)
    assert not ours.deletes(lease(OTHERS))
    assert ours.deletes(lease(OURS))


def test_the_loader_of_a_triton_elsewhere_has_its_deployments_name(namespace: str) -> None:
    assert Pod(namespace, "headrace-triton-1-7c9-abcde").creates(lease("headrace-triton-1"))
    assert not Pod(namespace, "headrace-triton-10-7c9-abcde").creates(lease("headrace-triton-1x"))
