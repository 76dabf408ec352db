"""Endpoints are described as they are now: ready or not, unknown, or not read yet."""

import pytest
from gateway_world import endpoint_of
from pipeline_world import ONE, TWO, world_of

from contracts.model import DEFAULT_POOL
from gateway.errors import UnknownEndpointError, UnknownVersionError
from gateway.inference.serving import ServedEndpoints, Serving
from gateway.routing.routes import RoutingTable


async def test_views_say_whether_a_triton_serves_now() -> None:
    async with world_of(endpoint_of(ONE.ref)) as world:
        endpoints = world.endpoints
        assert endpoints.describe("sentiment").ready
        assert endpoints.names() == ("sentiment",)
        for replica in endpoints.serving.batchers[DEFAULT_POOL][ONE.ref.package].replicas:
            replica.fail(0.0)
        assert not endpoints.describe("sentiment").ready
        assert endpoints.ready  # another gateway would have no other Triton
        with pytest.raises(UnknownEndpointError):
            endpoints.describe("other")


def test_a_gateway_that_has_read_no_endpoints_yet_says_so_and_not_that_there_is_none() -> None:
    endpoints = ServedEndpoints()
    with pytest.raises(UnknownEndpointError) as caught:
        endpoints.describe("sentiment")
    assert (caught.value.status, caught.value.code) == (503, "starting")
    assert caught.value.retry_after_seconds
    endpoints.serve(Serving(RoutingTable(), {}, {}))  # it has read that there are none
    with pytest.raises(UnknownEndpointError) as caught:
        endpoints.describe("sentiment")
    assert (caught.value.status, caught.value.code) == (404, "unknown_endpoint")


async def test_only_versions_that_may_answer_and_have_a_triton_are_arms() -> None:
    async with world_of(endpoint_of(ONE.ref, canary=TWO.ref, weight=100)) as world:
        one, two = (
            world.endpoints.serving.batchers[DEFAULT_POOL][model.ref.package]
            for model in (ONE, TWO)
        )
        assert world.endpoints.capacities("sentiment", "ann", None) == [two, one]
        assert world.endpoints.capacities("sentiment", "ann", "1") == [one]
        with pytest.raises(UnknownVersionError):
            world.endpoints.capacities("sentiment", "ann", "9")
        for replica in two.replicas:
            replica.fail(0.0)
        assert world.endpoints.capacities("sentiment", "ann", None) == [one]
        with pytest.raises(UnknownEndpointError):
            world.endpoints.capacities("other", "ann", None)
