"""Servers that are measured beside Headrace: their processes end, and their answers are judged."""

import os
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from waiting import until

from bench.peers import comparison
from bench.peers.started import started
from bench.processes import free_port


@pytest.mark.slow
def test_what_a_peer_started_ends_with_it_though_it_is_left_behind(tmp_path: Path) -> None:
    port = free_port()
    script = (
        "import subprocess, sys, http.server as h\n"
        "print(subprocess.Popen(['sleep', '600']).pid, flush=True)\n"
        "h.HTTPServer(('127.0.0.1', int(sys.argv[1])), h.SimpleHTTPRequestHandler).serve_forever()"
    )
    with started(
        [sys.executable, "-c", script, str(port)],
        environment={},
        folder=tmp_path / "peer",
        cores=sorted(os.sched_getaffinity(0)),
        ready=f"http://127.0.0.1:{port}/",
    ) as pid:
        log = (tmp_path / "peer" / "log.txt").read_text(encoding="utf-8")
        left = int(log.splitlines()[0])
        assert psutil.pid_exists(left)
    assert not psutil.pid_exists(pid)
    # It may wait for somebody to take its exit status, and for the processor before that.
    until("it has ended", 30, lambda: _has_ended(left))


def _has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


# The answers


def test_the_same_vectors_in_another_length_are_the_same_answer() -> None:
    vectors = np.random.default_rng(1).normal(size=(40, 16))
    likeness = comparison.compare(vectors, 3 * vectors)
    assert likeness.least_cosine == pytest.approx(1)
    assert likeness.mean_cosine == pytest.approx(1)


def test_vectors_in_another_order_are_wrong_answers() -> None:
    vectors = np.random.default_rng(1).normal(size=(40, 16))
    likeness = comparison.compare(vectors, vectors[::-1])
    assert likeness.least_cosine < likeness.mean_cosine < 0.5


def test_one_wrong_vector_is_enough() -> None:
    vectors = np.random.default_rng(1).normal(size=(40, 16))
    broken = vectors.copy()
    broken[7] = -broken[7]
    assert comparison.compare(vectors, broken).least_cosine == pytest.approx(-1)


@pytest.mark.parametrize("broken", [np.zeros((4, 3)), np.full((4, 3), np.nan), np.ones((3, 3))])
def test_what_is_no_vector_of_each_text_is_refused(broken: comparison.Vectors) -> None:
    with pytest.raises(ValueError, match="vector"):
        comparison.compare(np.ones((4, 3)), broken)
