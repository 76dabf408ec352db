"""MLflow's webhooks: a listener that has the controller look sooner, and its entry in MLflow.

MLflow signs ``<delivery id>.<timestamp>.<body>`` with HMAC-SHA256; what is not signed with a shared
secret, or is older than five minutes, is refused. Webhooks are lost on a crash of MLflow and may be
repeated: both do no harm, for the loop polls and only compares. What a webhook says is never
believed: of its body, only the name of a model is read, which MLflow is then asked for.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from contracts.model import qualify
from registry import metrics
from registry.errors import SourceRefusedError, SourceUnavailableError
from registry.mlflow.client import MlflowConnection
from service import listener

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.webhook import Webhook, WebhookEventStr

log = logging.getLogger(__name__)

SIGNATURE = "x-mlflow-signature"
TIMESTAMP = "x-mlflow-timestamp"
DELIVERY_ID = "x-mlflow-delivery-id"
EVENTS: "tuple[WebhookEventStr, ...]" = (
    "registered_model.created",
    "model_version.created",
    "model_version_alias.created",
    "model_version_alias.deleted",
)

_FRESH_SECONDS = 300.0
_DEADLINE_SECONDS = 5.0
_BODY_LIMIT_BYTES = 1 << 20
_HEAD_LIMIT_BYTES = 1 << 14
_MOST_CONNECTIONS = 16  # at a time; MLflow sends ten at a time, and tries again after a 503
_OF_MODELS = "model_version", "registered_model"
_NAME_CHARACTERS = 63
_REGISTER_SECONDS = 600.0
_RETRY_SECONDS = 30.0


def sign(secret: str, delivery_id: str, timestamp: str, body: bytes) -> str:
    """The signature as MLflow writes it: ``v1,<base64>``."""
    content = f"{delivery_id}.{timestamp}.".encode() + body
    digest = hmac.new(secret.encode(), content, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def verify(
    headers: Mapping[str, str], body: bytes, secrets: Sequence[str], now: float
) -> HTTPStatus:
    """What to answer to a webhook.

    Returns:
        204 for a valid one, 401 for one that no secret signed as it must be or that is too old.
    """
    timestamp, given = headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, "").encode()
    signed = False
    for secret in secrets:
        expected = sign(secret, headers.get(DELIVERY_ID, ""), timestamp, body)
        signed |= hmac.compare_digest(expected.encode(), given)
    sent = _number(timestamp)
    fresh = sent is not None and abs(now - sent) <= _FRESH_SECONDS
    return HTTPStatus.NO_CONTENT if signed and fresh else HTTPStatus.UNAUTHORIZED


def model_of(body: bytes) -> str:
    """The registered model that a webhook is about, with its workspace if it says one.

    Without a name if it is about none.
    """
    try:
        told = json.loads(body)
        name = told["data"]["name"] if str(told["entity"]).startswith(_OF_MODELS) else ""
        workspace = told.get("workspace") or ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return qualify(*(each if isinstance(each, str) else "" for each in (workspace, name)))


def _number(text: str) -> int | None:
    """A header's number; None for what is none, or far too long to be one."""
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


class WebhookListener:
    """Listens on one port.

    Args:
        secrets: any of them signs.
        announce: is called with the name of a model that may have changed; empty: any may have.
    """

    def __init__(
        self,
        secrets: Sequence[str],
        announce: Callable[[str], None],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        if not all(secrets) or not secrets:
            raise ValueError("a webhook needs a secret: set --webhook-secret-file")
        self._secrets = tuple(secrets)
        self._announce = announce
        self._now = now
        self._open = 0

    async def serve(self, port: int, *, host: str = "127.0.0.1") -> asyncio.Server:
        """Starts to listen; the caller closes what it gets."""
        socket = listener.listen(host, port)
        return await asyncio.start_server(self._answer, sock=socket, limit=_HEAD_LIMIT_BYTES)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            status = await asyncio.wait_for(self._status(reader), _DEADLINE_SECONDS)
            metrics.WEBHOOKS.labels(status.phrase).inc()
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode())
            await asyncio.wait_for(writer.drain(), _DEADLINE_SECONDS)
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            log.info("a webhook's connection ended early: %r", error)
        finally:
            self._open -= 1
            writer.close()

    async def _status(self, reader: asyncio.StreamReader) -> HTTPStatus:
        """Reads a webhook, announces a valid one, and says what to answer."""
        if self._open > _MOST_CONNECTIONS:
            return HTTPStatus.SERVICE_UNAVAILABLE
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        request, *lines = head.decode("latin-1").split("\r\n")
        if not request.startswith("POST "):
            return HTTPStatus.METHOD_NOT_ALLOWED
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = _number(headers.get("content-length", ""))
        if length is None:
            return HTTPStatus.LENGTH_REQUIRED
        if length > _BODY_LIMIT_BYTES:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        body = await reader.readexactly(length)
        status = verify(headers, body, self._secrets, self._now())
        if status is HTTPStatus.NO_CONTENT:
            self._announce(model_of(body))
        return status


@dataclass(frozen=True, slots=True)
class WebhookEntry:
    """The webhook that MLflow should have: where it sends to, and what it signs with."""

    url: str
    secret: str

    @property
    def name(self) -> str:
        """Its name in MLflow, of characters that MLflow takes there."""
        place = urllib.parse.urlsplit(self.url).netloc
        name = f"headrace-{re.sub('[^a-zA-Z0-9.-]', '-', place)}"
        return name[: _NAME_CHARACTERS - 1].rstrip("-.")

    async def keep(self, server: MlflowConnection) -> None:
        """Has MLflow send webhooks, and looks again now and then, until it is cancelled.

        If MLflow refuses, the controller goes on and polls as often as without webhooks.
        """
        fault, register = "", self.renew
        while True:
            wait = _REGISTER_SECONDS
            try:
                await server.ask_in_time(register)
                if register == self.renew:
                    log.info("MLflow sends webhooks to %s", self.url)
                fault, register = "", self.restore
            except (SourceRefusedError, SourceUnavailableError) as error:
                if str(error) != fault:
                    log.warning("MLflow can't be told of the webhook to %s: %s", self.url, error)
                fault = str(error)
                if isinstance(error, SourceUnavailableError):
                    wait = _RETRY_SECONDS
            await asyncio.sleep(wait)

    def renew(self, client: "MlflowClient") -> None:
        """Makes the entry, or writes it again: its secret can't be read from MLflow."""
        if (entry := self._entry(client)) is None:
            self._create(client)
        else:
            client.update_webhook(
                entry.webhook_id, events=list(EVENTS), secret=self.secret, status="ACTIVE"
            )

    def restore(self, client: "MlflowClient") -> None:
        """Makes the entry if it is gone."""
        if self._entry(client) is None:
            self._create(client)

    def _create(self, client: "MlflowClient") -> None:
        client.create_webhook(self.name, self.url, list(EVENTS), secret=self.secret)

    def _entry(self, client: "MlflowClient") -> "Webhook | None":
        token: str | None = None
        while True:
            page = client.list_webhooks(page_token=token)
            found = next((item for item in page if item.url == self.url), None)
            token = page.token
            if found is not None or not token:
                return found
