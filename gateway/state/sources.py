"""Opens what a gateway is told by: in folders or in a cluster, as the settings say."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from contracts.controller import BEAT_FOLDER, ControllerBeat
from contracts.endpoint import ModelEndpoint
from contracts.loading import LoaderReport
from gateway.settings import Settings
from gateway.state import cluster
from gateway.state.cluster import ClusterSource
from gateway.state.files import FolderSource
from gateway.state.kept import Keeper
from service.cluster import access, endpoints, leases
from service.cluster.mirror import Mirror

_KEPT_FILE = "last-told.json"
_BEAT_POLL_SECONDS = 1.0


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


@dataclass(frozen=True, slots=True)
class Sources:
    """What a gateway is told by, and what keeps what it was told.

    ``keeper``: None where endpoints lie on a disk themselves.
    """

    endpoints: EndpointSource
    reports: ReportSource
    beats: BeatSource
    keeper: Keeper | None = None


def opened(settings: Settings, environment: Mapping[str, str]) -> Sources:
    """All of them.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    keeper = None
    if access.in_cluster(settings.endpoints):
        keeper = Keeper(settings.cache_folder / _KEPT_FILE, settings.endpoints)
    return Sources(
        endpoints=endpoint_source(settings, environment),
        reports=report_source(settings, environment),
        beats=beat_source(settings, environment),
        keeper=keeper,
    )


def endpoint_source(settings: Settings, environment: Mapping[str, str]) -> EndpointSource:
    """Where endpoints come from.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    if not access.in_cluster(settings.endpoints):
        return FolderSource(settings.endpoints_folder, ModelEndpoint)
    found = cluster.opened(settings.endpoints, environment)
    return ClusterSource(Mirror(found.reader, endpoints.collection(found.name), endpoints.read))


def report_source(settings: Settings, environment: Mapping[str, str]) -> ReportSource:
    """Where loaders' reports come from; with endpoints in a cluster, from beside them.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    flag = settings.reports
    if not flag and access.in_cluster(settings.endpoints):
        flag = settings.endpoints
    if not access.in_cluster(flag):
        return FolderSource(settings.reports_folder, LoaderReport)
    found = cluster.opened(flag, environment)
    return ClusterSource(Mirror(found.reader, leases.reports(found.name), leases.read_report))


def beat_source(settings: Settings, environment: Mapping[str, str]) -> BeatSource:
    """Where the controller's signs of life come from: beside the endpoints.

    Raises:
        AccessError: no API server is known, or how to sign in.
    """
    if not access.in_cluster(settings.endpoints):
        folder = settings.endpoints_folder / BEAT_FOLDER
        return FolderSource(folder, ControllerBeat, poll_seconds=_BEAT_POLL_SECONDS)
    found = cluster.opened(settings.endpoints, environment)
    return ClusterSource(Mirror(found.reader, leases.beats(found.name), leases.read_beat))
