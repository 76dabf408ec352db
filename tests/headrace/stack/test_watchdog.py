import os
import select
import signal
import subprocess
import sys

from headrace.stack import watchdog

WAITS = "import signal; print(flush=True); signal.pause()"
# Its child has a session of its own, and would outlive it.
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", {WAITS!r}], stdout=subprocess.PIPE,
                         start_new_session=True)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


def marked(program: str, mark: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-S", "-c", program], stdout=subprocess.PIPE, text=True,
        start_new_session=True, env={"PATH": os.defpath, watchdog.MARK: mark},
    )  # fmt: skip


def test_a_stack_ends_when_the_pipe_closes_and_others_live() -> None:
    with marked(PARENT, "ours/one") as told, marked(WAITS, "theirs/one") as other:
        assert told.stdout is not None
        assert other.stdout is not None
        child = os.pidfd_open(int(told.stdout.readline()))
        other.stdout.readline()
        dog = [sys.executable, "-I", "-S", watchdog.__file__, "ours/"]
        with subprocess.Popen(dog, stdin=subprocess.PIPE) as watching:
            assert watching.stdin is not None
            watching.stdin.close()
            assert told.wait(60) == -signal.SIGTERM
            assert watching.wait(60) == 0
        assert select.select([child], [], [], 60)[0]  # it has ended
        os.close(child)
        assert other.poll() is None
        os.killpg(other.pid, signal.SIGKILL)


def test_orphans_of_one_service_end_and_its_neighbours_live() -> None:
    with marked(WAITS, "ours/gateway") as orphan, marked(WAITS, "ours/gateway-2") as neighbour:
        for process in (orphan, neighbour):
            assert process.stdout is not None
            process.stdout.readline()
        watchdog.end_orphans("ours/gateway")
        assert neighbour.poll() is None
        assert orphan.poll() is not None
        neighbour.kill()


def test_one_of_a_service_s_group_that_dropped_its_mark_ends_with_it() -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITS
    unmarked = PARENT.replace("start_new_session=True", "env={}").replace(
        repr(WAITS), repr(stubborn)
    )
    with marked(unmarked, "ours/one") as told:
        assert told.stdout is not None
        child = os.pidfd_open(int(told.stdout.readline()))
        watchdog.end_stack("ours/")
        assert told.wait(60) == -signal.SIGTERM
        assert select.select([child], [], [], 60)[0]
        os.close(child)
