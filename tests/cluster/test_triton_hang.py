"""A Triton whose models' processes were killed says that it lives, and answers nothing any more.

The loader beside it finds that by an inference, and Triton's liveness probe restarts it.
"""

from collections.abc import Iterator

import pytest
from cluster_load import go_on, load
from cluster_walk import endpoint_url, until_answered
from real_cluster import ClientPod, Release, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

RATE = 15.0
RESTARTED_SECONDS = 240.0
KILL = """
import os, pathlib, signal

for process in pathlib.Path("/proc").glob("[0-9]*"):
    program = (process / "cmdline").read_bytes().split(b"\\0")[0]
    if program.endswith(b"triton_python_backend_stub"):
        os.kill(int(process.name), signal.SIGKILL)
        print("killed", process.name)
"""


def kill_models(release: Release, pod: str) -> None:
    """Kills the processes that run the models of a Triton, and nothing else."""
    program = ("python3", "-I", "-S", "-")
    said = release.cluster.kubectl("exec", "-i", pod, "-c", "triton", "--", *program, given=KILL)
    assert "killed" in said


def restarts(release: Release, pod: str) -> int:
    """How often Triton's container in a pod was restarted."""
    statuses = release.cluster.get("pod", pod)["status"]["containerStatuses"]
    return next(int(each["restartCount"]) for each in statuses if each["name"] == "triton")


def until_restarted(release: Release, pod: str, before: int) -> None:
    until(
        f"the Triton of {pod} is restarted",
        RESTARTED_SECONDS,
        lambda: restarts(release, pod) > before,
    )
    release.until_ready("triton")


def a_triton(release: Release) -> str:
    return str(release.pods("triton")[0]["metadata"]["name"])


@pytest.fixture
def two_tritons(release: Release, served: str) -> Iterator[str]:
    release.scale("triton", 2)
    yield served
    release.scale("triton", 1)


def test_a_triton_whose_models_were_killed_answers_again_by_itself(
    release: Release, client: ClientPod, served: str
) -> None:
    until_answered(release, client)
    pod = a_triton(release)
    before = restarts(release, pod)
    kill_models(release, pod)
    until_restarted(release, pod, before)
    assert until_answered(release, client, 120)["version"] == served
    events = release.cluster.kubectl("events", f"--for=pod/{pod}", "--types=Warning")
    assert "has no process any more" in events


def test_no_caller_notices_while_another_triton_is_there(
    release: Release, client: ClientPod, two_tritons: str
) -> None:
    until_answered(release, client)
    with load(client, endpoint_url(release), RATE) as running:
        go_on(running, 30)
        pod = a_triton(release)
        before = restarts(release, pod)
        kill_models(release, pod)
        until_restarted(release, pod, before)
        go_on(running, 100)
        outcome = running.stop()
    assert outcome.failures == []
    assert outcome.served == {two_tritons}
