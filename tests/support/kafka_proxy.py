"""A way to a real Kafka on which answers can be slow, never come, or be somebody else's.

It reads only what frames a message: the size, a request's key of the API, and the number that ties
an answer to its request. In answers it puts its own port in the place of the broker's, so that
clients never find a way around it.
"""

import contextlib
import socket
import struct
import threading
from collections import Counter

HOST = "127.0.0.1"
FETCH, JOIN_GROUP, SYNC_GROUP = 1, 11, 14  # of the Kafka protocol's guide
_PATIENCE_SECONDS = 60.0
HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 15\r\n\r\n<html>no</html>"
# What may become of every answer.
FAULTS = ("reset", "another server", "truncated", "another message", "silence", "drip")


class KafkaProxy:
    """Listens on a free port of this machine. Close it at the end."""

    def __init__(self, bootstrap: str) -> None:
        """Takes the broker's ``host:port``."""
        host, _, port = bootstrap.rpartition(":")
        self._broker = (host, int(port))
        self._listener = socket.create_server((HOST, 0))
        self._port = self._listener.getsockname()[1]
        self._changed = threading.Condition()
        self._asked: Counter[int] = Counter()
        self._slow: dict[int, float] = {}
        self._fault = ""
        self._closing = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> "KafkaProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """What clients connect to, ``host:port``."""
        return f"{HOST}:{self._port}"

    def slow(self, api: int, seconds: float) -> None:
        """From now on answers of this API come so much later; those behind them wait too."""
        with self._changed:
            self._slow[api] = seconds

    def spoil(self, fault: str) -> None:
        """From now on every answer becomes one of ``FAULTS``; empty: they come as they are."""
        with self._changed:
            self._fault = fault
        if not fault:  # what was left unanswered stays so: clients begin again
            for each in tuple(self._sockets):
                _hang_up(each)

    def asked(self, api: int) -> int:
        """How many requests of this API were sent."""
        with self._changed:
            return self._asked[api]

    def until_asked(self, api: int, times: int) -> None:
        """Returns when so many requests of this API were sent."""
        with self._changed:
            enough = self._changed.wait_for(lambda: self._asked[api] >= times, _PATIENCE_SECONDS)
        assert enough, f"API {api} was asked {self.asked(api)} times, not {times}"

    def close(self) -> None:
        """Ends all connections."""
        self._closing.set()
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(_PATIENCE_SECONDS)
        for each in self._sockets:  # and those that were made meanwhile
            each.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._broker)
            except OSError:
                client.close()  # as the broker would that is away
                continue
            under_way: dict[int, int] = {}
            self._sockets += [client, broker]
            for work in (self._requests, self._answers):
                thread = threading.Thread(
                    target=work, args=(client, broker, under_way), daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def _requests(
        self, client: socket.socket, broker: socket.socket, under_way: dict[int, int]
    ) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(client):
                api, _, number = struct.unpack_from(">hhi", frame)
                under_way[number] = api
                with self._changed:
                    self._asked[api] += 1
                    self._changed.notify_all()
                broker.sendall(struct.pack(">i", len(frame)) + frame)
        _hang_up(broker)

    def _answers(
        self, client: socket.socket, broker: socket.socket, under_way: dict[int, int]
    ) -> None:
        theirs, ours = (HOST.encode() + struct.pack(">i", port) for port in self._ports())
        with contextlib.suppress(OSError):
            while frame := _frame(broker):
                api = under_way.pop(struct.unpack_from(">i", frame)[0])
                with self._changed:
                    seconds = self._slow.get(api, 0.0)
                self._closing.wait(seconds)
                frame = frame.replace(theirs, ours)
                if not self._spoilt(client, frame):
                    client.sendall(struct.pack(">i", len(frame)) + frame)
        _hang_up(client)

    def _spoilt(self, client: socket.socket, frame: bytes) -> bool:
        """Whether a fault took the place of an answer."""
        with self._changed:
            fault = self._fault
        size = struct.pack(">i", len(frame))
        match fault:
            case "":
                return False
            case "silence":
                return True
            case "another message":
                client.sendall(size + frame[:4] + b"\xff" * (len(frame) - 4))
                return True
            case "drip":
                for byte in size + frame:
                    client.sendall(bytes([byte]))
                    self._closing.wait(0.2)
                return True
            case "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            case "truncated":
                client.sendall(size + frame[: len(frame) // 2])
            case _:
                client.sendall(HTTP)
        raise OSError(fault)

    def _ports(self) -> tuple[int, int]:
        return self._broker[1], self._port


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _frame(end: socket.socket) -> bytes:
    """The next message without its size; empty at the end of the connection."""
    head = _exactly(end, 4)
    return _exactly(end, struct.unpack(">i", head)[0]) if head else b""


def _exactly(end: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        piece = end.recv(size - len(found))
        if not piece:
            return b""
        found += piece
    return bytes(found)
