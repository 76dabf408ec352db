"""Paths find their handlers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import MethodNotAllowedError, UnknownRouteError
from gateway.http.messages import Reply, Request
from gateway.http.router import Route, Router


async def _nothing(_: Request) -> Reply:
    return Reply(b"")


def routes(*patterns: tuple[str, str]) -> Router:
    return Router([Route(method, pattern, _nothing, "test") for method, pattern in patterns])


ROUTER = routes(
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{endpoint}"),
    ("POST", "/v1/models/{endpoint}:predict"),
    ("GET", "/v2/models/{endpoint}/versions/{version}"),
    ("GET", "/v2/models/stats"),
    ("GET", "/v2/models/{endpoint}/stats"),
)


@pytest.mark.parametrize(
    ("method", "path", "pattern", "params"),
    [
        ("GET", "/v1/models", "/v1/models", {}),
        ("GET", "/v1/models/a", "/v1/models/{endpoint}", {"endpoint": "a"}),
        ("GET", "/v1/models/a:b", "/v1/models/{endpoint}", {"endpoint": "a:b"}),
        ("POST", "/v1/models/a:predict", "/v1/models/{endpoint}:predict", {"endpoint": "a"}),
        ("POST", "/v1/models/a:b:predict", "/v1/models/{endpoint}:predict", {"endpoint": "a:b"}),
        ("HEAD", "/v1/models", "/v1/models", {}),
        ("GET", "/v2/models/stats", "/v2/models/stats", {}),
        (
            "GET",
            "/v2/models/m/versions/3",
            "/v2/models/{endpoint}/versions/{version}",
            {"endpoint": "m", "version": "3"},
        ),
    ],
)
def test_a_path_finds_its_route(
    method: str, path: str, pattern: str, params: dict[str, str]
) -> None:
    route, found = ROUTER.find(method, path)
    assert (route.pattern, found) == (pattern, params)


@pytest.mark.parametrize(
    "path",
    ["/", "", "/v1", "/v1/models/", "/v1/models/a/b", "/v1/models/:predict/x", "//v1/models"],
)
def test_other_paths_are_unknown(path: str) -> None:
    with pytest.raises(UnknownRouteError):
        ROUTER.find("GET", path)


def test_two_handlers_for_one_route_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="two routes"):
        routes(("GET", "/a/{x}"), ("GET", "/a/{y}"))


@given(st.text(max_size=60), st.sampled_from(["GET", "POST", "HEAD", "PUT"]))
def test_no_path_breaks_the_router(path: str, method: str) -> None:
    try:
        route, params = ROUTER.find(method, "/v1/models/" + path)
    except (UnknownRouteError, MethodNotAllowedError):
        return
    assert set(params) <= {"endpoint"}
    assert route.pattern.startswith("/v1/models")
