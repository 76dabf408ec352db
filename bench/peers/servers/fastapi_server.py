"""FastAPI with ONNX Runtime in process, two workers (``uvicorn --workers 2``).

After FastAPI's pages "Server Workers" (processes for cores), "Concurrency and async / await" (plain
``def`` for what computes) and "Response Model - Return Type" (pydantic writes the JSON), and
Starlette's page "Thread Pool": one thread a worker, so that texts do not share the core.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import FastAPI
from pydantic import BaseModel

from bench.peers.servers.embedder import Embedder

embedder = Embedder.from_environment()


class Texts(BaseModel):
    """A request."""

    inputs: list[str]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    del app
    anyio.to_thread.current_default_thread_limiter().total_tokens = 1
    yield


app = FastAPI(lifespan=_lifespan)


@app.get("/ready")
async def ready() -> bool:
    """Whether it serves."""
    return True


@app.post("/embed")
def embed(texts: Texts) -> list[list[float]]:
    """A vector a text."""
    vectors: list[list[float]] = embedder.embed(texts.inputs).tolist()
    return vectors
