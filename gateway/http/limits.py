"""The bounds of the HTTP front, in one frozen object."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What one process of the gateway takes from its callers.

    ``max_body_bytes`` bounds a body as it arrives and again after decompression;
    ``max_buffered_bytes`` all bodies being read at one moment, so that memory stays bounded however
    many callers send their largest at once. ``body_seconds`` is for a whole body (408 after it),
    ``header_seconds`` for request line and headers of a connection that has begun a request, and
    for the first request of a new connection (closed after it). ``keep_alive_seconds`` should be
    longer than that of a load balancer in front, or it will reuse a connection that closes.
    """

    max_body_bytes: int = 8 * 1024 * 1024
    max_buffered_bytes: int = 256 * 1024 * 1024
    body_seconds: float = 10.0
    header_seconds: float = 10.0
    max_header_bytes: int = 64 * 1024
    keep_alive_seconds: int = 75
    max_connections: int = 4096
    backlog: int = 2048
