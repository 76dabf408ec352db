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
    """Answers ``POST /v1/embeddings`` as OpenAI's, or by another task; ``faults`` come before.

    ``starting``: before it tells of the endpoint. ``space``: of the answers. ``seen``: the headers
    of each request. ``on_request``: called first.
    """

    space: str = SPACE
    faults: Iterator[Fault] = field(default_factory=lambda: iter(()))
    starting: Iterator[Fault] = field(default_factory=lambda: iter(()))
    seen: list[Headers] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    most_texts: int = 1000
    on_request: Callable[[], None] = lambda: None
    task: str = "text-embedding"

    async def __call__(self, path: str, body: Any, headers: Headers) -> Raw:
        if path == "/endpoints/minilm":
            fault = next(self.starting, None)
            found = {"name": "minilm", "task": self.task, "versions": ["1"]}
            return fault or answer(200, found)
        self.on_request()
        if path != "/v1/embeddings":
            self.seen.append(headers)
            self.texts += body["inputs"]
            made = [self.other_kind(path, text) for text in body["inputs"]]
            return answer(200, made, x_headrace_space=self.space)
        assert self.task in ("text-embedding", "hybrid-embedding")
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

    def other_kind(self, path: str, text: str) -> list[Any]:
        """What Text Embeddings Inference's routes give of a text: no two texts have as much."""
        numbers = vector_of(text, self.space)
        if path == "/endpoints/minilm/embed_sparse":
            assert self.task in ("sparse-embedding", "hybrid-embedding")
            return [{"index": 7 * i, "value": n} for i, n in enumerate(numbers) if n > 0]
        assert path == "/endpoints/minilm/embed_all"
        assert self.task in ("multi-vector-embedding", "hybrid-embedding")
        return [numbers[i:] + numbers[:i] for i in range(1 + len(text) % 3)]
