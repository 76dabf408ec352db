"""Reads collections from inside a pod, with the standard library alone: the gateway's ``Reader``.

All other parts of Headrace use the official Kubernetes client. A gateway only lists and watches,
and there are many gateways: the client would add more than a third to the memory of each, and half
to its time to start. This reader signs in with the pod's service account only, and never writes.
"""

import http.client
import json
import socket
import ssl
import urllib.parse
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from service.cluster import access, errors
from service.cluster.collection import LIST_PATIENCE, Collection, Object, check_watch, read_list
from service.cluster.errors import (
    AccessError,
    ApiUnavailableError,
    KubernetesError,
    UnreadableEventError,
)
from service.timed_answers import TimedResponse, time_answers

_MOST_SENTENCE_BYTES = 2000
_Plain = time_answers(http.client.HTTPConnection)
_Secured = time_answers(http.client.HTTPSConnection)
# So that a watch notices a lost peer within half a minute.
_KEEPALIVE = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
)


def connected(environment: Mapping[str, str], *, account: Path = access.ACCOUNT) -> "PodReader":
    """The reader of a pod's own API server.

    Raises:
        AccessError: no service account is mounted.
    """
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = int(environment.get("KUBERNETES_SERVICE_PORT", "443"))
    try:
        tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    except OSError as error:
        raise access.not_mounted(account, error) from error
    return PodReader(host, port, tls=tls, token_file=account / "token")


class PodReader:
    """Reads collections of one API server; see ``Reader``. Threads may share it.

    Args:
        host: of the API server.
        port: of the API server.
        tls: None for plain HTTP, which is for tests.
        token_file: the kubelet renews it, so that it is read for each call; None: no token.
        timeout_seconds: deadline of connecting, and of each answer as a whole.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        token_file: Path | None = None,
        timeout_seconds: float = 5.0,
    ) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._token_file = token_file
        self._timeout = timeout_seconds

    def list(self, collection: Collection, revision: str = "") -> tuple[list[Object], str]:
        """All objects, and the revision from which a watch goes on; see ``Reader``."""
        cached = (
            {"resourceVersion": revision, "resourceVersionMatch": "NotOlderThan"}
            if revision
            else {}
        )
        data = self._asked(collection, cached, LIST_PATIENCE * self._timeout).whole()
        try:
            answer = json.loads(data)
        except ValueError as error:
            raise ApiUnavailableError(f"{collection.path} is no list: {error!r}") from error
        return read_list(answer, collection.path)

    def watch(
        self, collection: Collection, revision: str, *, seconds: int, most_seconds: float
    ) -> "Answer":
        """Begins a watch; see ``Reader``."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": revision,
            "timeoutSeconds": str(seconds),
        }
        answer = self._asked(collection, query)
        try:
            check_watch(answer.response.getheader("Content-Length"), collection.path)
        except ApiUnavailableError:
            answer.whole(0)
            raise
        answer.response.time.allow(most_seconds)
        return answer

    def _asked(
        self, collection: Collection, query: Mapping[str, str], seconds: float = 0.0
    ) -> "Answer":
        """An answer of status 2xx, whose body was not read yet."""
        selector = {"labelSelector": collection.selector} if collection.selector else {}
        target = f"{collection.path}?{urllib.parse.urlencode({**selector, **query})}"
        headers = {"Accept": "application/json", "User-Agent": "headrace", **self._signed_in()}
        connection = self._connection(seconds or self._timeout)
        try:
            connection.request("GET", target, headers=headers)
            sock = connection.sock  # the response may take it over
            _keep_alive(sock)
            response = cast("TimedResponse", connection.getresponse())
            answer = Answer(connection, response, sock)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            sentence = f"the API server {self._host}:{self._port} does not answer: {error}"
            raise ApiUnavailableError(sentence) from error
        status = answer.response.status
        if status < 300:
            return answer
        text = answer.whole(_MOST_SENTENCE_BYTES).decode(errors="replace")
        raise errors.of_answer(status, f"GET {collection.path}", text)

    def _signed_in(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        try:
            token = self._token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise AccessError(f"the API token can't be read: {error}") from error
        return {"Authorization": f"Bearer {token}"}

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return _Plain(self._host, self._port, timeout=seconds)
        return _Secured(self._host, self._port, timeout=seconds, context=self._tls)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer whose body was not read yet; of a watch, its ``EventStream``."""

    connection: http.client.HTTPConnection
    response: TimedResponse
    socket: socket.socket

    def whole(self, most_bytes: int | None = None) -> bytes:
        """The body, or its beginning; raises ``ApiUnavailableError``."""
        try:
            return self.response.read(most_bytes)
        except (OSError, http.client.HTTPException) as error:
            raise ApiUnavailableError(f"the answer broke off: {error!r}") from error
        finally:
            self._end()

    def events(self) -> Generator[tuple[str, Object], None, None]:
        """See ``EventStream``."""
        try:
            while line := self.response.readline():
                yield _event(line)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, KubernetesError):
                raise
            raise ApiUnavailableError(f"the stream broke: {error!r}") from error
        finally:
            self._end()

    def close(self) -> None:
        """See ``EventStream``."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def _end(self) -> None:
        self.response.close()
        self.connection.close()


def _event(line: bytes) -> tuple[str, Object]:
    try:
        event = json.loads(line)
        kind, item = event["type"], event["object"]
        if kind != "ERROR":
            return kind, item
        status, message = int(item.get("code", 500)), str(item.get("message", item))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableEventError(f"an event that can't be read: {error!r}") from error
    raise errors.of_status(status, message)


def _keep_alive(sock: socket.socket) -> None:
    for level, name, value in _KEEPALIVE:
        option = getattr(socket, name, None)
        if option is not None:  # not on every system
            sock.setsockopt(level, option, value)
