"""What a probe says of a service that is well, unwell, or not there."""

from collections.abc import Iterator

import pytest
from http_server import Answer, http_server

from headrace.stack import probes


@pytest.fixture
def served() -> Iterator[str]:
    """A server that answers with the status that the path names."""

    with http_server(lambda request: Answer(int(request.path[1:]))) as url:
        yield url


@pytest.mark.parametrize(("status", "well", "unwell"), [(200, True, False), (503, False, True)])
async def test_an_answer_tells(served: str, status: int, well: bool, unwell: bool) -> None:
    ready, stuck = probes.http_ok(f"{served}/{status}"), probes.http_unwell(f"{served}/{status}")
    assert (await ready(), await stuck()) == (well, unwell)


async def test_who_does_not_answer_is_not_ready_and_says_nothing_of_others() -> None:
    nowhere = "http://127.0.0.1:9"
    ready, stuck = probes.http_ok(nowhere), probes.http_unwell(nowhere)
    assert (await ready(), await stuck()) == (False, False)
