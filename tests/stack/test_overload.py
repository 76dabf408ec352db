"""More than the stack can do: it refuses in words, stays in its memory and is well afterwards."""

from pathlib import Path

import httpx
import pytest
from running_stack import EXAMPLE_ENDPOINT, RunningStack
from traffic import Traffic

pytestmark = pytest.mark.real

MOST_GROWTH_MIB = 150


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 2**20


def test_an_overloaded_gateway_answers_or_refuses_and_stays_in_its_memory(
    stack: RunningStack, texts: list[str]
) -> None:
    url = f"{stack.gateway}/endpoints/{EXAMPLE_ENDPOINT}"
    batches = [texts[first : first + 32] for first in range(0, 1600, 32)]
    gateway = stack.pid("gateway")
    with Traffic(url, texts, callers=2) as calm:
        calm.more(100)
    before = resident_mib(gateway)
    with Traffic(url, batches, callers=150, headers={"x-request-timeout": "2"}) as load:
        load.more(1500, 400)
    assert stack.pid("gateway") == gateway
    assert set(load.statuses()) <= {200, 503, 504}, load.statuses()
    assert load.statuses()[200] > 0
    assert load.statuses()[503] > 0
    assert all(int(reply.retry_after) >= 1 for reply in load.replies if reply.status == 503)
    assert resident_mib(gateway) < before + MOST_GROWTH_MIB
    answer = httpx.post(url, json={"inputs": "all is calm"}, timeout=60)
    assert answer.status_code == 200
