"""Processes that grow are found, and ordinary ones are not."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from chaos.processes import descendants, grown, resident_mib


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


def test_what_a_real_process_holds_is_read_until_it_is_gone() -> None:
    with child("import sys; sys.stdin.read()") as pid:
        size = resident_mib(pid)
        assert size is not None
        assert 1 < size < 1000
    assert resident_mib(pid) is None


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
