"""The interface of an engine, which is the connection to one Triton, and its errors.

Batchers turn these into errors for callers:

EngineError
├── EngineUnavailableError   no engine answers at the address, or it is shutting down
│   └── EngineProcessGoneError  it answers, but the model's process or GPU is gone
├── EngineMissingModelError  it answers, but does not hold the model
├── EngineTimeoutError       no answer within the time given
├── EngineBusyError          more batches or prompts wait there than it takes
└── EngineModelError         the model itself failed on this batch
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Work:
    """One batch for one model.

    ``tensors``: what the graph declares, each int64 or int32 of shape ``[rows, bucket]``, or
    float64 ``[rows, features]`` of rows of tables; of a packed engine those of
    ``contracts.tasks.packed_inputs``.
    ``output`` names the one result tensor, float32 of shape ``[rows, width]``, or
    ``[rows, bucket, width]`` if it has values for each token, or ``[tokens, width]`` of a packed
    engine.
    """

    model: str
    output: str
    tensors: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt for a model that generates.

    Attributes:
        model: Triton's name of it.
        ids: tokens, at least one.
        most: tokens that are generated at most.
        temperature: 0 for the most likely token each time.
        top_p: share of the most likely tokens that are chosen among.
        seed: the same one gives the same tokens.
        stop_ids: tokens that end the text.
    """

    model: str
    ids: Sequence[int]
    most: int
    temperature: float
    top_p: float
    seed: int
    stop_ids: Sequence[int]


class Ending(Enum):
    """Why no more tokens come."""

    STOPPED = 1  # by one of ``stop_ids``, which is the last token
    AT_LIMIT = 2


@dataclass(frozen=True, slots=True)
class TokenChunk:
    """Tokens that came, at least one; ``ending`` is set with the last."""

    tokens: list[int]
    ending: Ending | None = None


class TokenStream(Protocol):
    """The tokens of one prompt, as they come."""

    async def next(self) -> TokenChunk:
        """The next tokens; not to be called after an ending.

        Raises:
            EngineError: one of ``gateway.engine.protocol``.
        """

    def close(self) -> None:
        """Ends the stream: where tokens would still come, the engine is told to stop."""


class EngineError(Exception):
    """An engine did not answer a batch; the message is for operators."""


class EngineUnavailableError(EngineError):
    """No engine answers at the address, or it is shutting down."""


class EngineProcessGoneError(EngineUnavailableError):
    """The model's process is gone, or its GPU. Probes do not show it: the model is called ready."""


class EngineMissingModelError(EngineError):
    """The engine answers and does not hold the model."""


class EngineTimeoutError(EngineError):
    """No answer within the time given."""


class EngineBusyError(EngineError):
    """More batches or prompts wait there than it takes; the model is well."""


class EngineModelError(EngineError):
    """The model failed on this batch; whether that is the Triton's fault, another one shows."""


class Engine(Protocol):
    """One address at which batches are computed."""

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        """The result tensor, float32, rows first.

        Raises:
            EngineError: one of ``gateway.engine.protocol``.
        """

    def generate(self, prompt: Prompt, timeout_seconds: float) -> TokenStream:
        """Begins to generate; what fails, fails in the stream, which somebody has to close."""

    async def ready(self, model: str, timeout_seconds: float) -> bool:
        """Whether the engine answers and holds the model; never raises for an absent engine."""

    async def close(self) -> None:
        """Closes the connection; calls in flight fail as unavailable."""
