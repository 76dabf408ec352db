"""One key, one arm: over four gateway processes, a restart and a whole rollout."""

import asyncio
import math
import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from gateway_process import Running, gateway_at, lay_out, put
from gateway_world import endpoint_of

from contracts.endpoint import Arm, EndpointLimits, ModelEndpoint

GATEWAYS = 4
BODY = b'{"inputs": "w1"}'
LENGTH = re.compile(rb"(?i)content-length: (\d+)")
VERSION = re.compile(rb"(?i)x-headrace-version: (\S+)")


async def versions_of(gateway: Running, keys: list[str], connections: int = 8) -> list[str]:
    """Which version answers each caller, asked over some connections; plain, for there are many."""
    host, port = gateway.http.base_url.host, gateway.http.base_url.port
    shares = await asyncio.gather(
        *(ask(host, port, keys[start::connections]) for start in range(connections))
    )
    found: list[str] = [""] * len(keys)
    for start, share in enumerate(shares):
        found[start::connections] = share
    return found


async def ask(host: str, port: int | None, keys: list[str]) -> list[str]:
    reader, writer = await asyncio.open_connection(host, port)
    versions: list[str] = []
    try:
        while len(versions) < len(keys):
            writer.write(
                b"POST /endpoints/sentiment HTTP/1.1\r\nhost: gateway\r\ncontent-length: %d\r\n"
                b"content-type: application/json\r\nx-headrace-key: %s\r\n\r\n%s"
                % (len(BODY), keys[len(versions)].encode(), BODY)
            )
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(int(LENGTH.findall(head)[0]))
            if head.startswith(b"HTTP/1.1 503 ") and b"overloaded" in body:
                continue  # on a busy machine; no version was asked
            assert head.startswith(b"HTTP/1.1 200 "), (head, body)
            versions.append(VERSION.findall(head)[0].decode())
    finally:
        writer.close()
        await writer.wait_closed()
    return versions


def with_the_new(keys: list[str], versions: list[str]) -> set[str]:
    return {key for key, version in zip(keys, versions, strict=True) if version == "2"}


async def followed(gateways: list[Running], endpoint: ModelEndpoint) -> None:
    """Waits until every gateway routes as the endpoint says."""
    wanted = {f"{r.arm} {r.ref.triton_model} {r.weight:g} %" for r in endpoint.status.routes}

    def as_wanted(entry: dict[str, object]) -> bool:
        routes = entry["routes"]
        return isinstance(routes, dict) and set(routes["sentiment"]) == wanted

    for gateway in gateways:
        await gateway.line("routing table renewed", as_wanted)


async def walk(home: Path, keys: list[str]) -> None:
    """A rollout from nothing to its bake; every key asked of every gateway at every step."""
    one, two = lay_out(home, "1", "2")
    patient = EndpointLimits(timeout_seconds=60)
    stages = [
        *(
            endpoint_of(one, canary=two, weight=w, rollout="r-1", limits=patient)
            for w in (5, 25, 50)
        ),
        endpoint_of(two, control=one, weight=5, rollout="r-1", limits=patient),
    ]
    met: list[set[str]] = []
    async with AsyncExitStack() as stack:
        put(home, stages[0])
        gateways = [await stack.enter_async_context(gateway_at(home)) for _ in range(GATEWAYS)]
        for stage in stages:
            put(home, stage)
            await followed(gateways, stage)
            answers = await asyncio.gather(*(versions_of(gateway, keys) for gateway in gateways))
            assert all(answer == answers[0] for answer in answers[1:])
            met.append(
                {key for key, version in zip(keys, answers[0], strict=True) if version == "2"}
            )
        # One of them is killed, and its successor knows nothing but the endpoint.
        gateways[0].process.kill()
        successor = await stack.enter_async_context(gateway_at(home))
        await followed([successor], stages[-1])
        again = await versions_of(successor, keys)
        assert with_the_new(keys, again) == met[-1]
    assert met[0] < met[1] < met[2] < met[3]
    for callers, share in zip(met, (0.05, 0.25, 0.5, 0.95), strict=True):
        # Four standard deviations of a binomial; the keys are the same in every run.
        error = 4 * math.sqrt(len(keys) * share * (1 - share))
        assert abs(len(callers) - share * len(keys)) <= error
    assert Arm.CONTROL in {route.arm for route in stages[-1].status.routes}


@pytest.mark.real
async def test_a_key_has_one_arm_over_four_gateways_a_restart_and_a_rollout(tmp_path: Path) -> None:
    await walk(tmp_path, [f"caller-{number}" for number in range(500)])


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_a_hundred_thousand_keys_have_one_arm_each(tmp_path: Path) -> None:
    await walk(tmp_path, [f"caller-{number}" for number in range(100_000)])
