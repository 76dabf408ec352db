"""What the gateway asks of an engine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Work:
    """One padded batch for one model.

    ``tensors``: what the graph declares, each int64 or int32 of shape ``[rows, bucket]``.
    ``output`` names the one result tensor, float32 of shape ``[rows, width]``.
    """

    model: str
    output: str
    tensors: Mapping[str, NDArray[Any]]


class Engine(Protocol):
    """One address at which batches are computed."""

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        """The result tensor, float32 ``[rows, width]``.

        Raises:
            EngineError: one of ``gateway.engine.errors``.
        """
        ...

    async def ready(self, model: str, timeout_seconds: float) -> bool:
        """Whether the engine answers and holds the model; never raises for an absent engine."""
        ...

    async def close(self) -> None:
        """Gives the connection back; calls in flight fail as unavailable."""
        ...
