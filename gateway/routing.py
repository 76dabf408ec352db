"""The routing table: for each endpoint, which version answers which caller.

``reconcile.py`` builds a table from endpoint objects and the packages at hand and swaps it in
whole; ``handler.py`` reads it. Tables never change once built. A version that can't be served yet
does not push out one that can.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from contracts.endpoint import Arm, ModelEndpoint, Route
from contracts.model import ModelRef
from gateway.errors import ModelUnavailableError, UnknownEndpointError, UnknownVersionError
from gateway.packages import ServedModel
from gateway.split import Split

RETRY_AFTER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Way:
    """The version that a request goes to, and the role in which it gets it."""

    arm: Arm
    model: ServedModel


@dataclass(frozen=True, slots=True)
class EndpointRoutes:
    """One endpoint's part of the table. ``ways`` has stable last; shadows are not among them."""

    endpoint: ModelEndpoint
    ways: tuple[Way, ...] = ()
    split: Split | None = None  # None: stable has every caller
    versions: Mapping[str, ServedModel] = field(default_factory=dict)

    @property
    def stable(self) -> Way | None:
        """The version that answers by default."""
        return self.ways[-1] if self.ways else None

    def choose(self, key: str, forced_version: str | None = None) -> Way:
        """The way of a request.

        Args:
            key: whom to keep on one arm.
            forced_version: the version that the caller insists on.

        Raises:
            UnknownVersionError: the endpoint does not hold the forced version.
            ModelUnavailableError: the endpoint has no version to serve yet.
        """
        if forced_version is not None:
            model = self.versions.get(forced_version)
            if model is None:
                raise UnknownVersionError(
                    f"Endpoint {self.endpoint.name} does not hold version {forced_version[:40]!r}."
                )
            return Way(Arm.FORCED, model)
        if not self.ways:
            raise ModelUnavailableError(
                f"Endpoint {self.endpoint.name} has no version to serve yet.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        if self.split is None:
            return self.ways[-1]
        return self.ways[self.split.choose(key)]


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """All endpoints, by name."""

    endpoints: Mapping[str, EndpointRoutes] = field(default_factory=dict)

    def __getitem__(self, endpoint: str) -> EndpointRoutes:
        """The endpoint's routes.

        Raises:
            UnknownEndpointError: no such endpoint.
        """
        routes = self.endpoints.get(endpoint)
        if routes is None:
            raise UnknownEndpointError(f"There is no endpoint {endpoint[:80]!r}.")
        return routes

    def models(self) -> dict[str, ServedModel]:
        """Every package that the table can send a request to, by package id."""
        return {
            model.ref.package: model
            for routes in self.endpoints.values()
            for model in (*(way.model for way in routes.ways), *routes.versions.values())
        }


def build_table(
    endpoints: Iterable[ModelEndpoint],
    opened: Mapping[str, ServedModel],
    previous: RoutingTable,
    serves: Callable[[ModelRef], bool],
) -> RoutingTable:
    """The table for these endpoints.

    Args:
        endpoints: what the source holds now.
        opened: packages at hand, by package id.
        previous: the table in use: an endpoint whose new stable version can't be served keeps the
            routes it has here.
        serves: whether some Triton serves a package now.
    """
    return RoutingTable(
        MappingProxyType(
            {endpoint.name: _routes(endpoint, opened, previous, serves) for endpoint in endpoints}
        )
    )


def _routes(
    endpoint: ModelEndpoint,
    opened: Mapping[str, ServedModel],
    previous: RoutingTable,
    serves: Callable[[ModelRef], bool],
) -> EndpointRoutes:
    old = previous.endpoints.get(endpoint.name)
    stable = endpoint.status.stable
    ready = stable is not None and stable.package in opened
    if old is not None and old.stable is not None and stable is not None:
        same = old.stable.model.ref.package == stable.package
        # The old version answers until the new one can, or until nobody holds the old one either.
        if not same and not (ready and serves(stable)) and serves(old.stable.model.ref):
            return EndpointRoutes(endpoint, old.ways, old.split, old.versions)
    versions = _versions(endpoint, opened)
    if stable is None or not ready:
        return EndpointRoutes(endpoint, versions=versions)
    split_routes = [
        route
        for route in endpoint.status.routes
        if route.arm is Arm.CANARY and route.weight > 0 and route.ref.package in opened
    ]
    canaries = tuple(Way(route.arm, opened[route.ref.package]) for route in split_routes)
    ways = (*canaries, Way(Arm.STABLE, opened[stable.package]))
    return EndpointRoutes(endpoint, ways, _split(endpoint.name, split_routes), versions)


def _split(endpoint: str, canaries: list[Route]) -> Split | None:
    if not canaries:
        return None
    # The candidate's package names the rollout: another one meets other callers first.
    salt = f"{endpoint}:{canaries[0].ref.package}"
    weights = [route.weight for route in canaries]
    return Split.of_weights(salt, [*weights, 100 - sum(weights)])


def _versions(
    endpoint: ModelEndpoint, opened: Mapping[str, ServedModel]
) -> Mapping[str, ServedModel]:
    """What a caller may force; routed packages win over others of the same version."""
    status = endpoint.status
    refs = (*status.packages, *(route.ref for route in status.routes))
    held = {ref.version: opened[ref.package] for ref in refs if ref.package in opened}
    return MappingProxyType(held)
