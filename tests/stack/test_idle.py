"""Where there is nothing to do, nothing is done: no process of the stack turns without work."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from idle_processes import spinning
from running_stack import RunningStack
from waiting import until

SPIN = "while True: pass"
REST = "import sys; sys.stdin.read()"


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of this one, which runs the program that the test names."""
    words = [sys.executable, "-c", request.param]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("child", [SPIN], indirect=True)
def test_a_loop_that_turns_without_work_is_seen_among_others(
    child: "subprocess.Popen[bytes]",
) -> None:
    def seen() -> bool:
        found = spinning(os.getpid(), share=0.02, window_seconds=0.2, windows=3)
        return any(command.endswith(SPIN) for command in found)

    until("it is seen, which a machine that is busy elsewhere may hide for a while", 60, seen)
    assert child.poll() is None


@pytest.mark.parametrize("child", [REST], indirect=True)
def test_a_process_that_waits_is_none(child: "subprocess.Popen[bytes]") -> None:
    assert spinning(child.pid, window_seconds=0.2) == {}


@pytest.mark.real
def test_no_process_of_an_idle_stack_spins(stack: RunningStack) -> None:
    assert spinning(stack.process.pid, window_seconds=2.0) == {}
