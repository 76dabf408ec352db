"""A model that nobody asks for, as the chart installs it: two gateways and two Tritons.

It leaves both Tritons, no pod becomes unready for it, and it comes back with its next callers.
Whether a Triton holds it is Triton's own word. A cluster whose network keeps to NetworkPolicies
shows with it that the chart's let gateways reach loaders.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from cluster_walk import (
    MODEL,
    TEXT,
    apply,
    endpoint_url,
    register,
    stable,
    until_answered,
    until_serving,
)
from real_cluster import ClientPod, Release, until
from running_stack import PATIENT

from contracts.model import ModelRef

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

PODS = ("gateway", "triton")
SLEEPS = (
    "--set=triton.idleSeconds=60",  # the least
    "--set=triton.replicas=2",
    "--set=controller.keepSeconds=0",  # or what an earlier test promoted would keep it awake
)
ASLEEP_SECONDS = 240.0  # the least idle time, and what loaders, controller and Tritons need
HELD_SECONDS = 180.0
CALLERS = 4  # of each URL

# Triton's word, from its own pod: to others it speaks as its network policy lets it.
_HOLDS = """
import sys, urllib.error, urllib.request

try:
    urllib.request.urlopen(f"http://127.0.0.1:8000/v2/models/{sys.argv[1]}/ready", timeout=10)
    print("yes")
except urllib.error.HTTPError as error:
    assert error.code == 400, error
    print("no")
"""
_READY = """
import json, sys
import httpx

print(json.dumps({url: httpx.get(url, timeout=30).status_code for url in sys.argv[1:]}))
"""
_ASK_AT_ONCE = """
import asyncio, json, sys, time
import httpx

async def ask(client, url):
    begun = time.monotonic()
    answer = await client.post(url, json={"inputs": sys.argv[1]})
    seconds = time.monotonic() - begun
    return {"status": answer.status_code, "body": answer.json(), "seconds": seconds}

async def main():
    single = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=90, limits=single) as client:
        urls = [url for url in sys.argv[3:] for _ in range(int(sys.argv[2]))]
        print(json.dumps(await asyncio.gather(*(ask(client, url) for url in urls))))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def sleepy(chart: Release, client: ClientPod) -> Iterator[Release]:
    """The release whose models may sleep, and as other tests expect it again afterwards."""
    chart.install(*SLEEPS)
    if stable(chart) is None:
        register(chart, client)
    until_serving(chart)
    apply(chart, PATIENT)
    yield chart
    chart.install()


@pytest.fixture
def awake(sleepy: Release, client: ClientPod) -> Mapping[str, Any]:
    """What a caller is answered; two of each pod are ready, and both Tritons hold the model."""
    for component in PODS:
        until_two(sleepy, component)
    answer = until_answered(sleepy, client)
    until("both Tritons hold the model", HELD_SECONDS, lambda: holding(sleepy) == [True, True])
    return answer


def until_two(release: Release, component: str) -> None:
    """Waits until a component has two pods, ready, and none on its way out."""
    release.until_ready(component)
    until(f"two pods of {component}", 120, lambda: len(release.pods(component)) == 2)


def name_in_triton(release: Release) -> str:
    """Triton's name of the version that gets callers."""
    (route,) = release.cluster.get("mep", MODEL)["status"]["routes"]
    return ModelRef.model_validate(route["ref"]).triton_model


def holding(release: Release) -> list[bool]:
    """Whether each Triton holds the model, as it says itself."""
    model, program = name_in_triton(release), ("python3", "-I", "-S", "-")
    return [
        release.cluster.kubectl(
            "exec", "-i", pod["metadata"]["name"], "-c", "triton", "--", *program, model,
            given=_HOLDS,
        ).strip() == "yes"
        for pod in release.pods("triton")
    ]  # fmt: skip


def until_asleep(release: Release) -> None:
    """Waits until the status says that the model sleeps, and then until no Triton holds it."""
    began = time.monotonic()
    try:
        until(f"{MODEL} sleeps", ASLEEP_SECONDS, lambda: "asleep" in status(release))
        print(f"asleep by its status after {time.monotonic() - began:.0f} s")
        until("no Triton holds it", ASLEEP_SECONDS, lambda: holding(release) == [False, False])
    except AssertionError as error:
        said = f"{status(release)}\n{release.cluster.trouble()}"
        raise AssertionError(f"{error}\n{said}") from error
    print(f"out of both Tritons after {time.monotonic() - began:.0f} s")


def status(release: Release) -> dict[str, Any]:
    """The endpoint's status, without what is null."""
    said = release.cluster.get("mep", MODEL)["status"]
    return {name: value for name, value in said.items() if value is not None}


def ready_condition(release: Release) -> tuple[str, str]:
    """Whether the endpoint is ready, and the reason."""
    conditions = status(release)["conditions"]
    found = next(each for each in conditions if each["type"] == "Ready")
    return found["status"], found["reason"]


def standing(release: Release) -> dict[str, tuple[str, str, int]]:
    """Whether each pod is ready, since when, and how often a container of it was restarted."""
    said = {}
    for pod in [pod for component in PODS for pod in release.pods(component)]:
        ready = next(each for each in pod["status"]["conditions"] if each["type"] == "Ready")
        restarts = sum(each["restartCount"] for each in pod["status"]["containerStatuses"])
        name = str(pod["metadata"]["name"])
        said[name] = (ready["status"], ready["lastTransitionTime"], restarts)
    return said


def readiness(release: Release, client: ClientPod) -> dict[str, int]:
    """What gateways and loaders answer to the question of whether they are ready, now."""
    ports = {"gateway": 9310, "triton": 9303}
    urls = [
        f"http://{address}:{port}/readyz"
        for component, port in ports.items()
        for address in release.addresses(component)
    ]
    return dict(json.loads(client.python(_READY, *urls)))


def ask_at_once(release: Release, client: ClientPod) -> list[Mapping[str, Any]]:
    """Callers of the Service, and of each gateway, all at the same time."""
    path = f"/endpoints/{MODEL}"
    each_gateway = [f"http://{address}:8080{path}" for address in release.addresses("gateway")]
    urls = [endpoint_url(release), *each_gateway]
    assert len(urls) == 3
    answers = json.loads(client.python(_ASK_AT_ONCE, TEXT, str(CALLERS), *urls, seconds=150))
    waited = [f"{each['seconds']:.2f}" for each in answers]
    print(f"{len(waited)} callers of a model that slept waited (seconds): {' '.join(waited)}")
    return list(answers)


def assert_it_comes_back(release: Release, client: ClientPod, before: Mapping[str, Any]) -> None:
    """All who ask at once are answered as before, and both Tritons hold the model again."""
    answers = ask_at_once(release, client)
    assert [each["status"] for each in answers] == [200] * 3 * CALLERS, answers
    assert all(each["body"] == before["body"] for each in answers), (before, answers)
    until("both Tritons hold it again", HELD_SECONDS, lambda: holding(release) == [True, True])
    serves = ("True", "Serving")
    until("the status says that it serves", 60, lambda: ready_condition(release) == serves)
    assert "asleep" not in status(release)


def test_a_model_leaves_both_tritons_and_comes_back_with_callers_of_both_gateways(
    sleepy: Release, client: ClientPod, awake: Mapping[str, Any]
) -> None:
    pods = standing(sleepy)
    assert [ready for ready, _, _ in pods.values()] == ["True"] * 4
    until_asleep(sleepy)
    assert ready_condition(sleepy) == ("True", "Asleep")
    assert set(readiness(sleepy, client).values()) == {200}
    assert standing(sleepy) == pods
    assert_it_comes_back(sleepy, client, awake)
    # No pod was unready for a moment: each is ready since when it was.
    assert standing(sleepy) == pods


def test_pods_that_start_while_it_sleeps_are_ready_and_have_it_come_back(
    sleepy: Release, client: ClientPod, awake: Mapping[str, Any]
) -> None:
    until_asleep(sleepy)
    before = standing(sleepy)
    for component in PODS:
        sleepy.delete_one_pod(component)
        until_two(sleepy, component)
    now = standing(sleepy)
    stayed = now.keys() & before.keys()
    assert (len(now), len(stayed)) == (4, 2)
    assert {name: now[name] for name in stayed} == {name: before[name] for name in stayed}
    assert set(readiness(sleepy, client).values()) == {200}
    assert holding(sleepy) == [False, False]
    assert ready_condition(sleepy) == ("True", "Asleep")
    assert_it_comes_back(sleepy, client, awake)
