"""More than the stack can do: each gateway refuses in words, stays in its memory and recovers."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence

import httpx
import psutil
import pytest
from running_stack import EXAMPLE_ENDPOINT, RunningStack
from traffic import Reply, Traffic

pytestmark = pytest.mark.real

MOST_GROWTH_MIB = 150


def resident_mib(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss) / 2**20


def overloaded(gateways: Collection[str]) -> Callable[[Sequence[Reply]], bool]:
    """Whether each gateway has had far more to do than it can, for as long as some answers take."""

    def enough(replies: Sequence[Reply]) -> bool:
        met = Counter((reply.gateway, reply.status) for reply in replies)
        return all(met[name, 200] >= 20 and met[name, 503] >= 100 for name in gateways)

    return enough


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_overloaded_gateways_answer_or_refuse_and_stay_in_their_memory(
    stack: RunningStack, texts: list[str], protocol: str
) -> None:
    batches = [texts[first : first + 32] for first in range(0, 1600, 32)]
    ways = stack.http_ways() if protocol == "http" else stack.grpc_ways()
    gateways = {each.name: stack.pid(each.name) for each in stack.gateways}
    with Traffic(ways, texts, callers=4) as calm:
        calm.more(100)
    before = {name: resident_mib(pid) for name, pid in gateways.items()}
    deadline = {"x-request-timeout": "2"}
    with Traffic(ways, batches, callers=150, headers=deadline, timeout_seconds=120) as load:
        load.until("each gateway has answered and refused many", 400, overloaded(gateways))
    assert {name: stack.pid(name) for name in gateways} == gateways
    for name, pid in gateways.items():
        replies = [reply for reply in load.replies if reply.gateway == name]
        strange = [reply for reply in replies if reply.status not in {200, 503, 504}]
        # Calls that the gateway could not look at for too long are ended by gRPC itself.
        ended = ("StatusCode.CANCELLED", "StatusCode.UNAVAILABLE") if protocol == "grpc" else ()
        assert [each for each in strange if not each.body.startswith(ended)] == [], name
        assert resident_mib(pid) < before[name] + MOST_GROWTH_MIB, name
    assert all(int(reply.retry_after) >= 1 for reply in load.replies if reply.status == 503)
    for each in stack.gateways:
        url = f"{each.url}/endpoints/{EXAMPLE_ENDPOINT}"
        assert httpx.post(url, json={"inputs": "all is calm"}, timeout=60).status_code == 200
