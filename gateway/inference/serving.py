"""The snapshot of what this gateway serves: routes, batchers and views, replaced as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gateway.batching.batcher import Batcher
from gateway.calls import EndpointView
from gateway.errors import RETRY_AFTER_SECONDS, StartingError, UnknownEndpointError
from gateway.inference.answer_cache import AnswerCache
from gateway.routing.routes import EndpointRoutes, RoutingTable

_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Serving:
    """One snapshot.

    ``batchers`` are by pool of Tritons, then by package id. ``complete``: every stable version's
    package is open, or could not be opened for so long that the gateway does not wait for it; and
    a Triton serves it, or all have been asked. ``notes``: problems, in sentences for operators.
    """

    table: RoutingTable
    batchers: Mapping[str, Mapping[str, Batcher]]
    views: Mapping[str, EndpointView]
    complete: bool = False
    notes: tuple[str, ...] = ()

    def batchers_of(self, routes: EndpointRoutes) -> Mapping[str, Batcher]:
        """The batchers of the pool that answers an endpoint, by package id."""
        return self.batchers.get(routes.pool, _NO_BATCHERS)


_NO_BATCHERS: Mapping[str, Batcher] = {}
_NOTHING = Serving(RoutingTable(), {}, {})  # before the endpoints were read for the first time


class ServedEndpoints:
    """The endpoints of this process, as the last ``serve`` gave them."""

    def __init__(self) -> None:
        self._serving = _NOTHING
        self.caches: dict[str, AnswerCache] = {}  # of the endpoints that ask for one, by name
        self._was_complete = False
        self._draining = False

    @property
    def serving(self) -> Serving:
        """What is served now. A request keeps the one that it began with."""
        return self._serving

    def serve(self, serving: Serving) -> None:
        """Replaces the snapshot."""
        self._serving = serving
        self._keep_caches(serving)
        self._was_complete = self._was_complete or serving.complete

    def _keep_caches(self, serving: Serving) -> None:
        caches: dict[str, AnswerCache] = {}
        for name, routes in serving.table.endpoints.items():
            asked = routes.endpoint.spec.serving.cache
            if asked is None:
                continue
            most = asked.megabytes * _MEGABYTE
            cache = self.caches.get(name)
            if cache is None:
                cache = AnswerCache(most, shared=asked.shared)
            else:
                cache.limit(most, shared=asked.shared)
            caches[name] = cache
        self.caches = caches

    def drain(self) -> None:
        """Asks load balancers and callers to use other gateways. Requests are still answered."""
        self._draining = True

    @property
    def draining(self) -> bool:
        """See ``Catalogue.draining``."""
        return self._draining

    @property
    def ready(self) -> bool:
        """See ``Catalogue.ready``: what should be served has been complete once.

        A Triton that is away does not make a gateway unready: another one would have none either.
        """
        return self._was_complete and not self._draining

    @property
    def notes(self) -> tuple[str, ...]:
        """See ``Catalogue.notes``."""
        return self._serving.notes

    def names(self) -> tuple[str, ...]:
        """See ``Catalogue.names``."""
        return tuple(name for name, view in self._serving.views.items() if view.refs)

    def describe(self, endpoint: str) -> EndpointView:
        """See ``Catalogue.describe``."""
        view = self._serving.views.get(endpoint)
        if view is None and self._serving is _NOTHING:
            raise StartingError(
                "This gateway has just started and has yet to read which endpoints there are.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        if view is None:
            raise UnknownEndpointError(f"There is no endpoint {endpoint[:80]!r}.")
        ready = self._answers(endpoint)
        return view if view.ready == ready else replace(view, ready=ready)

    def capacities(
        self, endpoint: str, key: str, forced_version: str | None, space: str | None = None
    ) -> list[Batcher]:
        """See ``gateway.admission.controller.Endpoints.capacities``."""
        serving = self._serving
        routes = serving.table[endpoint]
        targets = routes.target_and_fallback(key, forced_version, space)
        batchers = serving.batchers_of(routes)
        found = [
            batcher
            for target in targets
            if (batcher := batchers.get(target.model.ref.package)) is not None
        ]
        answering = [batcher for batcher in found if batcher.serves]
        return answering or [batcher for batcher in found if batcher.may_return]

    def target(
        self, endpoint: str, key: str, forced_version: str | None, space: str | None = None
    ) -> tuple[str, str]:
        """See ``gateway.admission.controller.Endpoints.target``."""
        routes = self._serving.table[endpoint]
        target, *_ = routes.target_and_fallback(key, forced_version, space)
        return routes.pool, target.model.name

    def _answers(self, endpoint: str) -> bool:
        routes = self._serving.table[endpoint]
        stable = routes.stable
        if stable is None or self._draining:
            return False
        if routes.endpoint.status.asleep is not None:
            return True  # it comes back for anyone who asks
        batcher = self._serving.batchers_of(routes).get(stable.model.ref.package)
        return batcher is not None and batcher.serves
