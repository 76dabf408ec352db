"""Pages in browsers may ask if an operator allows their origin, and no other page is told more."""

import json
import socket
from contextlib import closing

import httpx
import pytest
from front_fakes import Behind, FakeKeys, FakePredictor, asked, client_of
from front_server import Served, serving

from gateway.errors import OverloadedError

PAGE = "https://shop.example.com"
PATH = "/endpoints/sentiment"
GOOD = {"inputs": "a good film"}
PREFLIGHT = {
    "origin": PAGE,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
}


def said(answer: httpx.Response) -> dict[str, str]:
    """The headers for browsers."""
    return {
        name: value
        for name, value in answer.headers.items()
        if name.startswith("access-control") or name == "vary"
    }


READABLE = {
    "access-control-allow-origin": PAGE,
    "access-control-expose-headers": "*",
    "vary": "origin",
}


async def test_a_preflight_is_answered_without_a_key_a_route_or_a_look_at_the_load() -> None:
    behind = Behind(origins=(PAGE,), keys=FakeKeys({"secret": {"sentiment"}}))
    behind.predictor.draining = True
    for path in (PATH, "/v1/embeddings", "/nowhere"):
        answer = await asked(behind, "OPTIONS", path, headers=PREFLIGHT)
        assert (answer.status_code, answer.content) == (204, b"")
        assert said(answer) == {
            "access-control-allow-origin": PAGE,
            "access-control-allow-methods": "DELETE, GET, POST",
            "access-control-allow-headers": "authorization, *",
            "access-control-max-age": "7200",
            "vary": "origin",
        }
    assert behind.predictor.calls == []
    assert behind.recorder.refusals == []
    assert behind.metrics.finished == [("none", 204)] * 3


@pytest.mark.parametrize("path", [PATH, "/endpoints/nowhere", "/nowhere"])
@pytest.mark.parametrize("body", [GOOD, {"inputs": 3}])
async def test_answers_and_refusals_can_be_read_by_the_page(path: str, body: object) -> None:
    answer = await asked(Behind(origins=(PAGE,)), "POST", path, json=body, headers={"origin": PAGE})
    assert said(answer) == READABLE
    assert answer.headers["x-request-id"]


async def test_a_page_can_read_that_its_key_is_missing() -> None:
    behind = Behind(origins=(PAGE,), keys=FakeKeys({"secret": {"sentiment"}}))
    answer = await asked(behind, "POST", PATH, json=GOOD, headers={"origin": PAGE})
    assert (answer.status_code, said(answer)) == (401, READABLE)


@pytest.mark.parametrize(
    "origin", ["https://shop.example.com.evil.example", "http://shop.example.com", "null", "*", ""]
)
async def test_a_page_of_another_origin_is_told_nothing(origin: str) -> None:
    behind = Behind(origins=(PAGE,))
    answer = await asked(behind, "POST", PATH, json=GOOD, headers={"origin": origin})
    assert (answer.status_code, said(answer)) == (200, {"vary": "origin"})
    refused = await asked(behind, "OPTIONS", PATH, headers={**PREFLIGHT, "origin": origin})
    assert (refused.status_code, said(refused)) == (403, {"vary": "origin"})
    assert "allowed-origins" in refused.json()["error"]["message"]


async def test_any_page_may_read_what_needs_no_credentials_if_every_origin_is_allowed() -> None:
    async with client_of(Behind(origins=("*",))) as client:
        answer = await client.post(PATH, json=GOOD, headers={"origin": "null"})
        preflight = await client.options(PATH, headers=PREFLIGHT)
    for each in (answer, preflight):
        assert each.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in each.headers


async def test_a_request_that_no_page_makes_is_answered_as_ever() -> None:
    async with client_of(Behind(origins=(PAGE,))) as client:
        assert said(await client.post(PATH, json=GOOD)) == {}
        # A cache may keep it for a page, too.
        assert said(await client.get("/v1/models")) == {"vary": "origin"}
        assert (await client.options(PATH)).status_code == 405
        assert (await client.options(PATH, headers={"origin": PAGE})).status_code == 405


async def test_no_page_may_ask_unless_an_operator_says_so() -> None:
    behind = Behind()
    answer = await asked(behind, "POST", PATH, json=GOOD, headers={"origin": PAGE})
    preflight = await asked(behind, "OPTIONS", PATH, headers=PREFLIGHT)
    assert (said(answer), preflight.status_code, said(preflight)) == ({}, 405, {})


async def test_the_operations_port_answers_no_page() -> None:
    async with client_of(Behind(origins=(PAGE,)), operations=True) as client:
        assert said(await client.get("/metrics", headers={"origin": PAGE})) == {}
        assert (await client.options("/metrics", headers=PREFLIGHT)).status_code == 405


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
def test_a_connection_answers_a_page_too(*, full: bool) -> None:
    predictor = FakePredictor.with_endpoints()
    if full:
        predictor.full = OverloadedError("Full.", retry_after_seconds=2)
    body = json.dumps(GOOD).encode()
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\norigin: {PAGE}\r\ncontent-length: {len(body)}"
    with (
        serving(Served(predictor=predictor, origins=(PAGE,))) as served,
        closing(socket.create_connection(("127.0.0.1", served.port), timeout=60)) as connection,
    ):
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        answer = connection.recv(65_536).decode()
        assert answer.startswith("HTTP/1.1 503" if full else "HTTP/1.1 200")
        for name, value in READABLE.items():
            assert answer.count(f"\r\n{name}: {value}\r\n") == 1
        connection.sendall(
            "".join(
                [
                    f"OPTIONS {PATH} HTTP/1.1\r\nhost: x\r\n",
                    *(f"{name}: {value}\r\n" for name, value in PREFLIGHT.items()),
                    "\r\n",
                ]
            ).encode()
        )
        preflight = connection.recv(65_536).decode()
        assert preflight.startswith("HTTP/1.1 204")
        assert preflight.endswith("\r\n\r\n")
