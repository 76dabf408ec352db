"""What callers see when a part of the stack is killed, or a version comes that can't serve."""

import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pytest
from rolling_stack import register, tags, watched
from running_stack import PATIENT, TIMEOUT_SECONDS, RunningStack
from traffic import Reply, Traffic, answered_by_all
from waiting import until

pytestmark = pytest.mark.real

# How a version comes in by a rollout is in test_rollout_faults.py.
DIRECT = f"{PATIENT}  rollout: {{strategy: direct}}"
PAUSE_SECONDS = 0.05  # callers leave the machine time to start what was killed


def traffic(
    stack: RunningStack,
    texts: list[str],
    callers: int = 8,
    headers: dict[str, str] | None = None,
) -> Traffic:
    """Callers of every gateway, over HTTP and gRPC."""
    return Traffic(stack.ways(), texts, callers, PAUSE_SECONDS, headers or {})


def refused_by(gateway: str) -> Callable[[Sequence[Reply]], bool]:
    """Whether a gateway has refused a caller, of whatever protocol."""

    def enough(replies: Sequence[Reply]) -> bool:
        return any(reply.gateway == gateway and reply.status == 503 for reply in replies)

    return enough


def new_at(gateway: str, before: set[str]) -> Callable[[Sequence[Reply]], bool]:
    """Whether a gateway has answered with a version that was not there before."""

    def enough(replies: Sequence[Reply]) -> bool:
        return any(r.gateway == gateway and r.version not in before for r in replies)

    return enough


@pytest.mark.parametrize(
    "service", ["kafka", "mlflow", "controller", "loader", "fold", "stats", "triton-2"]
)
def test_no_request_fails_when_a_part_beside_the_path_or_one_of_two_tritons_is_killed(
    stack: RunningStack, texts: list[str], service: str
) -> None:
    stack.until_all_serve()
    with traffic(stack, texts) as load:
        load.more(50)
        dead = stack.kill(service)
        load.more(200)
        stack.until_restarted(service, dead)
        load.more(200)
    assert set(load.statuses()) == {200}, load.statuses()
    assert len(load.answered_ways()) == len(stack.ways())


def test_while_every_triton_is_gone_callers_get_503_with_retry_after_and_answers_come_back(
    stack: RunningStack, texts: list[str]
) -> None:
    with traffic(stack, texts) as load:
        load.more(50)
        with ExitStack() as gone:
            for each in stack.tritons:
                gone.enter_context(stack.without(each.name))
            for gateway in stack.gateways:
                load.until(f"{gateway.name} refuses", 60, refused_by(gateway.name))
        load.until("every way answers again", 180, answered_by_all(len(stack.ways())))
    stack.until_all_serve()
    assert set(load.statuses()) <= {200, 503}, load.statuses()
    failed = [reply for reply in load.replies if reply.status == 503]
    assert all(int(reply.retry_after) >= 1 for reply in failed)
    assert all(reply.seconds < TIMEOUT_SECONDS for reply in failed)  # none waits to its deadline


def test_a_triton_that_hangs_beside_one_that_serves_costs_no_caller_an_answer(
    stack: RunningStack, texts: list[str]
) -> None:
    stack.until_all_serve()
    with traffic(stack, texts, callers=4) as load:
        load.more(20)
        stack.signal("triton-2", signal.SIGSTOP)
        try:
            load.more(100)
        finally:
            stack.signal("triton-2", signal.SIGCONT)
    assert set(load.statuses()) == {200}, load.statuses()
    # Each gateway asks the other Triton long before the caller's deadline.
    assert max(reply.seconds for reply in load.replies) < TIMEOUT_SECONDS


def test_with_every_triton_hanging_callers_get_504_at_the_deadline(
    stack: RunningStack, texts: list[str]
) -> None:
    stack.until_all_serve()
    with traffic(stack, texts, callers=4, headers={"x-request-timeout": "0.5"}) as load:
        load.more(20)
        for triton in stack.tritons:
            stack.signal(triton.name, signal.SIGSTOP)
        try:
            late = load.until(
                "a 504", 180, lambda replies: any(reply.status == 504 for reply in replies)
            )
        finally:
            for triton in stack.tritons:
                stack.signal(triton.name, signal.SIGCONT)
        load.until("every way answers again", 180, answered_by_all(len(stack.ways())))
    first = next(reply for reply in late if reply.status == 504)
    assert first.seconds >= 0.45
    assert set(load.statuses()) <= {200, 503, 504}, load.statuses()


def test_a_second_version_arrives_without_a_failed_request_and_every_answer_names_its_version(
    stack: RunningStack, texts: list[str]
) -> None:
    stack.apply(DIRECT)
    with traffic(stack, texts, callers=4) as load:
        before = {reply.version for reply in load.more(50)}
        register(stack, "better")
        for gateway in stack.gateways:
            load.until(f"a new version at {gateway.name}", 300, new_at(gateway.name, before))
        load.more(50)
    assert set(load.statuses()) == {200}, load.statuses()
    assert all(reply.version for reply in load.replies)
    for gateway in stack.gateways:  # each changes at once, and no caller of it goes back
        replies = [reply for reply in load.replies if reply.gateway == gateway.name]
        first = next(reply.at for reply in replies if reply.version not in before)
        after = {reply.version for reply in replies if reply.at - reply.seconds > first}
        assert after
        assert after.isdisjoint(before)


def test_a_version_that_can_not_be_converted_is_told_why_and_the_next_one_is_served(
    stack: RunningStack,
) -> None:
    stack.apply(DIRECT)
    with watched(stack) as watch:
        before = watch.until("a version serves", 60, lambda status: status.stable is not None)
        number = register(stack, "unconvertible")
        after = watch.until(
            "it is rejected",
            300,
            lambda status: any(item.version == number for item in status.rejected),
        )
        assert after.stable == before.stable
        (reason,) = (item.reason for item in after.rejected if item.version == number)
        until("MLflow says why", 180, lambda: tags(stack, number).get("reason") == reason[:500])
        following = register(stack, "better")
        watch.until(
            "the next one serves",
            300,
            lambda status: status.stable is not None and status.stable.version == following,
        )
