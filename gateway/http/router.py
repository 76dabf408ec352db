"""Finds the handler of a path, in a tree of path segments without regular expressions.

A segment of a pattern is a literal, a parameter (``{endpoint}``) or a parameter with a verb after a
colon (``{endpoint}:predict``). A literal goes before a parameter.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.errors import MethodNotAllowedError, UnknownRouteError
from gateway.http.error_replies import ErrorForm
from gateway.http.messages import Handler
from gateway.http.openapi import Operation


@dataclass(frozen=True, slots=True)
class Route:
    """One method and pattern. ``dialect`` is the metrics' label for it.

    ``operation`` describes it to callers; None for a route that refuses whatever is sent.

    ``predicts``: requests carry texts for the ``{endpoint}`` in the path, or for the one that
    ``endpoint_in`` finds in the body. Such a request may be refused before its handler is called:
    the application asks ``AdmissionController.enter`` about one whose path names the endpoint; with
    ``endpoint_in`` the handler does so, by ``gateway.dialects.front.enter_named``.

    ``reads_body``: the handler reads a body, which is no prediction. The application has the caller
    recognised before any body is read; of other routes ``BodyReader`` reads none.
    """

    method: str
    pattern: str
    handle: Handler
    dialect: str
    operation: Operation | None = None
    errors: ErrorForm = ErrorForm.OBJECT
    predicts: bool = False
    endpoint_in: Callable[[bytes], str | None] | None = None
    reads_body: bool = False


@dataclass(slots=True)
class _Node:
    literals: dict[str, "_Node"] = field(default_factory=dict)
    # By verb ("" for none): the parameter's name and where it leads.
    parameters: dict[str, tuple[str, "_Node"]] = field(default_factory=dict)
    routes: dict[str, Route] = field(default_factory=dict)

    def step(self, segment: str) -> "_Node":
        """The child for a segment of a pattern, made where it is missing."""
        if not segment.startswith("{"):
            return self.literals.setdefault(segment, _Node())
        name, _, verb = segment.partition("}")
        _, child = self.parameters.setdefault(verb, (name[1:], _Node()))
        return child


class Router:
    """All routes of an application."""

    def __init__(self, routes: list[Route]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for segment in route.pattern.split("/")[1:]:
                node = node.step(segment)
            if route.method in node.routes:
                raise ValueError(f"two routes for {route.method} {route.pattern}")
            node.routes[route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route and its path parameters; HEAD is answered by GET's route.

        Raises:
            UnknownRouteError: no route has the path.
            MethodNotAllowedError: the path has no such method.
        """
        node: _Node | None = self._root
        params: dict[str, str] = {}
        for segment in path.split("/")[1:]:
            node = _descend(node, segment, params) if node else None
        if node is None or not node.routes:
            raise UnknownRouteError(
                f"There is no route {path}; /docs at the operations port lists all routes."
            )
        route = node.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = tuple(sorted(node.routes))
            if "GET" in allowed:
                allowed = (*allowed, "HEAD")
            raise MethodNotAllowedError(
                f"{path} takes {' and '.join(allowed)}, not {method}.", allowed=allowed
            )
        return route, params


def _descend(node: _Node, segment: str, params: dict[str, str]) -> _Node | None:
    child = node.literals.get(segment)
    if child is not None:
        return child
    if not segment:
        return None
    value, colon, verb = segment.rpartition(":")
    found = node.parameters.get(colon + verb) if colon and value else None
    if found is None:
        value, found = segment, node.parameters.get("")
    if found is None:
        return None
    params[found[0]] = value
    return found[1]
