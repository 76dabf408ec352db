"""The routing table: for each endpoint, which version answers which caller.

A table is built from endpoint objects and the packages at hand, and swapped in whole. Tables never
change once built. A version that can't be served yet does not replace one that can.

During a rollout the candidate's callers are the first interval of the hash space, and stable's the
rest; after promotion the new version keeps that interval and grows, and the version before it, the
control, keeps the end. So nobody who has met the new version is sent back by a step forward.

A candidate that is withheld, because nobody may be left to take it back, gets neither callers nor
copies: its callers are stable's until the controller is heard again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from contracts.endpoint import CANDIDATES, Arm, ModelEndpoint, Route
from contracts.model import ModelRef
from gateway.errors import (
    RETRY_AFTER_SECONDS,
    ModelUnavailableError,
    UnknownEndpointError,
    UnknownVersionError,
)
from gateway.packages import ServedModel
from gateway.routing.split import Split, below

_SPLIT_ORDER = (Arm.CANARY, Arm.STABLE, Arm.CONTROL)
# Who answers where one failed. A version that was promoted is on trial until its bake is over.
_STANDS_IN = {Arm.CANARY: Arm.STABLE, Arm.STABLE: Arm.CONTROL, Arm.CONTROL: Arm.STABLE}


@dataclass(frozen=True, slots=True)
class RouteTarget:
    """The version that a request goes to, and the role in which it gets it."""

    arm: Arm
    model: ServedModel


@dataclass(frozen=True, slots=True)
class Shadow:
    """A version that gets copies of requests: those whose id lies in the first ``percent``."""

    target: RouteTarget
    percent: float
    salt: str

    def takes(self, request_id: str) -> bool:
        """Whether a request is among the copied ones; the same in every gateway."""
        return below(self.salt, request_id, self.percent)


@dataclass(frozen=True, slots=True)
class EndpointRoutes:
    """One endpoint's part of the table.

    ``targets`` are in the order of the split's intervals; shadows are not among them.
    """

    endpoint: ModelEndpoint
    targets: tuple[RouteTarget, ...] = ()
    split: Split | None = None  # None: stable has every caller
    versions: Mapping[str, ServedModel] = field(default_factory=dict)
    shadow: Shadow | None = None
    withheld: bool = False  # the candidate gets nobody, whatever the status says

    @property
    def stable(self) -> RouteTarget | None:
        """The version that answers by default."""
        return self._of(Arm.STABLE)

    def instead_of(self, target: RouteTarget) -> RouteTarget | None:
        """The version that answers where ``target``'s failed; none for a forced one."""
        arm = _STANDS_IN.get(target.arm)
        return None if arm is None else self._of(arm)

    def targets_of(self, key: str, forced_version: str | None = None) -> tuple[RouteTarget, ...]:
        """Every version that may answer a request: its own, then the one that stands in.

        A rollout must not cost a caller the answer that the other version would give.

        Raises:
            UnknownVersionError, ModelUnavailableError: see ``choose``.
        """
        target = self.choose(key, forced_version)
        other = self.instead_of(target)
        return (target,) if other is None else (target, other)

    def _of(self, arm: Arm) -> RouteTarget | None:
        for target in self.targets:
            if target.arm is arm:
                return target
        return None

    def choose(self, key: str, forced_version: str | None = None) -> RouteTarget:
        """The target of a request.

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
            return RouteTarget(Arm.FORCED, model)
        if not self.targets:
            raise ModelUnavailableError(
                f"Endpoint {self.endpoint.name} has no version to serve yet.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        if self.split is None:
            return self.targets[0]
        return self.targets[self.split.choose(key)]


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
            for model in (
                *(target.model for target in routes.targets),
                *routes.versions.values(),
                *(() if routes.shadow is None else (routes.shadow.target.model,)),
            )
        }


def build_table(
    endpoints: Iterable[ModelEndpoint],
    opened: Mapping[str, ServedModel],
    previous: RoutingTable,
    serves: Callable[[ModelRef], bool],
    withheld: Collection[str] = (),
) -> RoutingTable:
    """The table for these endpoints.

    Args:
        endpoints: what the source holds now.
        opened: packages at hand, by package id.
        previous: the table in use: an endpoint whose new stable version can't be served keeps the
            routes it has here.
        serves: whether some Triton serves a package now.
        withheld: names of the endpoints whose candidates get nobody now.
    """
    return RoutingTable(
        MappingProxyType(
            {
                endpoint.name: _routes(
                    endpoint, opened, previous, serves, withheld=endpoint.name in withheld
                )
                for endpoint in endpoints
            }
        )
    )


def _routes(
    endpoint: ModelEndpoint,
    opened: Mapping[str, ServedModel],
    previous: RoutingTable,
    serves: Callable[[ModelRef], bool],
    *,
    withheld: bool,
) -> EndpointRoutes:
    old = previous.endpoints.get(endpoint.name)
    stable = endpoint.status.stable
    ready = stable is not None and stable.package in opened
    if old is not None and old.stable is not None and stable is not None:
        same = old.stable.model.ref.package == stable.package
        # The old version answers until the new one can, or until nobody holds the old one either.
        if not same and not (ready and serves(stable)) and serves(old.stable.model.ref):
            return EndpointRoutes(endpoint, old.targets, old.split, old.versions)
    versions = _versions(endpoint, opened)
    if stable is None or not ready:
        return EndpointRoutes(endpoint, versions=versions)
    routes = [
        route
        for arm in _SPLIT_ORDER
        for route in endpoint.status.routes
        if route.arm is arm and route.ref.package in opened
    ]
    routes = [route for route in routes if route.weight > 0 or route.arm is Arm.STABLE]
    if withheld:
        routes = [route for route in routes if route.arm not in CANDIDATES]
    return EndpointRoutes(
        endpoint,
        tuple(RouteTarget(route.arm, opened[route.ref.package]) for route in routes),
        _split(endpoint, routes),
        versions,
        None if withheld else _shadow(endpoint, opened),
        withheld,
    )


def _split(endpoint: ModelEndpoint, routes: list[Route]) -> Split | None:
    """The split over routes in order; stable takes over what packages not at hand leave."""
    if len(routes) < 2:
        return None
    others = sum(route.weight for route in routes if route.arm is not Arm.STABLE)
    weights = [100 - others if route.arm is Arm.STABLE else route.weight for route in routes]
    return Split.of_weights(_salt(endpoint), weights)


def _shadow(endpoint: ModelEndpoint, opened: Mapping[str, ServedModel]) -> Shadow | None:
    for route in endpoint.status.routes:
        if route.arm is Arm.SHADOW and route.weight > 0 and route.ref.package in opened:
            target = RouteTarget(Arm.SHADOW, opened[route.ref.package])
            # Not the split's salt: who is copied says nothing of who gets the candidate later.
            return Shadow(target, route.weight, f"{_salt(endpoint)}/shadow")
    return None


def _salt(endpoint: ModelEndpoint) -> str:
    """Names the rollout, so that another one meets other callers first."""
    rollout = endpoint.status.rollout
    if rollout is not None:
        return rollout.id
    candidates = (Arm.CANARY, Arm.SHADOW, Arm.CONTROL)
    packages = [route.ref.package for route in endpoint.status.routes if route.arm in candidates]
    return f"{endpoint.name}:{packages[0] if packages else ''}"


def _versions(
    endpoint: ModelEndpoint, opened: Mapping[str, ServedModel]
) -> Mapping[str, ServedModel]:
    """What a caller may force; routed packages win over others of the same version."""
    status = endpoint.status
    refs = (*status.packages, *(route.ref for route in status.routes))
    held = {ref.version: opened[ref.package] for ref in refs if ref.package in opened}
    return MappingProxyType(held)
