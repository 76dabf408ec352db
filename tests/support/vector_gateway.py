"""A gateway that gives vectors, refuses and goes away as a test tells it to.

``tests/stack/test_backfill.py`` holds a real one to the same.
"""

import base64
import struct
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from scripted_server import Headers, Raw, answer

SPACE = "a" * 12
SIZE = 8
Fault = Raw | None


def vector_of(text: str, space: str = SPACE) -> list[float]:
    """A text's vector: float32 numbers that no other text and space has."""
    data = sha256(f"{space}/{text}".encode()).digest()[:SIZE]
    return list(array("f", [number / 255 - 0.5 for number in data]))


def busy(status: int, retry_after: str = "0") -> Raw:
    body = {"error": {"code": "x", "message": "Not now."}}
    return answer(status, body, retry_after=retry_after)


@dataclass
class VectorGateway:
    """Answers ``POST /v1/embeddings`` as OpenAI's; ``faults`` come before answers.

    ``space``: of the answers. ``seen``: the headers of each request. ``on_request``: called first.
    """

    space: str = SPACE
    faults: Iterator[Fault] = field(default_factory=lambda: iter(()))
    seen: list[Headers] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    most_texts: int = 1000
    on_request: Callable[[], None] = lambda: None

    async def __call__(self, path: str, body: Any, headers: Headers) -> Raw:
        self.on_request()
        assert path == "/v1/embeddings"
        assert body["encoding_format"] == "base64"
        self.seen.append(headers)
        fault = next(self.faults, None)
        if fault is not None:
            return fault
        texts = body["input"]
        if len(texts) > self.most_texts:
            return busy(413)
        self.texts += texts
        data = [
            {"index": i, "embedding": base64.b64encode(struct.pack(f"<{SIZE}f", *vector)).decode()}
            for i, vector in enumerate(vector_of(text, self.space) for text in texts)
        ]
        return answer(200, {"data": data}, x_headrace_space=self.space)
