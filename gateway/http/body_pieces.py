"""Bodies read piece by piece, for routes that hold none whole (mypyc makes no async generator)."""

from collections.abc import AsyncIterator

from gateway.errors import ClientGoneError, TooLargeError, UnsupportedEncodingError
from gateway.http.messages import Request


async def pieces(request: Request, most_bytes: int) -> AsyncIterator[bytes]:
    """The body as it arrives, for a route that holds none of it whole.

    Args:
        request: whose body it is.
        most_bytes: of it; ``max_body_bytes`` is no bound here.

    Raises:
        GatewayError: as ``BodyReader.read``; a compressed body is not read.
    """
    if not request.context.recognised:
        raise RuntimeError("the body of a caller whom admission has not recognised")
    request.context.body_read = True
    if request.headers.get(b"content-encoding", b"identity") not in (b"", b"identity"):
        raise UnsupportedEncodingError("content-encoding: a file is sent as it is here.")
    length = request.headers.get(b"content-length", b"")
    size = int(length) if length.isdigit() else 0
    if size <= most_bytes and request.body is not None:
        yield request.body
        return
    received, more = 0, size <= most_bytes
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        piece, more = message.get("body", b""), message.get("more_body", False)
        received += len(piece)
        if received > most_bytes:
            break
        yield piece
    if max(received, size) > most_bytes:
        raise TooLargeError(f"The file is larger than {most_bytes} bytes: send several.")
