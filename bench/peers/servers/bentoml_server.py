"""A BentoML service with adaptive batching.

After BentoML's pages "Adaptive batching" (``batchable``, ``max_batch_size``, and the wished latency
as ``max_latency_ms``), "Workers" (one a core) and "Configurations" (``traffic.timeout``; access log
and metrics stay as they are but for the log, which is off).
"""

import os

import bentoml
import numpy as np

from bench.peers.servers.embedder import MOST_ROWS, Embedder

_SECONDS = float(os.environ["PEERS_DEADLINE_SECONDS"])


@bentoml.service(
    workers=1,
    traffic={"timeout": _SECONDS},
    logging={"access": {"enabled": False}},
)
class Embeddings:
    """The one service."""

    def __init__(self) -> None:
        self._embedder = Embedder.from_environment()

    @bentoml.api(  # type: ignore[untyped-decorator]
        batchable=True, max_batch_size=MOST_ROWS, max_latency_ms=int(_SECONDS * 1000)
    )
    def embed(self, inputs: list[str]) -> np.ndarray:
        """A vector a text; BentoML joins the lists of several requests."""
        return self._embedder.embed(inputs)
