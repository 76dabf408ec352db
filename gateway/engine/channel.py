"""gRPC's own client to one Triton, for streams, and for unary calls where operators choose it.

``http2/unary.py`` costs less for each call and speaks to one server over one connection. gRPC's
channel does whatever a mesh between gateway and Triton may ask of a client.
"""

import asyncio
from typing import Any

import grpc

from gateway.engine.http2.unary import CallError
from service import mutual_tls
from service.mutual_tls import MutualTls

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A Triton that was restarted is found within a second, however many tries have failed.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Finds a host that is gone without closing its connections. Triton closes a connection with
    # more frequent pings.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),  # batchers decide what is sent again, and where
)


def open_channel(address: str, tls: MutualTls | None) -> grpc.aio.Channel:
    """A channel to ``host:port``, plain if ``tls`` is None; raises ``OSError``."""
    return mutual_tls.channel(address, _OPTIONS, tls)


class ChannelClient:
    """Calls to ``host:port`` over gRPC's own channel, made for the first of them."""

    def __init__(self, address: str, tls: MutualTls | None = None) -> None:
        self._address = address
        self._tls = tls
        self._channel: grpc.aio.Channel | None = None
        self._methods: dict[str, Any] = {}
        self._closed = False

    async def call(self, method: str, message: bytes, timeout_seconds: float) -> bytes:
        """See ``UnaryClient``."""
        try:
            answer: bytes = await self._method(method)(message, timeout=timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise CallError(error.code(), error.details() or "") from error
        except OSError as error:  # a file of TLS
            raise CallError(grpc.StatusCode.UNAVAILABLE, f"no connection: {error}") from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and not (task is not None and task.cancelling()):
                raise _closed() from None  # gRPC cancels calls whose channel is closed
            raise
        return answer

    async def close(self) -> None:
        """Closes the channel; calls in flight fail as unavailable."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close()

    def _method(self, method: str) -> Any:  # noqa: ANN401 - gRPC's multi-callables have no types
        if self._closed:
            raise _closed()
        if self._channel is None:
            self._channel = open_channel(self._address, self._tls)
        found = self._methods.get(method)
        if found is None:
            found = self._methods[method] = self._channel.unary_unary(method)
        return found


def _closed() -> CallError:
    return CallError(grpc.StatusCode.UNAVAILABLE, "closed")
