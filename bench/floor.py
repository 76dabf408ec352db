"""A server that answers every request at once with the same bytes: what the harness itself costs.

Run by the suite ``gateway`` as ``python -P -m bench.floor PORT``, and by the race of peers with an
answer's size behind it. What a gateway adds to a request is its latency less this server's under
the same load. It is uvicorn with the gateway's own loop and
parser, and nothing behind it.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

_BODY = b'[{"label":"positive","score":0.9876543}]'
if len(sys.argv) > 2:
    _BODY = b"0" * int(sys.argv[2])
_Message = MutableMapping[str, Any]


async def application(
    scope: _Message,
    receive: Callable[[], Awaitable[_Message]],
    send: Callable[[_Message], Awaitable[None]],
) -> None:
    """Reads the body and answers."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(_BODY)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": _BODY})


async def _serve(port: int) -> None:
    config = uvicorn.Config(
        application, host="127.0.0.1", port=port, loop="uvloop", http="httptools",
        log_level="warning", access_log=False, lifespan="off", server_header=False,
    )  # fmt: skip
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    import uvloop

    uvloop.install()
    asyncio.run(_serve(int(sys.argv[1])))
