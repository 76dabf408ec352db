"""Servers that drip: no single read or write of a socket times out.

Answers come a byte now and then, or what is sent is taken a little at a time.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from socketserver import BaseRequestHandler, ThreadingTCPServer

LONG_HEAD = b"HTTP/1.1 200 OK\r\nX-Drips: "
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PAUSE_SECONDS = 0.02
TAKEN_BYTES = 2048  # a pause, of what is sent
_MOST_BYTES = 250  # then it hangs up, so that who waits for all of it fails otherwise
# Of a ``Drip``: 30 s in all, which is longer than the deadlines of its clients.
_SLOW_PAUSE_SECONDS, _MOST_SLOW_BYTES = 0.1, 300


def plain(connection: socket.socket) -> socket.socket:
    """A connection as it is."""
    return connection


class Drip:
    """In the place of an answer's body: what comes a byte now and then until it is stopped.

    ``outlasted``: a client has waited for all of one.
    """

    def __init__(self) -> None:
        self.outlasted = False
        self._over = threading.Event()

    def stop(self) -> None:
        """Ends what drips now."""
        self._over.set()
        self._over = threading.Event()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answers in the place of a server; an answer to HEAD, which has no body, by its head."""
        over, handler.close_connection = self._over, True
        with suppress(OSError):  # it was given up
            handler.wfile.write(LONG_HEAD if handler.command == "HEAD" else HEAD)
            for _ in range(_MOST_SLOW_BYTES):
                if over.wait(_SLOW_PAUSE_SECONDS):
                    return
                handler.wfile.write(b"1")
            self.outlasted = True


class _Drip(BaseRequestHandler):
    """Begins an answer, and sends a byte of it now and then."""

    head: bytes
    secured: Callable[[socket.socket], socket.socket]
    over: threading.Event

    def handle(self) -> None:
        with suppress(OSError), type(self).secured(self.request) as connection:
            asked = connection.recv(65536)
            connection.sendall(self.head)
            if asked.startswith(b"HEAD ") and self.head != LONG_HEAD:
                return  # it has no body
            for _ in range(_MOST_BYTES):
                if self.over.wait(PAUSE_SECONDS):
                    return
                connection.sendall(b"1")


class _SlowTaker(_Drip):
    """Takes what it is sent a little at a time, and answers nothing."""

    def handle(self) -> None:
        with suppress(OSError), type(self).secured(self.request) as connection:
            for _ in range(_MOST_BYTES):
                if self.over.wait(PAUSE_SECONDS) or not connection.recv(TAKEN_BYTES):
                    return


class _Server(ThreadingTCPServer):
    daemon_threads = False  # its threads have ended with it
    request_queue_size = 32


@contextmanager
def dripping(
    head: bytes = HEAD, secured: Callable[[socket.socket], socket.socket] = plain
) -> Iterator[int]:
    """Drips behind ``head`` on a free port, which it gives, until the block ends."""
    with _serve(_Drip, head, secured) as port:
        yield port


@contextmanager
def slowly_taking(secured: Callable[[socket.socket], socket.socket] = plain) -> Iterator[int]:
    """Takes what is sent to a free port, which it gives, slowly until the block ends."""
    with _serve(_SlowTaker, b"", secured) as port:
        yield port


@contextmanager
def _serve(
    handler: type[_Drip], head: bytes, secured: Callable[[socket.socket], socket.socket]
) -> Iterator[int]:
    over = threading.Event()
    made = {"head": head, "secured": staticmethod(secured), "over": over}
    with _Server(("127.0.0.1", 0), type("Drip", (handler,), made)) as server:
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            over.set()
            server.shutdown()
            thread.join()
