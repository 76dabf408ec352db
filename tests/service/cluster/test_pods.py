"""Which of an installation's pods are not well, in the words of the kubelet and the scheduler."""

from datetime import UTC, datetime
from typing import Any

import pytest
from fake_kubernetes import NAMESPACE, Fake

from service.cluster import pods
from service.cluster.errors import ApiRefusedError

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC).timestamp()
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"


def pod(name: str, *, ready: bool = True, ours: bool = True, **status: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": "gateway"}
    if ours:
        labels["app.kubernetes.io/part-of"] = "headrace"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"phase": "Running", "conditions": conditions, **status},
    }


def container(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "gateway", "ready": False, **more}]


def of(fake: Fake, *items: dict[str, Any]) -> dict[str, pods.Pod]:
    for item in items:
        fake.write(PODS, item)
    return {each.name: each for each in pods.of_installation(fake.client(), NAMESPACE, NOW)}


def failed_mount(of: str, message: str, at: str = "2026-11-23T11:58:00Z") -> dict[str, Any]:
    return {
        "metadata": {"name": f"{of}.{at}"},
        "involvedObject": {"kind": "Pod", "name": of},
        "reason": "FailedMount",
        "message": message,
        "lastTimestamp": at,
    }


CREATING: dict[str, Any] = {
    "containerStatuses": container(state={"waiting": {"reason": "ContainerCreating"}})
}


def test_a_secret_that_a_pod_waits_for_is_named(fake: Fake) -> None:
    missing = 'MountVolume.SetUp failed for volume "keys" : secret "gone" not found'
    fake.write(EVENTS, failed_mount("a", missing))
    fake.write(EVENTS, failed_mount("a", "of before", at="2026-11-23T11:50:00Z"))
    fake.write(EVENTS, failed_mount("c", "of one that is well again"))
    found = of(fake, pod("a", ready=False, **CREATING), pod("b", ready=False, **CREATING), pod("c"))
    assert found["a"].said == f"gateway: ContainerCreating; {missing}"
    assert found["b"].said == "gateway: ContainerCreating"
    assert found["c"].said == ""


def test_events_that_may_not_be_read_are_left_out(fake: Fake) -> None:
    fake.refuse(f"GET {EVENTS}", 403)
    found = of(fake, pod("a", ready=False, **CREATING))
    assert found["a"].said == "gateway: ContainerCreating"


def test_pods_of_others_and_those_that_have_ended_are_left_out(fake: Fake) -> None:
    ending = pod("c")
    ending["metadata"]["deletionTimestamp"] = "2026-11-23T11:59:00Z"
    found = of(fake, pod("a"), pod("b", ours=False), ending, pod("d", phase="Succeeded"))
    assert found == {"a": pods.Pod("a", "gateway", ready=True)}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            {"containerStatuses": container(state={"waiting": {"reason": "CrashLoopBackOff"}})},
            "gateway: CrashLoopBackOff",
        ),
        (
            {
                "initContainerStatuses": container(
                    state={"waiting": {"reason": "ImagePullBackOff", "message": "no such\nimage"}}
                )
            },
            "gateway: ImagePullBackOff (no such)",
        ),
        (
            {
                "containerStatuses": container(
                    state={"terminated": {"reason": "OOMKilled", "exitCode": 137}}
                )
            },
            "gateway: OOMKilled, exit code 137",
        ),
        ({}, "its phase is Running"),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "message": "0/1 nodes are available",
                    }
                ],
            },
            "not placed on a node: 0/1 nodes are available",
        ),
        (
            {
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "False",
                        "message": "containers with unready status",
                    }
                ]
            },
            "containers with unready status",
        ),
    ],
)
def test_a_pod_that_is_not_ready_says_why(fake: Fake, status: dict[str, Any], said: str) -> None:
    found = of(fake, pod("a", ready=False, **status))
    assert found["a"] == pods.Pod("a", "gateway", ready=False, said=said)


def test_a_restart_is_told_for_ten_minutes_also_where_the_pod_is_ready_again(fake: Fake) -> None:
    def ended(at: str) -> list[dict[str, Any]]:
        before = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": at}
        return container(state={"running": {}}, lastState={"terminated": before})

    found = of(
        fake,
        pod("lately", containerStatuses=ended("2026-11-23T11:51:00Z")),
        pod("long-ago", containerStatuses=ended("2026-11-23T11:49:00Z")),
    )
    assert found["lately"].ready
    assert found["lately"].said == "gateway was restarted after OOMKilled, exit code 137"
    assert not found["long-ago"].said


def test_a_page_that_the_account_may_not_ask_is_a_refusal_with_its_status(fake: Fake) -> None:
    of(fake, pod("a"))
    fake.refuse(f"GET {PODS}/a/portforward", 403)
    with pytest.raises(ApiRefusedError) as refused:
        pods.page(fake.client(), NAMESPACE, "a", 9310, "/readyz", seconds=60)
    assert refused.value.status == 403


def test_a_page_that_cannot_be_asked_is_an_error_of_the_system(fake: Fake) -> None:
    of(fake, pod("a"))
    with pytest.raises(OSError, match="does not answer"):  # the answer is no WebSocket
        pods.page(fake.client(), NAMESPACE, "a", 9310, "/readyz", seconds=60)
