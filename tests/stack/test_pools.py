"""Two pools of Tritons on a whole stack: each answers its own endpoints alone, and they can move.

A stack of its own, with a Triton in each pool. Two endpoints serve the same version, so that only
the pool tells them apart.
"""

import signal
from collections.abc import Callable, Iterator, Sequence

import pytest
from running_stack import EXAMPLE_ENDPOINT, PATIENT, RunningStack, running_stack
from traffic import Reply, Traffic, answered_by_all
from waiting import until

from contracts.endpoint import EndpointStatus
from registry.stores.endpoints import FileEndpointStore

pytestmark = pytest.mark.real

POOLS = ("default", "large")
STAYS, MOVES = EXAMPLE_ENDPOINT, "films"
PAUSE_SECONDS = 0.1


def films(pool: str) -> str:
    """A second endpoint of the example's model."""
    return f"{PATIENT.replace(f'name: {STAYS}', f'name: {MOVES}')}  pool: {pool}\n"


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    home = tmp_path_factory.mktemp("pools") / "home"
    flags = [word for pool in POOLS for word in ("--pool", pool)]
    with running_stack(home, *flags, gateways=2, tritons=2) as running:
        running.until_answers(STAYS)
        running.apply(PATIENT)
        yield running


@pytest.fixture
def divided(pools: RunningStack) -> RunningStack:
    """The stack, with an endpoint in each pool, whatever was done to it before."""
    bring(pools, "large")
    return pools


def bring(stack: RunningStack, pool: str) -> None:
    """Puts the second endpoint into a pool, and waits until callers are answered there."""
    stack.apply(films(pool))
    until(
        f"{MOVES} is in {pool}",
        300,
        lambda: (status := status_of(stack)).pool == pool and not status.next_pool,
    )
    stack.until_answers(MOVES)


def status_of(stack: RunningStack) -> EndpointStatus:
    """Of the second endpoint."""
    stored = FileEndpointStore(stack.home / "endpoints").get(MOVES)
    return EndpointStatus() if stored is None else stored.status


def traffic(stack: RunningStack, endpoint: str, texts: list[str]) -> Traffic:
    """Callers of one endpoint, at every gateway over HTTP and gRPC."""
    return Traffic(stack.ways(endpoint), texts, callers=4, pause_seconds=PAUSE_SECONDS)


def refused_by(gateway: str) -> Callable[[Sequence[Reply]], bool]:
    """Whether a gateway has refused a caller."""
    return lambda replies: any((each.gateway, each.status) == (gateway, 503) for each in replies)


def triton_of(stack: RunningStack, pool: str) -> str:
    (name,) = [each.name for each in stack.tritons if each.pool == pool]
    return name


def test_a_pool_without_its_triton_takes_along_its_own_endpoints_alone(
    divided: RunningStack, texts: list[str]
) -> None:
    ways = divided.ways()
    with traffic(divided, STAYS, texts) as stays, traffic(divided, MOVES, texts) as moves:
        for load in (stays, moves):
            load.until("every way answers", 120, answered_by_all(len(ways)))
        with divided.without(triton_of(divided, "large")):
            for gateway in divided.gateways:
                moves.until(f"{gateway.name} refuses", 120, refused_by(gateway.name))
            stays.until("the other endpoint's ways answer", 120, answered_by_all(len(ways)))
        moves.until("every way answers again", 180, answered_by_all(len(ways)))
    assert set(stays.statuses()) == {200}, stays.statuses()
    assert set(moves.statuses()) <= {200, 503}, moves.statuses()


def test_an_endpoint_moves_between_pools_and_no_caller_notices(
    divided: RunningStack, texts: list[str]
) -> None:
    ways = divided.ways()
    for source, target in (("large", "default"), ("default", "large")):
        with traffic(divided, MOVES, texts) as load:
            load.until("every way answers", 120, answered_by_all(len(ways)))
            bring(divided, target)
            load.more(100)
            # What was left answers nobody any more: its Triton may stand still.
            left = triton_of(divided, source)
            divided.signal(left, signal.SIGSTOP)
            try:
                load.until("every way answers", 120, answered_by_all(len(ways)))
                load.more(100)
            finally:
                divided.signal(left, signal.SIGCONT)
        assert set(load.statuses()) == {200}, (source, load.statuses())
        divided.until_answers(STAYS)


def test_an_endpoint_goes_on_where_it_is_while_the_pool_that_it_names_has_no_triton(
    divided: RunningStack, texts: list[str]
) -> None:
    with traffic(divided, MOVES, texts) as load:
        load.more(20)
        divided.apply(films("nowhere"))
        told = until(
            "the status says so",
            120,
            lambda: [each for each in status_of(divided).notes if "nowhere" in each],
        )
        load.more(100)
        assert status_of(divided).pool == "large"
        bring(divided, "large")
    assert "the pools default, large have Tritons" in told[0]
    assert set(load.statuses()) == {200}, load.statuses()
