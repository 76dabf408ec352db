"""What fails for one endpoint, or around all of them, holds up no other endpoint."""

from pathlib import Path

import pytest
from controller_house import House
from registry_fakes import MemoryEndpoints, endpoint

from contracts.endpoint import ModelEndpoint
from registry.errors import EndpointConflictError, EndpointUnreadableError


class RefusingEndpoints(MemoryEndpoints):
    """Will not write those in ``refuses``, and counts how often it was asked to."""

    def __init__(self, *endpoints: ModelEndpoint, error: Exception) -> None:
        self.error = error
        self.refuses: set[str] = set()
        self.refused = 0
        super().__init__(*endpoints)

    def put(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        if endpoint.name in self.refuses:
            self.refused += 1
            raise self.error
        return super().put(endpoint)


@pytest.mark.parametrize("error", [OSError("exceeded quota"), EndpointConflictError("just made")])
async def test_an_auto_endpoint_that_is_refused_holds_up_no_other(
    tmp_path: Path, error: Exception
) -> None:
    house = House(tmp_path, auto=True)
    house.endpoints = refusing = RefusingEndpoints(error=error)
    refusing.refuses = {"a"}
    house.start()
    house.registry.register("a", "1")
    house.registry.register("m", "1")
    await house.watch.round()
    await house.settle()
    await house.settle()
    assert [item.name for item in house.endpoints.list()] == ["m"]
    assert house.launcher.requests[0].model == "m"
    assert refusing.refused == 1
    refusing.refuses = set()
    house.time += 30.0
    await house.settle()
    assert {item.name for item in house.endpoints.list()} == {"a", "m"}
    await house.jobs.close()


async def test_an_endpoint_whose_file_broke_holds_up_no_other(tmp_path: Path) -> None:
    house = House(tmp_path)
    broken = EndpointUnreadableError("e.json: not JSON")
    house.endpoints = refusing = RefusingEndpoints(
        endpoint(), endpoint(name="second"), error=broken
    )
    refusing.refuses = {"e"}
    house.start()
    house.registry.register("m", "1")
    await house.settle()
    assert house.endpoints.list()[1].status.candidate is not None
    await house.jobs.close()
