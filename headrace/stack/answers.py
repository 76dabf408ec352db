"""Waits until endpoints answer through every gateway, and says what they are waiting for.

It reads endpoint files and asks the gateways; it changes nothing.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from contracts.endpoint import EndpointStatus, ModelEndpoint, Phase
from contracts.waiting import describe_wait
from headrace.stack.state import Home

if TYPE_CHECKING:
    import httpx

_POLL_SECONDS = 0.2
_REQUEST_SECONDS = 5.0


def read(home: Home) -> dict[str, ModelEndpoint]:
    """Every endpoint of the home by name; one that can't be read now is left out."""
    found: dict[str, ModelEndpoint] = {}
    for path in sorted(home.endpoints.glob("*.json")):
        try:
            endpoint = ModelEndpoint.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            continue
        found[endpoint.name] = endpoint
    return found


def list_served(home: Home) -> set[str]:
    """Names of the endpoints that have a version to answer with."""
    return {name for name, endpoint in read(home).items() if endpoint.status.stable is not None}


def describe_newest(status: EndpointStatus) -> tuple[str, str]:
    """Where an endpoint's newest version is on its way, in a few words, and why."""
    candidate = status.candidate
    if candidate is not None:
        return f"version {candidate.version} {candidate.phase.value}", candidate.reason
    if status.stable is not None:
        return f"version {status.stable.version} {Phase.SERVING.value}", ""
    if status.rejected:
        last = status.rejected[-1]
        return f"version {last.version} {last.phase.value}", last.reason
    return Phase.WAITING.value, describe_wait(status, status.waits[0]) if status.waits else ""


def in_words(status: EndpointStatus) -> str:
    """Where an endpoint's newest version is on its way, with the reason."""
    where, why = describe_newest(status)
    return f"{where}: {why}" if why else where


async def wait(
    gateway_urls: Sequence[str],
    home: Home,
    names: set[str],
    note: Callable[[str], None],
    *,
    within_seconds: float,
) -> dict[str, str]:
    """Waits until every endpoint of ``names`` answers a prediction at every gateway.

    Gives the reason for each that did not in time.
    """
    left = dict.fromkeys(sorted(names), Phase.WAITING.value)
    silent = {name: list(gateway_urls) for name in names}
    deadline = time.monotonic() + within_seconds
    import httpx  # noqa: PLC0415 - an eighth of a second, which others need not pay

    async with httpx.AsyncClient(timeout=_REQUEST_SECONDS, trust_env=False) as client:
        while left:  # at least one look, however slow the machine
            endpoints = read(home)
            for name in tuple(left):
                silent[name] = [
                    url for url in silent[name] if not await _answers(client, url, name)
                ]
                if not silent[name]:
                    del left[name]
                elif name in endpoints:
                    left[name] = in_words(endpoints[name].status)
            if all(_can_not_serve(endpoints.get(name)) for name in left):
                break
            if time.monotonic() >= deadline:
                break
            note("; ".join(f"{name} {text}" for name, text in left.items()))
            await asyncio.sleep(_POLL_SECONDS)
    return left


def _can_not_serve(endpoint: ModelEndpoint | None) -> bool:
    """Whether waiting is vain: its only version was rejected."""
    if endpoint is None:
        return False
    status = endpoint.status
    candidate = status.candidate
    on_its_way = candidate is not None and candidate.phase is not Phase.REJECTED
    return status.stable is None and bool(status.rejected) and not on_its_way


async def _answers(client: "httpx.AsyncClient", gateway: str, name: str) -> bool:
    """Whether a prediction is answered; asks for one only if the gateway says that it can.

    What it refused would stand among the endpoint's refusals, before its first caller came.
    """
    import httpx  # noqa: PLC0415

    try:
        answer = await client.get(f"{gateway}/v2/models/{name}/ready")
        if answer.status_code == httpx.codes.OK:
            text = {"inputs": "Does it answer?"}
            answer = await client.post(f"{gateway}/endpoints/{name}", json=text)
    except httpx.HTTPError:
        return False
    # A gateway that asks for a key answers as well as we can tell without one.
    return answer.status_code in {httpx.codes.OK, httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}
