"""The chart's defaults on a real cluster: from nothing to a first answer.

The namespace enforces the restricted pod security profile: a pod that does not keep it would never
have started.
"""

import json

import pytest
from cluster_walk import MODEL, register, until_answered, until_serving
from real_cluster import ClientPod, Release

pytestmark = [pytest.mark.cluster, pytest.mark.walk, pytest.mark.timeout(1500)]


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
