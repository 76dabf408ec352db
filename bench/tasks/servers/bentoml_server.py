"""A BentoML service of both tasks, with adaptive batching.

After BentoML's pages "Adaptive batching" (``batchable``; rows of several requests are one call),
"Workers" (one a core) and "Configurations" (``traffic.timeout``; no access log).
"""

import os
from typing import Any

import bentoml

from bench.tasks.servers.compute import Computer

_SECONDS = float(os.environ["PEERS_DEADLINE_SECONDS"])
_MOST_ROWS = 512  # a request of 200 documents is one call, with others' rows beside it


@bentoml.service(
    workers=1,
    traffic={"timeout": _SECONDS},
    logging={"access": {"enabled": False}},
)
class Tasks:
    """The one service; the package says which of its routes makes sense."""

    def __init__(self) -> None:
        self._computer = Computer.from_environment()

    @bentoml.api(  # type: ignore[untyped-decorator]
        batchable=True, max_batch_size=_MOST_ROWS, max_latency_ms=int(_SECONDS * 1000)
    )
    def rank(self, inputs: list[list[str]]) -> list[float]:
        """The score of each pair."""
        return self._computer.rank([(query, document) for query, document in inputs])

    @bentoml.api(  # type: ignore[untyped-decorator]
        batchable=True, max_batch_size=_MOST_ROWS, max_latency_ms=int(_SECONDS * 1000)
    )
    def entities(self, inputs: list[str]) -> list[list[dict[str, Any]]]:
        """The entities of each text."""
        return self._computer.entities(inputs)
