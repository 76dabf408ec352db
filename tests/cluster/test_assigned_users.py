"""A cluster that assigns users, as OpenShift's restricted SCC does: nameless, in the group 0."""

import json

import pytest
from cluster_walk import register, until_answered, until_serving
from real_cluster import ClientPod, Release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

# What that SCC fills in. It names no group: a user whom /etc/passwd does not know has the group 0.
ASSIGNED = 1000650000
USERS = (
    f"--set=podSecurityContext.runAsUser={ASSIGNED}",
    "--set=podSecurityContext.runAsGroup=null",
    f"--set=podSecurityContext.fsGroup={ASSIGNED}",
)
PARTS = ("gateway", "controller", "fold", "evaluate", "triton", "mlflow", "kafka")


@pytest.fixture
def assigned(absent: Release) -> Release:
    """The release as such a cluster runs it, with a sidecar in each pod that converts."""
    image = f"{absent.images.get('images.registry', '')}/headrace-gateway".lstrip("/")
    sidecar = {
        "name": "beside",
        "image": f"{image}:{absent.images['images.tag']}",
        "command": ["tini", "--", "sleep", "infinity"],
        "resources": {"requests": {"cpu": "1m"}, "limits": {"memory": "32Mi"}},
    }
    absent.install(*USERS, "--set-json", f"conversion.pod.sidecars={json.dumps([sidecar])}")
    return absent


def test_a_model_is_converted_and_served_by_a_user_without_a_name(
    assigned: Release, client: ClientPod
) -> None:
    for part in PARTS:
        (pod, *_) = assigned.pods(part)
        said = assigned.cluster.kubectl("exec", pod["metadata"]["name"], "--", "id")
        assert f"uid={ASSIGNED} gid=0(root)" in said, part
    register(assigned, client)
    served = until_serving(assigned)  # the Job ends, although its sidecar does not by itself
    assert until_answered(assigned, client)["version"] == served
