"""Where endpoint objects and loader reports come from."""

from collections.abc import AsyncIterator
from typing import Protocol

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
