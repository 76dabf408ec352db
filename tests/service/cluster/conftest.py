"""An API server in memory, and the two ways in which it is read."""

from collections.abc import Callable, Iterator

import pytest
from fake_kubernetes import Fake, fake_kubernetes

from service.cluster.collection import Reader


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_kubernetes() as server:
        yield server


@pytest.fixture(params=[Fake.client, Fake.pod_reader], ids=["official", "pod"])
def reader(request: pytest.FixtureRequest, fake: Fake) -> Reader:
    """The contract of ``Reader``: the official client and a gateway's own pass the same tests."""
    open_reader: Callable[[Fake], Reader] = request.param
    return open_reader(fake)
