"""What a pyfunc's process does to itself: each test asks a worker that is a few lines of Python."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_pyfunc_worker import WORKER
from hypothesis import given
from hypothesis import strategies as st

from contracts import telemetry_off
from registry.pyfunc.process import (
    NotClosedOffError,
    PyfuncAnswers,
    PyfuncError,
    PyfuncLimits,
    PyfuncProcess,
    label_of,
)

ROWS = np.array([[1.0, 2.0], [3.0, 4.0]])
LIMITS = PyfuncLimits(call_seconds=30.0, start_seconds=60.0, first_pause_seconds=5.0)


class Clock:
    """Time that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


Made = Callable[..., PyfuncProcess]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    processes = []

    def make(
        limits: PyfuncLimits = LIMITS,
        clock: Clock | None = None,
        ended: Callable[[str], None] = lambda _: None,
        **told: Any,
    ) -> PyfuncProcess:
        command = [sys.executable, "-I", "-S", str(script)]
        process = PyfuncProcess(command, told, limits, ended=ended, clock=clock or time.monotonic)
        processes.append(process)
        return process

    yield make
    for process in processes:
        process.close()


def asked(what: int) -> np.ndarray:
    return np.array([[float(what), 0.0], [0.0, 0.0]])


def lives(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


def test_rows_go_to_the_code_and_its_numbers_come_back(made: Made) -> None:
    process = made()
    process.start()
    found = process.answers(ROWS)
    assert found.numbers is not None
    np.testing.assert_array_equal(found.numbers, ROWS)
    assert process.answers(asked(-8)).texts == ("a", "b")
    assert process.starts == 1


def test_batches_that_fill_a_pipe_many_times_pass_both_ways(made: Made) -> None:
    process = made()
    process.start()
    rows = np.random.default_rng(0).normal(size=(500, 1000))
    found = process.answers(rows).numbers
    assert found is not None
    np.testing.assert_array_equal(found, rows)


def test_each_end_of_the_process_is_told_and_what_it_raises_is_none(made: Made) -> None:
    process = made(ended=(ends := list[str]()).append)
    process.start()
    for what in (-3, -2):
        with pytest.raises(PyfuncError):
            process.answers(asked(what))
    (why,) = ends
    assert "ended with status 7" in why


def test_what_the_code_raises_fails_the_call_alone(made: Made) -> None:
    process = made()
    process.start()
    with pytest.raises(PyfuncError, match="failed: ValueError: no"):
        process.answers(asked(-3))
    assert process.answers(ROWS).numbers is not None
    assert process.starts == 1


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (-2, "crashed: it ended with status 7; its last line was: out of cheese"),
        (-4, "failed: MemoryError"),
        (-5, "it wrote no answer"),
        (-6, "it wrote no answer"),
        (-7, "it wrote no answer"),
    ],
)
def test_a_process_that_is_of_no_more_use_is_ended_and_started_anew_after_a_pause(
    made: Made, what: int, sentence: str
) -> None:
    clock = Clock()
    process = made(clock=clock)
    process.start()
    first = process.pid
    with pytest.raises(PyfuncError, match=sentence):
        process.answers(asked(what))
    assert not lives(first)
    with pytest.raises(PyfuncError, match="It is started again in"):
        process.answers(ROWS)
    clock.now += LIMITS.first_pause_seconds
    assert process.answers(ROWS).numbers is not None
    assert process.starts == 2


def test_a_call_that_hangs_ends_at_its_limit_and_the_process_with_it(made: Made) -> None:
    process = made()
    process.start()
    first = process.pid
    with pytest.raises(PyfuncError, match=r"took more than 0\.2 s and was stopped"):
        process.answers(asked(-1), seconds=0.2)
    assert not lives(first)


def test_one_that_ran_well_for_long_is_started_anew_at_once(made: Made) -> None:
    clock = Clock()
    process = made(clock=clock)
    process.start()
    clock.now += LIMITS.steady_seconds
    with pytest.raises(PyfuncError, match="crashed"):
        process.answers(asked(-2))
    assert process.answers(ROWS).numbers is not None


def test_pauses_double_up_to_the_longest(made: Made) -> None:
    clock = Clock()
    process = made(clock=clock, die=True)
    pauses = []
    for _ in range(7):
        with pytest.raises(PyfuncError, match="status 3; its last line was: no such model"):
            process.answers(ROWS)
        with pytest.raises(PyfuncError, match="again in") as paused:
            process.answers(ROWS)
        pauses.append(float(str(paused.value).split("again in ")[1].split()[0]))
        clock.now += 60.0
    assert pauses == [5, 10, 20, 40, 60, 60, 60]


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({"die": True}, "can't be started: it ended with status 3"),
        ({"error": "ImportError: no module"}, "can't be started: ImportError: no module"),
        ({"garbage": True}, "it wrote what is no answer"),
    ],
)
def test_a_start_that_fails_says_why(made: Made, told: dict[str, Any], sentence: str) -> None:
    process = made(**told)
    with pytest.raises(PyfuncError, match=sentence):
        process.start()
    assert process.pid is None


def test_a_start_that_hangs_ends_at_its_limit(made: Made) -> None:
    process = made(PyfuncLimits(start_seconds=0.2), sleep=True)
    with pytest.raises(PyfuncError, match=r"took more than 0\.2 s"):
        process.start()
    assert process.pid is None


def test_calls_wait_for_a_start_no_longer_than_for_an_answer(made: Made) -> None:
    process = made(sleep=True)
    with pytest.raises(PyfuncError, match="is being started"):
        process.answers(ROWS, seconds=0.1)
    assert lives(process.pid)  # it may yet come up


@pytest.mark.parametrize("asked_for", [True, False])
def test_where_the_kernel_closes_nothing_off_the_operator_decides(
    made: Made, *, asked_for: bool
) -> None:
    process = made(PyfuncLimits(closed_off=asked_for, call_seconds=30), closed=False)
    if asked_for:
        with pytest.raises(NotClosedOffError, match="no Landlock or no seccomp"):
            process.start()
        assert process.pid is None
    else:
        process.start()
        assert process.answers(ROWS).numbers is not None


def test_its_process_sees_nothing_of_this_ones_environment(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    process = made()
    process.start()
    assert process.pid is not None
    environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    assert b"a secret" not in environment
    told = {f"{name}={value}".encode() for name, value in telemetry_off.VARIABLES.items()}
    assert told <= set(environment.split(b"\0"))
    assert os.getsid(process.pid) == process.pid


@given(st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=40), st.integers(1, 3))
def test_numbers_of_a_regression_pass_as_they_are(numbers: list[float], width: int) -> None:
    rows = np.repeat(np.array(numbers)[:, None], width, axis=1)
    np.testing.assert_array_equal(PyfuncAnswers(rows).values((), width), rows.astype(np.float32))


@given(st.lists(st.sampled_from(["no", "yes", "maybe"]), min_size=1, max_size=40))
def test_a_text_gets_the_whole_probability_of_its_label(texts: list[str]) -> None:
    labels = ("maybe", "no", "yes")
    values = PyfuncAnswers(None, tuple(texts)).values(labels, 3)
    assert [labels[at] for at in values.argmax(axis=1)] == texts
    np.testing.assert_array_equal(values.sum(axis=1), 1.0)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40))
def test_a_whole_number_may_be_a_label(numbers: list[int]) -> None:
    labels = tuple(map(str, range(-3, 4)))
    values = PyfuncAnswers(np.array(numbers, float)[:, None]).values(labels, len(labels))
    assert [labels[at] for at in values.argmax(axis=1)] == [label_of(each) for each in numbers]


@pytest.mark.parametrize(
    ("answers", "labels", "width"),
    [
        (PyfuncAnswers(np.ones((2, 3))), (), 1),
        (PyfuncAnswers(None, ("a", "b")), (), 1),
        (PyfuncAnswers(None, ("a", "c")), ("a", "b"), 2),
        (PyfuncAnswers(np.ones((2, 3))), ("a", "b"), 2),
        (PyfuncAnswers(np.full((2, 1), 7.0)), ("0", "1"), 2),
    ],
)
def test_answers_of_another_form_than_was_learnt_are_refused(
    answers: PyfuncAnswers, labels: tuple[str, ...], width: int
) -> None:
    with pytest.raises(PyfuncError, match="answered"):
        answers.values(labels, width)
