"""What callers see when a part of the stack is killed with ``kill -9`` under load."""

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from running_stack import EXAMPLE_ENDPOINT, PATIENT, TIMEOUT_SECONDS, RunningStack
from traffic import Reply, Traffic

pytestmark = pytest.mark.real

# How a version comes in by a rollout is in test_rollout_faults.py.
DIRECT = f"{PATIENT}  rollout: {{strategy: direct}}"


def traffic(
    stack: RunningStack,
    texts: list[str],
    callers: int = 8,
    headers: dict[str, str] | None = None,
) -> Traffic:
    url = f"{stack.gateway}/endpoints/{EXAMPLE_ENDPOINT}"
    return Traffic(url, texts, callers=callers, headers=headers or {})


def good(count: int) -> Callable[[Sequence[Reply]], bool]:
    def enough(replies: Sequence[Reply]) -> bool:
        return sum(reply.status == 200 for reply in replies) >= count

    return enough


@pytest.mark.parametrize("service", ["kafka", "mlflow", "controller", "loader"])
def test_no_request_fails_when_a_part_beside_the_path_is_killed(
    stack: RunningStack, texts: list[str], service: str
) -> None:
    with traffic(stack, texts) as load:
        load.more(50)
        dead = stack.kill(service)
        load.more(200)
        stack.until_restarted(service, dead)
        load.more(200)
    assert set(load.statuses()) == {200}, load.statuses()


def test_a_killed_triton_gives_503_with_retry_after_and_answers_come_back(
    stack: RunningStack, texts: list[str]
) -> None:
    with traffic(stack, texts) as load:
        load.more(50)
        dead = stack.kill("triton")
        load.until("a refusal", 60, lambda replies: any(reply.status == 503 for reply in replies))
        stack.until_restarted("triton", dead)
        load.until("answers again", 180, good(50))
    assert set(load.statuses()) <= {200, 503}, load.statuses()
    failed = [reply for reply in load.replies if reply.status == 503]
    assert all(int(reply.retry_after) >= 1 for reply in failed)
    assert all(reply.seconds < TIMEOUT_SECONDS for reply in failed)  # none waits to its deadline


def test_a_triton_that_hangs_gives_504_at_the_deadline(
    stack: RunningStack, texts: list[str]
) -> None:
    with traffic(stack, texts, callers=2, headers={"x-request-timeout": "0.5"}) as load:
        load.more(20)
        stack.signal("triton", signal.SIGSTOP)
        try:
            late = load.until(
                "a 504", 180, lambda replies: any(reply.status == 504 for reply in replies)
            )
        finally:
            stack.signal("triton", signal.SIGCONT)
        load.until("answers again", 180, good(20))
    first = next(reply for reply in late if reply.status == 504)
    assert first.seconds >= 0.45
    assert set(load.statuses()) <= {200, 503, 504}, load.statuses()


def test_a_second_version_arrives_without_a_failed_request_and_every_answer_names_its_version(
    stack: RunningStack, texts: list[str]
) -> None:
    register = Path(__file__).parents[2] / "examples" / "sentiment" / "register.py"
    stack.apply(DIRECT)
    with traffic(stack, texts) as load:
        before = {reply.version for reply in load.more(50)}
        done = subprocess.run(
            [sys.executable, "-P", str(register), "--tracking-uri", stack.mlflow,
             "--variant", "v2"],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        load.until(
            "an answer of the new version",
            300,
            lambda replies: any(reply.version not in before for reply in replies),
        )
        load.more(50)
    first = next(reply.at for reply in load.replies if reply.version not in before)
    after = {reply.version for reply in load.replies if reply.at - reply.seconds > first}
    assert set(load.statuses()) == {200}, load.statuses()
    assert all(reply.version for reply in load.replies)
    assert after
    assert after.isdisjoint(before)
