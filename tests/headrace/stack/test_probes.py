"""What a probe says of a service that is well, unwell, or not there."""

from collections.abc import Callable

import pytest

from headrace.stack import probes


@pytest.mark.parametrize(("status", "well", "unwell"), [(200, True, False), (503, False, True)])
async def test_an_answer_tells(
    serve: Callable[[int, str], str], status: int, well: bool, unwell: bool
) -> None:
    url = serve(status, "")
    ready, stuck = probes.http_ok(url), probes.http_unwell(url)
    assert (await ready(), await stuck()) == (well, unwell)


async def test_who_does_not_answer_is_not_ready_and_says_nothing_of_others() -> None:
    nowhere = "http://127.0.0.1:9"
    ready, stuck = probes.http_ok(nowhere), probes.http_unwell(nowhere)
    assert (await ready(), await stuck()) == (False, False)
