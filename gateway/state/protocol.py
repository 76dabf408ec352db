"""Where endpoint objects, loader reports and the controller's signs of life come from."""

from collections.abc import AsyncIterator
from typing import Protocol

from contracts.controller import ControllerBeat
from contracts.endpoint import ModelEndpoint
from contracts.loading import LoaderReport


class EndpointSource(Protocol):
    """All endpoints, again and again."""

    def watch(self) -> AsyncIterator[tuple[ModelEndpoint, ...]]:
        """The whole set: at once, then whenever it has changed. Never ends, never raises."""
        ...


class ReportSource(Protocol):
    """All loaders' reports, again and again."""

    def watch(self) -> AsyncIterator[tuple[LoaderReport, ...]]:
        """The whole set: at once, then whenever it has changed. Never ends, never raises."""
        ...


class BeatSource(Protocol):
    """The controller's last sign of life, again and again."""

    def watch(self) -> AsyncIterator[tuple[ControllerBeat, ...]]:
        """One sign or none: at once, then whenever it has changed. Never ends, never raises."""
        ...
