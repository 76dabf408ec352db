"""What an uninstall leaves behind, and that it serves again. After all other tests of the walk."""

import pytest
from cluster_walk import stable, until_answered
from real_cluster import CRD, RECORDS_CRD, REHEARSAL_GROUP, ClientPod, Release, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]


@pytest.mark.walk
def test_an_uninstall_leaves_the_volumes_and_the_crd_and_says_so(release: Release) -> None:
    cluster = release.cluster
    volumes = {name for name in cluster.objects() if name.startswith("persistentvolumeclaim/")}
    assert volumes
    notes = cluster.helm("get", "notes", release.name)
    said = release.uninstall()
    assert CRD in said
    assert f"kubectl delete crd {CRD} {RECORDS_CRD}" in notes
    assert f"kubectl -n {cluster.namespace} delete pvc" in notes
    # What an empty namespace has by itself, the pod that calls, and what people made of our CRD.
    others = {"serviceaccount/default", "configmap/kube-root-ca.crt", "pod/client"}

    def rest() -> set[str]:
        kept = ("modelendpoint.", "endpointrecord.")
        left = {name for name in cluster.objects() if not name.startswith(kept)}
        return left - others - volumes

    until("what the chart made is gone", 120, lambda: not rest())
    until("no Lease is left", 120, lambda: not cluster.kubectl("get", "leases", "-o", "name"))
    assert volumes <= cluster.objects()
    # A definition of test_api_versions.py, under another group, may still be deleted.
    of_ours = {
        name
        for name in cluster.cluster_objects()
        if "headrace" in name and not name.endswith(REHEARSAL_GROUP)
    }
    # Kubernetes itself adds the definition's group to those that it serves.
    assert of_ours == {
        f"customresourcedefinition.apiextensions.k8s.io/{CRD}",
        f"customresourcedefinition.apiextensions.k8s.io/{RECORDS_CRD}",
        "apiservice.apiregistration.k8s.io/v1alpha1.headrace.dev",
    }


def test_what_an_uninstall_left_serves_after_an_install(
    release: Release, client: ClientPod, served: str
) -> None:
    release.uninstall()
    release.install()
    assert until_answered(release, client, 180)["version"] == served
    assert stable(release) == served
