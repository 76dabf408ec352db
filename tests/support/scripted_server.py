"""A small HTTP server that answers as a test tells it to."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Headers = dict[str, str]
Raw = bytes
Answers = Callable[[str, Any, Headers], Awaitable[Raw]]


def answer(status: int, body: object, **headers: str) -> Raw:
    content = json.dumps(body).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    names.setdefault("content-length", str(len(content)))
    head = "".join(f"{name}: {value}\r\n" for name, value in names.items())
    return f"HTTP/1.1 {status} Said\r\n{head}\r\n".encode() + content


@dataclass
class Server:
    """Answers by ``answers``; b"" closes the connection without a word.

    ``keeps``: whether a connection stays open after an answer.
    """

    answers: Answers
    url: str = ""
    asked: list[tuple[str, Any, Headers]] = field(default_factory=list)
    connections: int = 0
    keeps: bool = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                path = head[0].split()[1]
                pairs = [line.partition(": ") for line in head[1:] if line]
                headers = {name.lower(): value for name, _, value in pairs}
                content = await reader.readexactly(int(headers.get("content-length", 0)))
                body = json.loads(content or b"null")
                self.asked.append((path, body, headers))
                said = await self.answers(path, body, headers)
                writer.write(said)
                await writer.drain()
                if not (said and self.keeps):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def serving(answers: Answers) -> AsyncIterator[Server]:
    server = Server(answers)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()


async def positive(path: str, body: Any, headers: Headers) -> Raw:
    if path == "/feedback":
        return answer(202, {})
    label = [{"label": "positive", "score": 0.9}]
    return answer(200, label, x_headrace_version="3", x_headrace_receipt="r")
