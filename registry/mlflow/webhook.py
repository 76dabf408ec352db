"""An HTTP listener for MLflow's webhooks: a valid one wakes the controller, and does no more.

MLflow signs ``<delivery id>.<timestamp>.<body>`` with HMAC-SHA256; what is not signed with the
shared secret, or is older than five minutes, is refused. Webhooks are lost on a crash of MLflow and
may be repeated: both do no harm, for the loop polls and only compares. Its content is never
believed.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus

from registry import metrics

log = logging.getLogger(__name__)

SIGNATURE = "x-mlflow-signature"
TIMESTAMP = "x-mlflow-timestamp"
DELIVERY_ID = "x-mlflow-delivery-id"

_FRESH_SECONDS = 300.0
_DEADLINE_SECONDS = 5.0
_BODY_LIMIT_BYTES = 1 << 20
_HEAD_LIMIT_BYTES = 1 << 14


def sign(secret: str, delivery_id: str, timestamp: str, body: bytes) -> str:
    """The signature as MLflow writes it: ``v1,<base64>``."""
    content = f"{delivery_id}.{timestamp}.".encode() + body
    digest = hmac.new(secret.encode(), content, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def verify(headers: Mapping[str, str], body: bytes, secret: str, now: float) -> HTTPStatus:
    """What to answer to a webhook.

    Returns:
        204 for a valid one, 401 for one that is not signed as it must be or too old.
    """
    timestamp = headers.get(TIMESTAMP, "")
    expected = sign(secret, headers.get(DELIVERY_ID, ""), timestamp, body)
    signed = hmac.compare_digest(expected.encode(), headers.get(SIGNATURE, "").encode())
    sent = _number(timestamp)
    fresh = sent is not None and abs(now - sent) <= _FRESH_SECONDS
    return HTTPStatus.NO_CONTENT if signed and fresh else HTTPStatus.UNAUTHORIZED


def _number(text: str) -> int | None:
    """A header's number; None for what is none, or far too long to be one."""
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


class WebhookListener:
    """Listens on one port of 127.0.0.1."""

    def __init__(
        self, secret: str, wake: Callable[[], None], *, now: Callable[[], float] = time.time
    ) -> None:
        if not secret:
            raise ValueError("a webhook needs a secret: set --webhook-secret")
        self._secret = secret
        self._wake = wake
        self._now = now

    async def serve(self, port: int, *, host: str = "127.0.0.1") -> asyncio.Server:
        """Starts to listen; the caller closes what it gets."""
        return await asyncio.start_server(self._answer, host, port, limit=_HEAD_LIMIT_BYTES)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            status = await asyncio.wait_for(self._status(reader), _DEADLINE_SECONDS)
            metrics.WEBHOOKS.labels(status.phrase).inc()
            if status is HTTPStatus.NO_CONTENT:
                self._wake()
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode())
            await asyncio.wait_for(writer.drain(), _DEADLINE_SECONDS)
        except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            log.info("a webhook's connection ended early: %r", error)
        finally:
            writer.close()

    async def _status(self, reader: asyncio.StreamReader) -> HTTPStatus:
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
        return verify(headers, body, self._secret, self._now())
