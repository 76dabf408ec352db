"""Processes that spin or grow are found, and ordinary ones are not."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from chaos.processes import Sample, descendants, grown, sample, spinning


def at(seconds: float, cpu: float, pid: int = 7) -> Sample:
    return Sample(seconds, pid, cpu, 100.0)


def test_a_process_that_turns_without_work_spins() -> None:
    before = {"fold": at(0.0, 5.0), "kafka": at(0.0, 90.0)}
    after = {"fold": at(10.0, 13.0), "kafka": at(10.0, 90.4)}
    assert spinning(before, after) == {"fold": 0.8}


def test_a_process_that_was_started_anew_between_two_looks_is_not_judged() -> None:
    assert spinning({"fold": at(0.0, 0.0)}, {"fold": at(10.0, 9.0, pid=8)}) == {}
    assert spinning({}, {"fold": at(10.0, 9.0)}) == {}


def test_a_service_that_grows_from_first_to_last_third_is_told_with_both_sizes() -> None:
    sizes = [(float(second), "gateway", 100.0 + 4 * second) for second in range(0, 300, 5)]
    assert grown(sizes, 300.0) == {"gateway": (480.0, 1280.0)}


def test_a_service_that_is_large_at_the_start_or_ends_smaller_does_not_grow() -> None:
    level = [(float(second), "kafka", 700.0) for second in range(0, 300, 5)]
    shrinks = [(float(second), "mlflow", 900.0 - second) for second in range(0, 300, 5)]
    assert grown([*level, *shrinks], 300.0) == {}


@contextmanager
def child(program: str) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-c", f"print(flush=True); {program}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process.pid
    finally:
        process.communicate()


def test_what_a_real_process_uses_is_read_until_it_is_gone() -> None:
    with child("import sys; sys.stdin.read()") as pid:
        found = sample(pid, time.monotonic())
        assert found is not None
        assert found.pid == pid
        assert 1 < found.resident_mib < 1000
    assert sample(pid, time.monotonic()) is None


def test_children_of_children_are_found_by_their_programs_name() -> None:
    grandchild = (
        "import subprocess, sys;"
        "p = subprocess.Popen(['sleep', '60'], stdin=subprocess.DEVNULL);"
        "print(flush=True); sys.stdin.read(); p.kill(); p.wait()"
    )
    with child(grandchild) as pid:
        deadline = time.monotonic() + 60
        while not (sleepers := descendants(pid, "sleep")) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(sleepers) == 1
        assert descendants(pid, "python") == []
