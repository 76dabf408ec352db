"""kafka-python closes the sockets of connections that fail or are given up before they are made.

By itself it leaves them to the garbage collector, whose warning fails whichever test runs then.
"""

import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

_Connect = Callable[..., Awaitable[socket.socket]]


def close_unconnected() -> None:
    """From now on it does, if any test has imported it; once for a process."""
    module: Any = sys.modules.get("kafka.net.inet")
    if module is not None:
        module.KafkaNetSocket.sock_connect = _closing(module.KafkaNetSocket.sock_connect)


def _closing(connect: _Connect) -> _Connect:
    async def closing(
        self: object, net: object, sock: socket.socket, *rest: Any, **named: Any
    ) -> socket.socket:
        try:
            return await connect(self, net, sock, *rest, **named)
        except BaseException:
            sock.close()
            raise

    return closing
