"""MLflow's webhooks over a real socket: a valid one wakes, nothing else does."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_servers import MlflowProcess
from waiting import until

from registry.mlflow import webhook
from registry.mlflow.client import MlflowConnection
from registry.mlflow.webhook import WebhookEntry, WebhookListener, model_of, sign, verify

SECRET, NOW = "s3cret", 1_700_000_000.0
BODY = b'{"entity": "model_version", "action": "created", "data": {"name": "tone"}}'


def headers(body: bytes = BODY, *, secret: str = SECRET, at: float = NOW) -> dict[str, str]:
    return {
        webhook.DELIVERY_ID: "d-1",
        webhook.TIMESTAMP: str(int(at)),
        webhook.SIGNATURE: sign(secret, "d-1", str(int(at)), body),
    }


@pytest.mark.real
@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_the_signature_is_the_one_that_mlflow_makes() -> None:
    from mlflow.webhooks.delivery import _generate_hmac_signature

    made = _generate_hmac_signature(SECRET, "d-1", "1700000000", BODY.decode())
    assert made == headers()[webhook.SIGNATURE]


def test_a_signed_and_fresh_one_is_valid() -> None:
    assert verify(headers(), BODY, [SECRET], NOW) is HTTPStatus.NO_CONTENT


def test_while_a_secret_is_changed_both_are_taken() -> None:
    for secret in ("new", SECRET):
        assert verify(headers(secret=secret), BODY, ["new", SECRET], NOW) is HTTPStatus.NO_CONTENT
    assert verify(headers(), BODY, ["new"], NOW) is HTTPStatus.UNAUTHORIZED


@pytest.mark.parametrize("at", [NOW - 301, NOW + 301])
def test_an_old_or_future_one_is_refused(at: float) -> None:
    assert verify(headers(at=at), BODY, [SECRET], NOW) is HTTPStatus.UNAUTHORIZED


@given(st.binary(max_size=40), st.text(max_size=20), st.text(max_size=60))
def test_no_other_body_timestamp_or_signature_passes(
    body: bytes, timestamp: str, signature: str
) -> None:
    for changed in (
        verify(headers(), body, [SECRET], NOW) if body != BODY else None,
        verify({**headers(), webhook.TIMESTAMP: timestamp}, BODY, [SECRET], NOW),
        verify({**headers(), webhook.SIGNATURE: signature}, BODY, [SECRET], NOW),
        verify(headers(secret="another"), BODY, [SECRET], NOW),
        verify({}, BODY, [SECRET], NOW),
    ):
        assert changed in (None, HTTPStatus.UNAUTHORIZED)


@pytest.mark.parametrize("secrets", [[], [""], [SECRET, ""]])
def test_a_listener_without_a_secret_is_refused(secrets: list[str]) -> None:
    with pytest.raises(ValueError, match="webhook-secret-file"):
        WebhookListener(secrets, print)


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (BODY, "tone"),
        (b'{"entity": "registered_model", "data": {"name": "a b"}}', "a b"),
        (b'{"entity": "model_version_alias", "data": {"name": "m", "alias": "x"}}', "m"),
        (b'{"entity": "model_version", "workspace": "a", "data": {"name": "m"}}', "a/m"),
        (b'{"entity": "model_version", "workspace": 3, "data": {"name": "m"}}', "m"),
        (b'{"entity": "prompt", "workspace": "a", "data": {"name": "m"}}', "a/"),
        (b'{"entity": "prompt", "data": {"name": "m"}}', ""),
        (b'{"entity": "model_version", "data": {"name": 3}}', ""),
        (b'{"entity": "model_version", "data": []}', ""),
        (b'{"entity": "model_version"}', ""),
        (b"[1]", ""),
        (b"\xff{", ""),
        (b"[" * 100_000, ""),
    ],
)
def test_the_model_that_a_webhook_names_is_all_that_is_read_of_it(body: bytes, model: str) -> None:
    assert model_of(body) == model


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda of: (
            st.dictionaries(st.sampled_from(["entity", "data", "name", "workspace"]), of)
            | st.lists(of)
        ),
    )
)
def test_no_body_is_too_strange_to_name_a_model_or_none(told: object) -> None:
    assert isinstance(model_of(json.dumps(told).encode()), str)


class WebhookHarness:
    def __init__(self) -> None:
        self.announced: list[str] = []
        self.port = 0

    async def send(self, raw: bytes) -> str:
        """The status line of the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(raw)
        writer.write_eof()
        line = await reader.readline()
        writer.close()
        return line.decode().strip()


@pytest.fixture
async def harness() -> AsyncIterator[WebhookHarness]:
    made = WebhookHarness()
    listener = WebhookListener([SECRET], made.announced.append, now=lambda: NOW)
    async with await listener.serve(0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made


def raw(told: dict[str, str], body: bytes = BODY) -> bytes:
    lines = [f"{name.title()}: {value}" for name, value in told.items()]
    head = ["POST /hook HTTP/1.1", *lines, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


async def test_a_valid_webhook_announces_its_model(harness: WebhookHarness) -> None:
    assert await harness.send(raw(headers())) == "HTTP/1.1 204 No Content"
    assert harness.announced == ["tone"]


async def test_beyond_sixteen_connections_a_webhook_is_to_come_again(
    harness: WebhookHarness,
) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", harness.port) for _ in range(16)]
    assert await harness.send(raw(headers())) == "HTTP/1.1 503 Service Unavailable"
    for _, writer in idle:
        writer.write_eof()
    for reader, writer in idle:
        await reader.read()
        writer.close()
    assert await harness.send(raw(headers())) == "HTTP/1.1 204 No Content"
    assert harness.announced == ["tone"]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (raw(headers(secret="another")), "401"),
        (b"GET / HTTP/1.1\r\n\r\n", "405"),
        (b"POST / HTTP/1.1\r\n\r\n", "411"),
        (b"POST / HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", "411"),
        (b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", "411"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", "413"),
        (b"POST / HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", "431"),
        (b"\x00\xff\r\n\r\n", "405"),
        (b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc", ""),
        (b"", ""),
    ],
)
async def test_anything_else_is_refused_and_announces_nothing(
    harness: WebhookHarness, sent: bytes, status: str
) -> None:
    answer = await harness.send(sent)
    assert answer.split(" ")[1:2] == ([status] if status else [])
    assert harness.announced == []


@pytest.mark.real
async def test_what_mlflow_delivers_of_a_new_version_and_of_an_alias_names_the_model(
    new_mlflow: MlflowProcess,
) -> None:
    announced: asyncio.Queue[str] = asyncio.Queue()
    listener = await WebhookListener(["new", SECRET], announced.put_nowait).serve(0)
    port = listener.sockets[0].getsockname()[1]
    mlflow = MlflowConnection(new_mlflow.url, timeout_seconds=60)
    url = f"http://127.0.0.1:{port}/"
    keeping = asyncio.create_task(WebhookEntry(url, SECRET).keep(mlflow))
    async with listener:
        listed = partial(mlflow.ask, lambda client: client.list_webhooks())
        await asyncio.to_thread(until, "an entry in MLflow", 60, listed)
        keeping.cancel()

        def register(client: Any) -> None:
            run = client.create_run("0")
            client.create_registered_model("tone")
            client.create_model_version("tone", f"{run.info.artifact_uri}/m", run.info.run_id)
            client.set_registered_model_alias("tone", "champion", "1")

        await mlflow.ask_in_time(register)
        for _ in range(3):
            assert await asyncio.wait_for(announced.get(), 60) == "tone"


@pytest.mark.real
async def test_mlflow_has_one_entry_and_is_told_the_secret_of_now(
    new_mlflow: MlflowProcess,
) -> None:
    mlflow = MlflowConnection(new_mlflow.url, timeout_seconds=60)
    for secret in ("first", "second"):
        entry = WebhookEntry("http://headrace-controller.space.svc:9304/", secret)
        await mlflow.ask_in_time(entry.renew)
        await mlflow.ask_in_time(entry.restore)
    (found,) = await mlflow.ask_in_time(lambda client: list(client.list_webhooks()))
    assert found.name == "headrace-headrace-controller.space.svc-9304"
    assert {str(event) for event in found.events} == set(webhook.EVENTS)
