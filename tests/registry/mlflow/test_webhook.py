"""MLflow's webhooks over a real socket: a valid one wakes, nothing else does."""

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.stack.mlflow import MlflowProcess
from registry.mlflow import webhook
from registry.mlflow.webhook import WebhookListener, sign, verify

SECRET, NOW, BODY = "s3cret", 1_700_000_000.0, b'{"entity": "model_version"}'


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
    assert verify(headers(), BODY, SECRET, NOW) is HTTPStatus.NO_CONTENT


@pytest.mark.parametrize("at", [NOW - 301, NOW + 301])
def test_an_old_or_future_one_is_refused(at: float) -> None:
    assert verify(headers(at=at), BODY, SECRET, NOW) is HTTPStatus.UNAUTHORIZED


@given(st.binary(max_size=40), st.text(max_size=20), st.text(max_size=60))
def test_no_other_body_timestamp_or_signature_passes(
    body: bytes, timestamp: str, signature: str
) -> None:
    for changed in (
        verify(headers(), body, SECRET, NOW) if body != BODY else None,
        verify({**headers(), webhook.TIMESTAMP: timestamp}, BODY, SECRET, NOW),
        verify({**headers(), webhook.SIGNATURE: signature}, BODY, SECRET, NOW),
        verify(headers(secret="another"), BODY, SECRET, NOW),
        verify({}, BODY, SECRET, NOW),
    ):
        assert changed in (None, HTTPStatus.UNAUTHORIZED)


def test_a_listener_without_a_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="webhook-secret"):
        WebhookListener("", lambda: None)


class WebhookHarness:
    def __init__(self) -> None:
        self.woken = 0
        self.port = 0

    def wake(self) -> None:
        self.woken += 1

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
    listener = WebhookListener(SECRET, made.wake, now=lambda: NOW)
    async with await listener.serve(0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made


def raw(told: dict[str, str], body: bytes = BODY) -> bytes:
    lines = [f"{name.title()}: {value}" for name, value in told.items()]
    head = ["POST /hook HTTP/1.1", *lines, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


async def test_a_valid_webhook_wakes(harness: WebhookHarness) -> None:
    assert await harness.send(raw(headers())) == "HTTP/1.1 204 No Content"
    assert harness.woken == 1


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
async def test_anything_else_is_refused_and_wakes_nobody(
    harness: WebhookHarness, sent: bytes, status: str
) -> None:
    answer = await harness.send(sent)
    assert answer.split(" ")[1:2] == ([status] if status else [])
    assert harness.woken == 0


@pytest.mark.real
async def test_what_mlflow_delivers_on_a_registration_wakes(new_mlflow: MlflowProcess) -> None:
    woken = asyncio.Event()
    listener = await WebhookListener(SECRET, woken.set).serve(0)
    port = listener.sockets[0].getsockname()[1]
    server = httpx.AsyncClient(base_url=f"{new_mlflow.url}/api/2.0/mlflow", timeout=60)
    async with listener, server:
        hook = {
            "name": "controller",
            "url": f"http://127.0.0.1:{port}/",
            "events": [{"entity": "MODEL_VERSION", "action": "CREATED"}],
            "secret": SECRET,
        }
        made = await server.post("/webhooks", json=hook)
        hook_id = made.raise_for_status().json()["webhook"]["webhook_id"]
        (await server.post("/registered-models/create", json={"name": "tone"})).raise_for_status()
        run = (await server.post("/runs/create", json={"experiment_id": "0"})).json()["run"]["info"]
        source = f"{run['artifact_uri']}/model"
        version = {"name": "tone", "source": source, "run_id": run["run_id"]}
        (await server.post("/model-versions/create", json=version)).raise_for_status()
        await asyncio.wait_for(woken.wait(), 60)
        (await server.delete(f"/webhooks/{hook_id}")).raise_for_status()
