"""The chart's defaults on a real cluster: from nothing to a first answer, and back.

The namespace enforces the restricted pod security profile: a pod that does not keep it would never
have started.
"""

import json

import pytest
from cluster_walk import MODEL, register, stable, until_answered, until_serving
from real_cluster import CRD, ClientPod, Release, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]


def test_a_fresh_install_answers_a_first_prediction(release: Release, client: ClientPod) -> None:
    register(release, client)
    served = until_serving(release)
    answer = until_answered(release, client)
    assert answer["version"] == served
    assert "positive" in json.dumps(answer["body"])


def test_kubectl_shows_the_endpoint_with_its_stable_version(release: Release, served: str) -> None:
    header, row = release.cluster.kubectl("get", "mep", MODEL).splitlines()
    shown = dict(zip(header.split(), row.split(), strict=False))
    assert shown["NAME"] == MODEL
    assert shown["STABLE"] == served


def test_helm_test_passes(release: Release) -> None:
    said = release.cluster.helm("test", release.name, "--timeout", "180s", seconds=200)
    assert "Succeeded" in said


def test_an_uninstall_leaves_the_volumes_and_the_crd_and_says_so(release: Release) -> None:
    cluster = release.cluster
    volumes = {name for name in cluster.objects() if name.startswith("persistentvolumeclaim/")}
    assert volumes
    notes = cluster.helm("get", "notes", release.name)
    said = release.uninstall()
    assert CRD in said
    assert f"kubectl delete crd {CRD}" in notes
    assert f"kubectl -n {cluster.namespace} delete pvc" in notes
    # What an empty namespace has by itself, the pod that calls, and what people made of our CRD.
    others = {"serviceaccount/default", "configmap/kube-root-ca.crt", "pod/client"}

    def rest() -> set[str]:
        left = {name for name in cluster.objects() if not name.startswith("modelendpoint.")}
        return left - others - volumes

    until("what the chart made is gone", 120, lambda: not rest())
    assert volumes <= cluster.objects()
    of_ours = {name for name in cluster.cluster_objects() if "headrace" in name}
    # Kubernetes itself adds the definition's group to those that it serves.
    assert of_ours == {
        f"customresourcedefinition.apiextensions.k8s.io/{CRD}",
        "apiservice.apiregistration.k8s.io/v1alpha1.headrace.dev",
    }


def test_what_an_uninstall_left_serves_after_an_install(
    release: Release, client: ClientPod, served: str
) -> None:
    release.uninstall()
    release.install()
    assert until_answered(release, client, 180)["version"] == served
    assert stable(release) == served
