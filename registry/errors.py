"""What can go wrong in the registry, as a tree.

All of it is the environment's fault and is tried again.
"""


class RegistryError(Exception):
    """The root; its message is a sentence for the person who reads ``headrace status``."""


class SourceUnavailableError(RegistryError):
    """MLflow does not answer, or not in time."""


class SourceRefusedError(RegistryError):
    """MLflow answered that it will not do what it was asked; ``status`` is HTTP's, 0 without one.

    Nothing waits for it: what it concerns is tried again now and then. ``missing``: MLflow itself
    says, in its own format, that what was asked for does not exist.
    """

    def __init__(self, sentence: str, status: int = 0, *, missing: bool = False) -> None:
        super().__init__(sentence)
        self.status = status
        self.missing = missing


class EndpointConflictError(RegistryError):
    """The endpoint changed since it was read: read it again and decide again."""


class EndpointUnreadableError(RegistryError):
    """An endpoint's file is not an endpoint."""


class TritonUnavailableError(RegistryError):
    """Triton does not answer, or not in time."""


class TritonLateError(TritonUnavailableError):
    """Triton had not answered when a call's deadline passed; its connection did not break."""


class TritonRefusedError(RegistryError):
    """Triton answered and refused; the message holds its own words."""


class BackendMissingError(TritonRefusedError):
    """Triton lacks the backend that the model's configuration names."""


class DeviceUnfitError(RegistryError):
    """The device of a Triton can't run a package, or is not what the operator promised."""


class PyfuncNotAllowedError(RegistryError):
    """A package is Python of its users' own, which the operator does not allow to run."""


class ModelProcessGoneError(TritonRefusedError):
    """The process that ran the model is gone; Triton starts no other until it is loaded again."""
