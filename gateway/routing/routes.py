"""The routing table: for each endpoint, which version answers which caller.

A table is built from endpoint objects and the packages that this gateway has opened. It is
immutable; a new one replaces it as a whole. A new stable version that no Triton serves yet does not
replace one that a Triton serves. Nor does a pool of Tritons that does not serve an endpoint yet
replace one that does.

Callers are hashed into a space that is split into intervals, one for each arm. During a rollout the
candidate has the first interval, which grows with each step, and stable has the rest. After the
promotion the new version keeps the first interval, and the old version (the control) keeps some
callers at the end. So a step forward never moves a caller from the new version back to the old one.
A caller's position depends only on the salt and its sticky key, so that all gateways agree on it:
the value of ``x-headrace-key``, or the request id without one.

While the controller's sign of life is too old, the candidate is withheld, since the controller
could not end its rollout. It gets neither callers nor mirrored requests, and its callers go to
stable.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from types import MappingProxyType

from contracts.endpoint import CANDIDATES, Arm, ModelEndpoint, Route
from contracts.model import DEFAULT_POOL, ModelRef
from contracts.tasks import GIVE_VECTORS
from gateway.errors import (
    RETRY_AFTER_SECONDS,
    ModelUnavailableError,
    UnknownEndpointError,
    UnknownVersionError,
)
from gateway.packages import ServedModel

_SPACE = 1 << 64
NEXT_SPACE = "next"  # a caller's name of the vector space that waits for its cutover


def position(salt: str, key: str) -> int:
    """The position of a caller in ``[0, 2**64)``: uniform over callers, independent over salts.

    Args:
        salt: the rollout's, so that each rollout begins with other callers.
        key: the sticky key; any text, lone surrogates included.
    """
    text = f"{salt}\x00{key}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def below(salt: str, key: str, percent: float) -> bool:
    """Whether a key's position is in the first ``percent`` of the space."""
    return position(salt, key) < round(percent / 100 * _SPACE)


@dataclass(frozen=True, slots=True)
class Split:
    """Half-open intervals that cover the whole space; interval ``i`` ends before ``ends[i]``."""

    salt: str
    ends: tuple[int, ...]

    @classmethod
    def of_weights(cls, salt: str, weights: Sequence[float]) -> "Split":
        """The split whose interval ``i`` holds ``weights[i]`` percent of callers.

        The last interval ends at the end of the space. With the order canary, stable, control, an
        interval that grows takes callers only from its neighbour.

        Raises:
            ValueError: a negative weight, or a sum that is not 100.
        """
        if not weights or min(weights) < 0 or abs(sum(weights) - 100) > 1e-6:
            raise ValueError(f"weights must be percentages that sum to 100, not {list(weights)}")
        ends: list[int] = []
        total = 0.0
        for weight in weights[:-1]:
            total += weight
            ends.append(min(_SPACE, round(total / 100 * _SPACE)))
        return cls(salt, (*ends, _SPACE))

    def choose(self, key: str) -> int:
        """Index of the interval that holds the caller's position."""
        return bisect_right(self.ends, position(self.salt, key))


_SPLIT_ORDER = (Arm.CANARY, Arm.STABLE, Arm.CONTROL)
# The arm that answers where another failed. A promoted version (stable) has a fallback until its
# bake is over: as long as there is a control.
_FALLBACKS = {Arm.CANARY: Arm.STABLE, Arm.STABLE: Arm.CONTROL, Arm.CONTROL: Arm.STABLE}


@dataclass(frozen=True, slots=True)
class RouteTarget:
    """A version, and the arm in which it gets requests."""

    arm: Arm
    model: ServedModel


def _have_one_space(one: ServedModel, other: ServedModel) -> bool:
    """Whether one may answer for the other. If no space is known, those of a version have one."""
    if one.ref.space or other.ref.space or one.task not in GIVE_VECTORS:
        return one.ref.space == other.ref.space
    return one.ref.version == other.ref.version


@dataclass(frozen=True, slots=True)
class Shadow:
    """A version and the ``percent`` of requests mirrored to it, chosen by a hash of their ids."""

    target: RouteTarget
    percent: float
    salt: str

    def takes(self, request_id: str) -> bool:
        """Whether a request may be mirrored. The same in every gateway."""
        return below(self.salt, request_id, self.percent)


@dataclass(frozen=True, slots=True)
class EndpointRoutes:
    """One endpoint's part of the table.

    ``targets`` are in the order of the split's intervals, without the shadow, which is no caller's.
    ``versions`` are those that a caller may force, by version. Tritons of ``pool`` alone answer.
    ``next_space`` has passed its checks in shadow and waits for its cutover; empty if none does.
    """

    endpoint: ModelEndpoint
    targets: tuple[RouteTarget, ...] = ()
    split: Split | None = None  # None: the first target, which is stable, has every caller
    versions: Mapping[str, ServedModel] = field(default_factory=dict)
    shadow: Shadow | None = None
    withheld: bool = False  # the candidate gets no callers, whatever the endpoint's status says
    pool: str = DEFAULT_POOL
    next_space: str = ""

    @property
    def stable(self) -> RouteTarget | None:
        """The version that answers by default."""
        return self._target_with(Arm.STABLE)

    def models(self) -> list[ServedModel]:
        """All versions of it that get requests, stable first."""
        stable, shadow = self.stable, self.shadow
        targets = [*([] if stable is None else [stable]), *self.targets]
        if shadow is not None:
            targets.append(shadow.target)
        return [*(target.model for target in targets), *self.versions.values()]

    def fallback_of(self, target: RouteTarget) -> RouteTarget | None:
        """The version that answers where ``target``'s failed; None for a forced version.

        None of another space: callers of one arm may put all its vectors into one index, even if a
        person says that those of both arms may be compared.
        """
        arm = _FALLBACKS.get(target.arm)
        found = None if arm is None else self._target_with(arm)
        return found if found is not None and _have_one_space(found.model, target.model) else None

    def target_and_fallback(
        self, key: str, forced_version: str | None = None, space: str | None = None
    ) -> tuple[RouteTarget, ...]:
        """The target of a request, then its fallback if it has one; raises as ``choose`` does.

        The fallback exists so that a rollout never costs a caller an answer.
        """
        if space is None:
            target = self.choose(key, forced_version)
        else:
            target = self._choose_of_space(key, forced_version, space)
        fallback = self.fallback_of(target) if len(self.targets) > 1 else None
        return (target,) if fallback is None else (target, fallback)

    def _target_with(self, arm: Arm) -> RouteTarget | None:
        for target in self.targets:
            if target.arm is arm:
                return target
        return None

    def _choose_of_space(self, key: str, forced_version: str | None, space: str) -> RouteTarget:
        """The target of a request that takes vectors of one space, and of no other.

        It is the usual one if that is of the space, so that rollouts within a space go on.

        Raises:
            UnknownVersionError: the endpoint does not hold the forced version.
            ModelUnavailableError: no such version is of this space.
        """
        wanted = self.next_space if space == NEXT_SPACE else space
        if wanted and (forced_version is not None or self.targets):
            target = self.choose(key, forced_version)
            if target.model.ref.space == wanted:
                return target
        if wanted and forced_version is None:
            for model in self.models():
                if model.ref.space == wanted:
                    return RouteTarget(Arm.FORCED, model)
        what = "no version" if forced_version is None else f"no version {forced_version[:40]}"
        what += f" of the vector space {space[:40]!r} (x-headrace-space)"
        if space == NEXT_SPACE:
            what += ", which is there once its checks in shadow have passed"
        held = ", ".join(sorted({model.ref.space for model in self.models()} - {""})) or "none"
        raise ModelUnavailableError(
            f"Endpoint {self.endpoint.name} holds {what}; its spaces are now: {held}.",
            retry_after_seconds=RETRY_AFTER_SECONDS,
        )

    def choose(self, key: str, forced_version: str | None = None) -> RouteTarget:
        """The target of a request that names no space.

        Args:
            key: the sticky key; the same key gets the same arm.
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
            unserved = self.endpoint.status.unserved
            raise ModelUnavailableError(
                f"Endpoint {self.endpoint.name} has no version to serve yet"
                f"{f': {unserved}' if unserved else ''}.",
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
        """The endpoint's routes."""
        routes = self.endpoints.get(endpoint)
        if routes is None:
            raise UnknownEndpointError(f"There is no endpoint {endpoint[:80]!r}.")
        return routes

    def models(self) -> dict[str, ServedModel]:
        """Every package to which the table may route a request, by package id."""
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
    serves: Callable[[str, ModelRef], bool],
    withheld: Collection[str] = (),
) -> RoutingTable:
    """The table for these endpoints.

    Args:
        endpoints: all endpoint objects as they are now.
        opened: the packages that this gateway has opened, by package id.
        previous: the table in use. An endpoint keeps its routes from here while its new stable
            version can't be served.
        serves: whether some Triton of a pool serves a package now.
        withheld: names of the endpoints whose candidates get no callers now.
    """
    return RoutingTable(
        MappingProxyType(
            {
                endpoint.name: _with_next_space(
                    _routes(endpoint, opened, previous, serves, withheld=endpoint.name in withheld)
                )
                for endpoint in endpoints
            }
        )
    )


def _routes(
    endpoint: ModelEndpoint,
    opened: Mapping[str, ServedModel],
    previous: RoutingTable,
    serves: Callable[[str, ModelRef], bool],
    *,
    withheld: bool,
) -> EndpointRoutes:
    old = previous.endpoints.get(endpoint.name)
    pool = _pool(endpoint, old, serves)
    stable = endpoint.status.stable
    ready = stable is not None and stable.package in opened
    if old is not None and old.stable is not None and stable is not None:
        same = old.stable.model.ref.package == stable.package
        # The old version answers until a Triton serves the new one, or none serves the old one.
        if (
            not same
            and not (ready and serves(pool, stable))
            and serves(old.pool, old.stable.model.ref)
        ):
            return _without_candidate(old, endpoint, withheld=withheld)
    versions = _versions(endpoint, opened)
    if stable is None or not ready:
        return EndpointRoutes(endpoint, versions=versions, pool=pool)
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
        pool,
    )


def _with_next_space(routes: EndpointRoutes) -> EndpointRoutes:
    """The routes with ``next_space``, if a rollout waits for its cutover."""
    state, stable = routes.endpoint.status.rollout, routes.stable
    if state is None or state.passed_at is None or stable is None:
        return routes
    space = state.candidate.space
    return routes if space == stable.model.ref.space else replace(routes, next_space=space)


def _pool(
    endpoint: ModelEndpoint,
    old: EndpointRoutes | None,
    serves: Callable[[str, ModelRef], bool],
) -> str:
    """The pool whose Tritons answer.

    That is the status's, unless none of its Tritons serves the stable version and another pool's
    does: the one that the endpoint moves to, or the one that it has just left.
    """
    status, stable = endpoint.status, endpoint.status.stable
    pools = status.pools if old is None else (*status.pools, old.pool)
    if stable is not None:
        for pool in pools:
            if serves(pool, stable):
                return pool
    return status.pool


def _without_candidate(
    old: EndpointRoutes, endpoint: ModelEndpoint, *, withheld: bool
) -> EndpointRoutes:
    """The old routes without the old rollout's candidate, whose callers go to the old stable."""
    targets = tuple(target for target in old.targets if target.arm not in CANDIDATES)
    split = old.split if len(targets) == len(old.targets) else None
    return EndpointRoutes(endpoint, targets, split, old.versions, withheld=withheld, pool=old.pool)


def _split(endpoint: ModelEndpoint, routes: list[Route]) -> Split | None:
    """The split over routes in order. Stable also gets the share of packages not opened yet."""
    if len(routes) < 2:
        return None
    others = sum(route.weight for route in routes if route.arm is not Arm.STABLE)
    weights = [100 - others if route.arm is Arm.STABLE else route.weight for route in routes]
    return Split.of_weights(_salt(endpoint), weights)


def _shadow(endpoint: ModelEndpoint, opened: Mapping[str, ServedModel]) -> Shadow | None:
    for route in endpoint.status.routes:
        if route.arm is Arm.SHADOW and route.weight > 0 and route.ref.package in opened:
            target = RouteTarget(Arm.SHADOW, opened[route.ref.package])
            # Another salt than the split's, so that the mirrored requests are not those of the
            # callers who get the candidate first.
            return Shadow(target, route.weight, f"{_salt(endpoint)}/shadow")
    return None


def _salt(endpoint: ModelEndpoint) -> str:
    """The salt of the caller hash: one for each rollout, so that each begins with other callers."""
    rollout = endpoint.status.rollout
    if rollout is not None:
        return rollout.id
    candidates = (Arm.CANARY, Arm.SHADOW, Arm.CONTROL)
    packages = [route.ref.package for route in endpoint.status.routes if route.arm in candidates]
    return f"{endpoint.name}:{packages[0] if packages else ''}"


def _versions(
    endpoint: ModelEndpoint, opened: Mapping[str, ServedModel]
) -> Mapping[str, ServedModel]:
    """The versions that a caller may force. A routed package replaces others of its version."""
    status = endpoint.status
    refs = (*status.packages, *(route.ref for route in status.routes))
    held = {ref.version: opened[ref.package] for ref in refs if ref.package in opened}
    return MappingProxyType(held)
