"""How an engine can fail. The batchers turn these into what a caller is told.

EngineError
├── EngineUnavailableError   nobody answers there, or it says that it goes away
│   └── EngineProcessGoneError  it answers, and what ran the model is gone
├── EngineMissingModelError  it answers, and does not hold the model
├── EngineTimeoutError       no answer within the time given
└── EngineModelError         the model itself failed on this batch
"""


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
