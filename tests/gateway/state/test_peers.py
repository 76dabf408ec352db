"""How many gateways there are is known to each, and stays known while its source is away."""

import asyncio
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from fake_kubernetes import NAMESPACE, fake_kubernetes

from gateway.admission.rate_limits import RateLimits
from gateway.settings import Settings
from gateway.state.peers import (
    LIVE_SECONDS,
    LOOPBACK,
    SERVICE,
    HeartbeatFolder,
    Peers,
    ReadyPods,
    follow,
    peer_source,
    serving_pods,
    slices,
)
from gateway.state.sources import ClusterSource
from service.cluster.errors import AccessError
from service.cluster.mirror import CollectionMirror

SLICES = slices(NAMESPACE, "headrace-gateway")


class Clock:
    """Unix time, as that of files, with what a test adds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


def gateways(folder: Path, clock: Clock, count: int) -> list[HeartbeatFolder]:
    return [HeartbeatFolder(folder, f"g{number}", clock=clock) for number in range(count)]


def test_gateways_of_one_folder_count_each_other(tmp_path: Path) -> None:
    clock = Clock()
    three = gateways(tmp_path / "gateways", clock, 3)
    assert [each.beat().gateways for each in three] == [1, 2, 3]
    assert [each.beat().gateways for each in three] == [3, 3, 3]
    three[1].leave()
    assert three[0].beat(7001) == Peers(2)  # the other one hears nothing,
    assert three[2].beat(7003) == Peers(2, frozenset({(LOOPBACK, 7001)}))
    assert three[0].beat(7001) == Peers(2, frozenset({(LOOPBACK, 7003)}))  # and now it does


def test_one_that_was_killed_is_counted_no_longer_after_a_while(tmp_path: Path) -> None:
    clock = Clock()
    killed, other = gateways(tmp_path, clock, 2)
    assert (killed.beat().gateways, other.beat().gateways) == (1, 2)
    clock.ahead = LIVE_SECONDS + 1
    assert other.beat().gateways == 1
    clock.ahead = 3600
    other.beat()
    assert names(tmp_path) == ["g1.beat"]


def test_while_the_folder_is_away_the_last_number_stays(tmp_path: Path) -> None:
    folder, away = tmp_path / "gateways", tmp_path / "away"
    one, two = gateways(folder, Clock(), 2)
    assert (one.beat().gateways, two.beat().gateways) == (1, 2)
    folder.rename(away)
    folder.write_text("no folder")
    assert two.beat().gateways == 2
    folder.unlink()
    away.rename(folder)
    assert two.beat().gateways == 2
    one.leave()
    assert two.beat().gateways == 1


@pytest.mark.parametrize("content", [b"", b"0", b"\xff\xfe", b"9" * 9000, b"70000", b"-1"])
def test_a_gateway_that_says_no_port_is_counted_all_the_same(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "older.beat").write_bytes(content)
    assert HeartbeatFolder(tmp_path, "mine").beat(7001) == Peers(2)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_gateway_that_stops_leaves_nothing_behind(tmp_path: Path) -> None:
    limits, told = RateLimits(), asyncio.Event()

    def share(peers: Peers) -> None:
        limits.share(peers.gateways)
        told.set()

    HeartbeatFolder(tmp_path, "other").beat()
    task = asyncio.create_task(follow(HeartbeatFolder(tmp_path, "mine"), 7001, share))
    async with asyncio.timeout(60):
        await told.wait()
    assert limits.gateways == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert names(tmp_path) == ["other.beat"]


def _conditions(ready: bool | str | None) -> dict[str, bool]:
    if ready == "ends":
        return {"ready": False, "serving": True, "terminating": True}
    return {} if ready is None else {"ready": bool(ready), "serving": bool(ready)}


def slice_of(
    name: str, *pods: tuple[str, bool | str | None], service: str = "headrace-gateway"
) -> Any:
    return {
        "metadata": {"name": name, "labels": {SERVICE: service}},
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": [f"{name}-{uid}" if name.startswith("v4") else f"{name}::{uid}"],
                "conditions": _conditions(ready),
                "targetRef": {"kind": "Pod", "uid": uid},
            }
            for uid, ready in pods
        ],
    }


async def test_ready_pods_of_the_service_are_counted_once_each_and_those_that_end_are_heard() -> (
    None
):
    with fake_kubernetes() as fake:
        fake.write(
            SLICES.path, slice_of("v4", ("a", True), ("b", None), ("c", False), ("z", "ends"))
        )
        fake.write(SLICES.path, slice_of("v6", ("a", True), ("b", True)))
        fake.write(SLICES.path, slice_of("other", ("x", True), service="mlflow"))
        mirror = CollectionMirror(fake.pod_reader(), SLICES, serving_pods)
        async with (
            asyncio.timeout(60),
            aclosing(ReadyPods(ClusterSource(mirror)).watch(9310)) as watch,
        ):
            # Of a pod with addresses of both families that of IPv4.
            assert await anext(watch) == Peers(2, frozenset((f"v4-{pod}", 9310) for pod in "abz"))
            fake.go_away()
            fake.write(SLICES.path, slice_of("v4-more", ("d", True), ("e", True)))
            fake.come_back()
            assert (await anext(watch)).gateways == 4


def test_what_is_no_slice_is_said_to_be_none() -> None:
    assert serving_pods({"metadata": {"name": "empty"}, "endpoints": None}) == frozenset()
    with pytest.raises(ValueError, match="no EndpointSlice"):
        serving_pods({"metadata": {"name": "odd"}, "endpoints": [{"addresses": []}]})


def test_a_place_in_a_cluster_needs_a_service() -> None:
    with pytest.raises(AccessError, match="names no Service"):
        peer_source(Settings(peers="kubernetes://models"), {}, "mine")


def test_on_one_machine_gateways_meet_in_their_home(tmp_path: Path) -> None:
    source = peer_source(Settings(home=str(tmp_path)), {}, "mine")
    assert isinstance(source, HeartbeatFolder)
    source.beat()
    assert (tmp_path / "gateways" / "mine.beat").exists()
