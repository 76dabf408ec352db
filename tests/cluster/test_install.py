"""The chart's defaults on a real cluster: from nothing to a first answer, and back.

The namespace enforces the restricted pod security profile: a pod that does not keep it would never
have started.
"""

import json

import pytest
from real_cluster import CRD, SITE_PACKAGES, ClientPod, Release, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

MODEL = "sentiment-classifier"
REGISTER = f"{SITE_PACKAGES}/headrace/example/register.py"
ASK = """
import json, sys
import httpx

answer = httpx.post(sys.argv[1], json={"inputs": sys.argv[2]}, timeout=30)
version = answer.headers.get("x-headrace-version")
print(json.dumps({"status": answer.status_code, "version": version, "body": answer.json()}))
"""


def register(release: Release, client: ClientPod, *flags: str) -> None:
    """Registers the example by the plain MLflow client, from inside the cluster."""
    uri = f"http://{release.host('mlflow')}:5000"
    client.run("python", "-P", REGISTER, "--tracking-uri", uri, *flags, seconds=180)


def answer(release: Release, client: ClientPod, text: str) -> dict[str, object]:
    url = f"http://{release.host('gateway')}/endpoints/{MODEL}"
    return dict(json.loads(client.python(ASK, url, text)))


def stable(release: Release) -> str | None:
    """The version that gets callers, as the endpoint's status says; None before there is one."""
    routes = release.cluster.get("mep", MODEL).get("status", {}).get("routes", [])
    return next((str(each["ref"]["version"]) for each in routes if each["weight"]), None)


def test_a_fresh_install_answers_a_first_prediction(release: Release, client: ClientPod) -> None:
    register(release, client)
    try:
        until("the registered version serves", 420, lambda: stable(release))
    except AssertionError as error:
        raise AssertionError(f"{error}\n{release.cluster.trouble()}") from error
    said = until(
        "the gateway answers",
        30,
        lambda: (
            said
            if (said := answer(release, client, "a warm, funny and moving film"))["status"] == 200
            else None
        ),
    )
    assert said["version"] == stable(release)
    assert "positive" in json.dumps(said["body"])


def test_kubectl_shows_the_endpoint_with_its_stable_version(
    release: Release, client: ClientPod
) -> None:
    if stable(release) is None:
        register(release, client)
        until("the registered version serves", 420, lambda: stable(release))
    header, row = release.cluster.kubectl("get", "mep", MODEL).splitlines()
    shown = dict(zip(header.split(), row.split(), strict=False))
    assert shown["NAME"] == MODEL
    assert shown["STABLE"] == stable(release)


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
    others = ("serviceaccount/default", "configmap/kube-root-ca.crt", "pod/client")

    def rest() -> set[str]:
        left = {name for name in cluster.objects() if not name.startswith("modelendpoint.")}
        return left - set(others) - volumes

    until("what the chart made is gone", 120, lambda: not rest())
    assert volumes <= cluster.objects()
    of_ours = {name for name in cluster.cluster_objects() if "headrace" in name}
    assert of_ours == {f"customresourcedefinition.apiextensions.k8s.io/{CRD}"}


def test_what_an_uninstall_left_serves_after_an_install(
    release: Release, client: ClientPod
) -> None:
    if stable(release) is None:
        register(release, client)
        until("the registered version serves", 420, lambda: stable(release))
    served = stable(release)
    release.uninstall()
    release.install()
    said = until(
        "the gateway answers",
        180,
        lambda: (
            said
            if (said := answer(release, client, "dull and far too long"))["status"] == 200
            else None
        ),
    )
    assert said["version"] == served
