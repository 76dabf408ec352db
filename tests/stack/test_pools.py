"""Two pools of Tritons on the whole stack: neither is answered by the other, or harmed by it."""

from collections.abc import Iterator, Sequence

import httpx
import pytest
from running_stack import EXAMPLE_ENDPOINT, PATIENT, TIMEOUT_SECONDS, RunningStack, running_stack
from traffic import Reply, Traffic
from waiting import until

from contracts.endpoint import EndpointStatus
from registry.stores.endpoints import FileEndpointStore

pytestmark = pytest.mark.real

OTHER = "other"


def endpoint_in(pool: str) -> str:
    return f"""
apiVersion: headrace.dev/v1alpha1
kind: ModelEndpoint
metadata: {{name: {OTHER}}}
spec:
  model: {EXAMPLE_ENDPOINT}
  pool: {pool}
  limits: {{timeoutSeconds: {TIMEOUT_SECONDS}}}
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """Two gateways, and two Tritons, each a pool; an endpoint of the same model in each."""
    home = tmp_path_factory.mktemp("pools") / "home"
    flags = ("--window-seconds=1", "--pool=default", "--pool=other")
    with running_stack(home, *flags, gateways=2, tritons=2) as running:
        running.until_answers(EXAMPLE_ENDPOINT)
        running.apply(PATIENT)
        running.apply(endpoint_in("other"))
        running.until_answers(OTHER)
        yield running


def status_of(stack: RunningStack, name: str) -> EndpointStatus:
    stored = FileEndpointStore(stack.home / "endpoints").get(name)
    assert stored is not None
    return stored.status


def traffic(stack: RunningStack, texts: list[str], endpoint: str) -> Traffic:
    return Traffic(stack.ways(endpoint), texts, callers=4, pause_seconds=0.1)


def refused_everywhere(stack: RunningStack, replies: Sequence[Reply]) -> bool:
    names = {gateway.name for gateway in stack.gateways}
    return names <= {reply.gateway for reply in replies if reply.status == 503}


@pytest.mark.parametrize(
    ("killed", "lost", "unharmed"),
    [("triton-2", OTHER, EXAMPLE_ENDPOINT), ("triton", EXAMPLE_ENDPOINT, OTHER)],
)
def test_the_endpoints_of_one_pool_answer_while_the_other_pool_is_away(
    stack: RunningStack, texts: list[str], killed: str, lost: str, unharmed: str
) -> None:
    assert status_of(stack, EXAMPLE_ENDPOINT).stable == status_of(stack, OTHER).stable
    with traffic(stack, texts, unharmed) as well, traffic(stack, texts, lost) as ill:
        well.more(20)
        ill.more(20)
        with stack.without(killed):
            ill.until(
                "every gateway refuses", 60, lambda replies: refused_everywhere(stack, replies)
            )
            well.more(50)
            assert not any(reply.status == 200 for reply in ill.replies[-len(stack.gateways) :]), (
                "the other pool answers for this one"
            )
        well.more(20)
    stack.until_answers(lost)
    assert set(well.statuses()) == {200}, well.statuses()
    assert set(ill.statuses()) <= {200, 503}, ill.statuses()


def test_an_endpoint_of_a_pool_that_nobody_has_says_so(stack: RunningStack) -> None:
    stack.apply(endpoint_in("nowhere").replace(f"name: {OTHER}", "name: lost"))
    until(
        "the status says so",
        60,
        lambda: "no Triton of the pool nowhere" in status_of(stack, "lost").unserved,
    )
    for gateway in stack.gateways:

        def told(url: str = f"{gateway.url}/endpoints/lost") -> bool:
            reply = httpx.post(url, json={"inputs": "fine"}, timeout=60)
            return reply.status_code == 503 and "the pools default, other have" in reply.text

        until(f"{gateway.name} says so", 60, told)
    shown = stack.command("status", "lost").stdout
    assert "pool nowhere" in shown
    assert stack.command("delete", "lost", "--yes").returncode == 0


def test_an_endpoint_moves_to_the_other_pool_while_callers_ask(
    stack: RunningStack, texts: list[str]
) -> None:
    with traffic(stack, texts, OTHER) as load:
        load.more(20)
        stack.apply(endpoint_in("default"))
        until("it has moved", 120, lambda: status_of(stack, OTHER).pool == "default")
        load.more(100)
        with stack.without("triton-2"):
            load.more(50)
        stack.apply(endpoint_in("other"))
        until("it has moved back", 120, lambda: status_of(stack, OTHER).pool == "other")
        load.more(100)
    assert set(load.statuses()) == {200}, load.statuses()
