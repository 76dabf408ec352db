"""What the gateway asks of an engine, and how an engine can fail.

Batchers turn these errors into what a caller is told:

EngineError
├── EngineUnavailableError   nobody answers there, or it says that it goes away
│   └── EngineProcessGoneError  it answers, and what ran the model is gone
├── EngineMissingModelError  it answers, and does not hold the model
├── EngineTimeoutError       no answer within the time given
└── EngineModelError         the model itself failed on this batch
"""

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


class EngineError(Exception):
    """An engine did not answer a batch; the message is for operators."""


class EngineUnavailableError(EngineError):
    """Nobody answers at the address, or the engine is going away."""


class EngineProcessGoneError(EngineUnavailableError):
    """The model's process is gone, which no probe tells: the engine still calls the model ready."""


class EngineMissingModelError(EngineError):
    """The engine answers and does not hold the model."""


class EngineTimeoutError(EngineError):
    """No answer within the time given."""


class EngineModelError(EngineError):
    """The model failed on this batch; another engine would fail as well."""


class Engine(Protocol):
    """One address at which batches are computed."""

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        """The result tensor, float32 ``[rows, width]``.

        Raises:
            EngineError: one of ``gateway.engine.protocol``.
        """
        ...

    async def ready(self, model: str, timeout_seconds: float) -> bool:
        """Whether the engine answers and holds the model; never raises for an absent engine."""
        ...

    async def close(self) -> None:
        """Gives the connection back; calls in flight fail as unavailable."""
        ...
