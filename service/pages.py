"""A small HTTP server beside a service's own work: ``/metrics``, and pages for Kubernetes' probes.

Started once in a service's main, in threads of its own. Each page is asked for at each request and
must answer at once. What strangers may take of the process is bounded: the number of connections,
one request each, its bytes and its seconds. If there are too many connections, the one that has
waited longest without a request makes room, so that those who do ask, as probes do, are answered.
"""

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from socketserver import BaseRequestHandler, TCPServer, ThreadingMixIn
from types import MappingProxyType
from typing import cast

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY

from service import exposition, listener

Fault = Callable[[], str]  # why a probe should fail; empty: it passes
# What is asked for by POST: the rest of the path, and the key that was shown; and what is answered.
Action = Callable[[str, str], tuple[HTTPStatus, str]]

METRICS = "/metrics"
_Request = socket.socket | tuple[bytes, socket.socket]  # as the library types it; TCP has the first
_MOST_CONNECTIONS = 32
_MOST_HEAD_BYTES = 8192
_SECONDS = 10.0  # for a request to arrive, and again for its answer to be taken


class Pages(ThreadingMixIn, TCPServer):
    """The server. ``serve`` makes one."""

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        address: tuple[str, int],
        probes: Mapping[str, Fault],
        actions: Mapping[str, Action] = MappingProxyType({}),
    ) -> None:
        super().__init__(address, _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener.listen(*address)
        self.server_address = self.socket.getsockname()
        self.probes = probes
        self.actions = actions
        self._lock = threading.Lock()
        self._open: dict[_Request, bool] = {}  # by socket, oldest first: whether it has asked

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def process_request(self, request: "_Request", client_address: object) -> None:
        """Answers in a thread, if there is room or can be made."""
        with self._lock:
            room = len(self._open) < _MOST_CONNECTIONS or self._close_one_that_waits()
            if room:
                self._open[request] = False
        if room:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: "_Request") -> None:
        """Ends a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: "_Request", client_address: object) -> None:
        """Says what went wrong; a caller that hangs up or takes too long is not worth a line."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def note_request(self, request: socket.socket) -> bool:
        """Notes that a connection has sent its request; False if it has lost its place."""
        with self._lock:
            if request not in self._open:
                return False
            self._open[request] = True
            return True

    def _close_one_that_waits(self) -> bool:
        for request, asked in self._open.items():
            if not asked:
                del self._open[request]
                with contextlib.suppress(OSError):
                    cast("socket.socket", request).shutdown(
                        socket.SHUT_RDWR
                    )  # its thread wakes, and ends it
                return True
        return False


def serve(
    host: str,
    port: int,
    probes: Mapping[str, Fault],
    actions: Mapping[str, Action] = MappingProxyType({}),
) -> Pages:
    """Answers in threads of its own until the process ends, or ``shutdown`` is called.

    Raises:
        OSError: nothing can listen there.
    """
    server = Pages((host, port), probes, actions)
    threading.Thread(target=server.serve_forever, name="pages", daemon=True).start()
    return server


class _Handler(BaseRequestHandler):
    """One connection: reads one request's head, and answers it."""

    def handle(self) -> None:
        """Answers a probe, or the metrics."""
        server = cast("Pages", self.server)
        head = self._head()
        words = head.partition(b"\r\n")[0].split()
        if len(words) != 3 or not server.note_request(self.request):
            return
        method, path = words[0], words[1].partition(b"?")[0].decode("latin-1")
        action = next((each for each in server.actions if path.startswith(each)), None)
        if method == b"POST" and action is not None:
            status, said = server.actions[action](path.removeprefix(action), _key(head))
            self._say(status, "text/plain", f"{said}\n".encode(), method)
        elif method not in (b"GET", b"HEAD"):
            self._say(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"only GET\n", method)
        elif path == METRICS:
            self._say(
                HTTPStatus.OK, CONTENT_TYPE_LATEST, exposition.text(REGISTRY.collect()), method
            )
        elif (fault := server.probes.get(path)) is None:
            self._say(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n", method)
        else:
            reason = fault()
            status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
            self._say(status, "text/plain", f"{reason or 'ok'}\n".encode(), method)

    def _head(self) -> bytes:
        """The request's head; empty if it does not come, or is too large."""
        deadline = time.monotonic() + _SECONDS
        head = b""
        while b"\r\n\r\n" not in head:
            left = deadline - time.monotonic()
            if left <= 0 or len(head) >= _MOST_HEAD_BYTES:
                return b""
            self.request.settimeout(left)
            piece = self.request.recv(_MOST_HEAD_BYTES - len(head))
            if not piece:
                return b""
            head += piece
        return head

    def _say(self, status: HTTPStatus, kind: str, data: bytes, method: bytes) -> None:
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {kind}\r\n"
            f"content-length: {len(data)}\r\nconnection: close\r\n\r\n"
        )
        self.request.settimeout(_SECONDS)
        self.request.sendall(head.encode() + (b"" if method == b"HEAD" else data))


def _key(head: bytes) -> str:
    """The key that a request shows as ``Authorization: Bearer``; empty if it shows none."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        scheme, _, key = value.strip().partition(b" ")
        if name.strip().lower() == b"authorization" and scheme.lower() == b"bearer":
            return key.strip().decode("latin-1")
    return ""
