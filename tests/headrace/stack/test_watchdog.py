import os
import signal
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from headrace.stack import watchdog


@given(st.sets(st.integers(2, 9)), st.lists(st.tuples(st.booleans(), st.integers(2, 9))))
def test_what_is_left_is_what_started_and_did_not_end(
    first: set[int], events: list[tuple[bool, int]]
) -> None:
    lines = [f"{'+' if started else '-'}{group}\n" for started, group in events]
    last = dict.fromkeys(first, True) | {group: started for started, group in events}
    left = watchdog.groups_left(map(str, first), lines)
    assert left == {group for group, started in last.items() if started}


def test_groups_end_when_the_pipe_closes_and_others_live() -> None:
    program = [sys.executable, "-c", "import signal; print(flush=True); signal.pause()"]
    told, other = (
        subprocess.Popen(program, stdout=subprocess.PIPE, start_new_session=True) for _ in range(2)
    )
    with told, other:
        for process in (told, other):
            assert process.stdout is not None
            process.stdout.readline()
        dog = [sys.executable, "-I", "-S", watchdog.__file__]
        with subprocess.Popen(dog, stdin=subprocess.PIPE) as watching:
            assert watching.stdin is not None
            watching.stdin.write(f"+{told.pid}\n".encode())
            watching.stdin.close()
            assert told.wait(60) == -signal.SIGTERM
            assert watching.wait(60) == 0
        assert other.poll() is None
        os.killpg(other.pid, signal.SIGKILL)
