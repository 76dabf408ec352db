"""Calls of the Kubernetes API over the standard library's HTTP, one connection a call.

The official client would bring 30 packages and models of every Kubernetes object into the lean
image of a gateway, for a list, a watch and four writes. Every call blocks and has a deadline; a
stream ends when it stays silent. It retries nothing and knows no kind of object.
"""

import http.client
import json
import socket
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from service.cluster import errors
from service.cluster.access import Access
from service.cluster.errors import ApiUnavailableError

Object = dict[str, Any]

_SENTENCE_BYTES = 2000
# So that a peer that went without a word is noticed in a stream within half a minute.
_KEEPALIVE = (
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer whose body was not read yet."""

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse
    socket: socket.socket

    def close(self) -> None:
        self.response.close()
        self.connection.close()


class Stream:
    """The lines of one answer, as they come. ``close`` may be called from any thread."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer

    def lines(self) -> Iterator[bytes]:
        """Each line, until the server ends the answer or ``close`` is called.

        Raises:
            ApiUnavailableError: the connection broke, or stayed silent for too long.
        """
        try:
            while line := self._answer.response.readline():
                yield line
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ApiUnavailableError(f"the stream broke: {error!r}") from error
        finally:
            self._answer.close()

    def close(self) -> None:
        """Ends the answer for whoever reads it."""
        with suppress(OSError):
            self._answer.socket.shutdown(socket.SHUT_RDWR)


class KubernetesClient:
    """One API server. Threads may share it.

    Args:
        access: where it is and how to sign in.
        timeout_seconds: deadline of connecting, and of each answer's next bytes.
    """

    def __init__(self, access: Access, *, timeout_seconds: float = 5.0) -> None:
        parts = urllib.parse.urlsplit(access.server)
        self._access = access
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if access.tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._timeout = timeout_seconds

    @property
    def namespace(self) -> str:
        """This process's own namespace."""
        return self._access.namespace

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """One call; returns the object that the server answers with.

        Raises:
            ApiUnavailableError: no answer in time, or the server can't serve now.
            ApiRefusedError: the server will not; a subclass for 404, 409 and 410.
            AccessError: the token can't be read.
        """
        sent = None if body is None else json.dumps(body, allow_nan=False).encode()
        data = self._whole(method, path, sent, query, content_type)
        try:
            answer = json.loads(data)
        except ValueError as error:
            raise ApiUnavailableError(f"{method} {path} was answered by no JSON") from error
        if not isinstance(answer, dict):
            raise ApiUnavailableError(f"{method} {path} was answered by no object")
        return answer

    def text(self, path: str, *, query: Mapping[str, str] | None = None) -> str:
        """The answer of a GET as text; raises as ``call``."""
        data = self._whole("GET", path, None, query, "")
        return data.decode(errors="replace")

    def stream(self, path: str, *, query: Mapping[str, str], silence_seconds: float) -> Stream:
        """Begins a GET whose answer goes on; raises as ``call``.

        Args:
            path: of the API.
            query: its parameters.
            silence_seconds: without a byte for so long the stream breaks.
        """
        answer = self._asked("GET", path, None, query, "")
        answer.socket.settimeout(silence_seconds)
        _keep_alive(answer.socket)
        return Stream(answer)

    def _whole(
        self,
        method: str,
        path: str,
        sent: bytes | None,
        query: Mapping[str, str] | None,
        content_type: str,
    ) -> bytes:
        answer = self._asked(method, path, sent, query, content_type)
        try:
            return answer.response.read()
        except (OSError, http.client.HTTPException) as error:
            sentence = f"{method} {path}: the answer broke off: {error!r}"
            raise ApiUnavailableError(sentence) from error
        finally:
            answer.close()

    def _asked(
        self,
        method: str,
        path: str,
        sent: bytes | None,
        query: Mapping[str, str] | None,
        content_type: str,
    ) -> _Answer:
        """An answer of status 2xx."""
        headers = {"Accept": "application/json, text/plain", "User-Agent": "headrace"}
        if authorization := self._access.authorization():
            headers["Authorization"] = authorization
        if sent is not None:
            headers["Content-Type"] = content_type
        target = f"{self._prefix}{path}"
        if query:
            target += f"?{urllib.parse.urlencode(query)}"
        connection = self._connection()
        try:
            connection.request(method, target, sent, headers)
            sock = connection.sock  # the response may take it over
            answer = _Answer(connection, connection.getresponse(), sock)
            if answer.response.status < 300:
                return answer
            said = answer.response.read(_SENTENCE_BYTES)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            sentence = f"the API server {self._access.server} does not answer: {error}"
            raise ApiUnavailableError(sentence) from error
        answer.close()
        status = answer.response.status
        raise errors.of_status(status, f"{method} {path}: {_sentence(said, status)}")

    def _connection(self) -> http.client.HTTPConnection:
        if self._access.tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout, context=self._access.tls
        )


def _sentence(said: bytes, status: int) -> str:
    """The server's own words, of a Status object where it sent one."""
    try:
        return str(json.loads(said)["message"])
    except (ValueError, KeyError, TypeError):
        return f"{status} {said.decode(errors='replace')[:200]}".strip()


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for level, name, seconds in _KEEPALIVE:
        option = getattr(socket, name, None)
        if option is not None:  # not on every system
            sock.setsockopt(level, option, seconds)
