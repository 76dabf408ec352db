"""Two endpoints and two teams' keys, of which each opens its own alone."""

import json
from collections.abc import Iterator
from functools import partial

import pytest
from cluster_walk import MODEL, ask, until_answered, until_serving
from real_cluster import ClientPod, Release, until

from gateway.admission.key_file import Grant, issue

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

OTHER = "sentiment-of-another-team"
SECRET = "team-keys"
GATEWAYS = 2  # of the chart's defaults


@pytest.fixture
def keys(release: Release, client: ClientPod, served: str) -> Iterator[dict[str, str]]:
    """A key for each endpoint; the gateway asks for one as long as the test runs."""
    cluster = release.cluster
    issued = {name: issue(f"team of {name}", Grant((name,))) for name in (MODEL, OTHER)}
    lines = [record.model_dump_json(by_alias=True) for _, record in issued.values()]
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET},
        "stringData": {"keys": "\n".join(lines)},
    }
    endpoint = {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "ModelEndpoint",
        "metadata": {"name": OTHER},
        "spec": {"model": MODEL, "version": {"pin": served}},
    }
    for each in (secret, endpoint):
        cluster.kubectl("apply", "-f", "-", given=json.dumps(each))
    until_serving(release, OTHER)
    release.install(f"--set=gateway.keys.existingSecret={SECRET}")
    until("gateways without keys are gone", 120, lambda: len(release.pods("gateway")) == GATEWAYS)
    yield {name: key for name, (key, _) in issued.items()}
    release.install()
    cluster.kubectl("delete", "mep", OTHER)
    cluster.kubectl("delete", "secret", SECRET)
    until_answered(release, client)


def opens(release: Release, client: ClientPod, endpoint: str, key: str) -> bool:
    return bool(ask(release, client, endpoint, key)["status"] == 200)


def test_a_key_opens_its_own_endpoint_alone(
    release: Release, client: ClientPod, keys: dict[str, str]
) -> None:
    for name, key in keys.items():
        until(f"{name} answers its team", 60, partial(opens, release, client, name, key))
    assert ask(release, client, MODEL, keys[OTHER])["status"] == 403
    assert ask(release, client, OTHER, keys[MODEL])["status"] == 403
    assert ask(release, client, MODEL)["status"] == 401
