"""Requests that a packed engine joins: whose answer is whose, and what fails with what."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_files import packed
from tiny_encoders import starts_of
from waiting import until

joining = packed("packed_joining")
counting = packed("packed_counts")
# Ids with which a fake run fails: as it begins, as its values are waited for, in its values.
BAD_AT_ONCE, BAD_LATER, NOT_A_NUMBER = 90, 91, 92
VOCABULARY = 100
LIMITS = joining.RunLimits(
    run_tokens=20, run_rows=6, held_tokens=10_000, row_tokens=9, vocabulary=VOCABULARY, types=2
)
LOST = "CUDA error: an illegal memory access was encountered"
EXTRA = 2  # tokens that fill a fake run up
FULL = "CUDA out of memory. Tried to allocate 2.00 GiB"


def answer_of(ids: np.ndarray, types: np.ndarray) -> list[float]:
    """What the fake model says of a row."""
    return [float(ids.sum()), float(len(ids)), float(types.sum()), float(ids[0])]


@dataclass
class FakeResult:
    compute: Callable[[], np.ndarray]
    tokens: int
    took: float

    def values(self) -> np.ndarray:
        return self.compute()

    def seconds(self) -> float:
        return self.took


@dataclass
class FakeRunner:
    """Computes a value of each row; ``gate`` is waited for before results are there.

    Attributes:
        runs: of each run, its rows' tokens.
        most: tokens for which memory suffices.
        took: seconds of the device, as it says.
    """

    gate: threading.Event = field(default_factory=threading.Event)
    runs: list[list[int]] = field(default_factory=list)
    most: int = 10_000
    freed: int = 0
    lost: bool = False
    short: bool = False
    took: float = 0.001

    def begin(self, ids: np.ndarray, starts: np.ndarray, types: np.ndarray | None) -> FakeResult:
        self.runs.append(np.diff(starts).tolist())
        if BAD_AT_ONCE in ids:
            raise RuntimeError("the row is bad")
        values = partial(self._values, ids, starts, types)
        return FakeResult(values, len(ids) + EXTRA, self.took)

    def _values(self, ids: np.ndarray, starts: np.ndarray, types: np.ndarray | None) -> np.ndarray:
        assert self.gate.wait(600)  # longer than any test waits
        if self.lost:
            raise RuntimeError(LOST)
        if len(ids) > self.most:
            raise RuntimeError(FULL)
        if BAD_LATER in ids:
            raise RuntimeError("the row is bad")
        kinds = np.zeros_like(ids) if types is None else types
        bounds = list(itertools.pairwise(starts))
        values = np.array([answer_of(ids[a:b], kinds[a:b]) for a, b in bounds], np.float32)
        values[[NOT_A_NUMBER in ids[a:b] for a, b in bounds]] = np.nan
        return values[1:] if self.short else values

    def free_memory(self) -> None:
        self.freed += 1


@dataclass
class FakeReplies:
    """Writes down what each caller gets, in order; some callers are gone, some can't be sent."""

    gone: set[int] = field(default_factory=set)
    unsent: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    sent: list[tuple[int, object]] = field(default_factory=list)

    def answer(self, asked: object, values: np.ndarray) -> None:
        self._send(asked, values.tolist())

    def fail(self, asked: object, reason: str) -> None:
        self._send(asked, reason)

    def drop(self, asked: object) -> None:
        self._send(asked, None)

    def is_gone(self, asked: object) -> bool:
        if asked.caller in self.silent:  # type: ignore[attr-defined]
            raise RuntimeError("nobody can say")
        return asked.caller in self.gone  # type: ignore[attr-defined]

    def _send(self, asked: object, what: object) -> None:
        caller: int = asked.caller  # type: ignore[attr-defined]
        self.sent.append((caller, what))
        if caller in self.unsent:
            raise RuntimeError("the caller is gone")


def request_of(caller: int, rows: Sequence[Sequence[int]], *, typed: bool = False) -> object:
    """A request that has waited long enough to be asked whether its caller is gone."""
    ids = np.array([token for row in rows for token in row], np.int32)
    starts = np.array(starts_of([len(row) for row in rows]), np.int32)
    types = (ids % 2).astype(np.uint8) if typed else None
    return joining.PackedRequest(ids, starts, types, caller=caller, since=-1e9)


class World:
    """A pipeline with fakes around it."""

    def __init__(self, runner: FakeRunner, replies: FakeReplies, limits: object = LIMITS) -> None:
        self.runner = runner
        self.replies = replies
        self.ended: list[str] = []
        self.counts = counting.Counts()
        self.pipeline = joining.RunPipeline(
            runner, replies, limits, meter=self.counts, end=self.ended.append
        )

    def run(self, requests: Sequence[object], *, later: int = 0) -> dict[int, object]:
        """All of them, one after the other, until each is answered: what each got.

        The last ones come ``later``, while those before them run already.
        """
        self.runner.gate.set()
        for request in requests[: len(requests) - later]:
            self.pipeline.offer(request)
        self.pipeline.start()
        for request in requests[len(requests) - later :]:
            self.pipeline.offer(request)
        self.pipeline.close()
        return self.found()

    def found(self) -> dict[int, object]:
        found = dict(self.replies.sent)
        assert len(found) == len(self.replies.sent), "a request was answered twice"
        return found


ROW = st.lists(st.integers(0, 80), min_size=1, max_size=9)
# Of each request: its rows, whether it has types, and the id with which it fails, if it does.
FAULT = st.sampled_from((None, None, None, None, BAD_AT_ONCE, BAD_LATER, NOT_A_NUMBER))
REQUESTS = st.lists(
    st.tuples(st.lists(ROW, min_size=1, max_size=5), st.booleans(), FAULT), min_size=1, max_size=12
)


@settings(max_examples=150, deadline=None)
@given(
    plan=REQUESTS,
    gone=st.sets(st.integers(0, 11), max_size=3),
    most=st.sampled_from((5, 12, 10_000, 10_000)),
    later=st.integers(0, 4),
)
def test_each_request_gets_one_answer_which_is_its_own(
    plan: list[tuple[list[list[int]], bool, int | None]], gone: set[int], most: int, later: int
) -> None:
    world = World(FakeRunner(most=most), FakeReplies(gone=gone))
    for rows, _, fault in plan:
        if fault is not None:
            rows[-1][-1] = fault
    requests = [
        request_of(number, rows, typed=typed) for number, (rows, typed, _) in enumerate(plan)
    ]
    found = world.run(requests, later=min(later, len(plan)))
    assert found.keys() == set(range(len(plan)))
    assert world.ended == []
    for number, (rows, typed, fault) in enumerate(plan):
        answer = found[number]
        if number in gone:
            assert answer is None
        elif sum(map(len, rows)) > most and fault != BAD_AT_ONCE:
            assert str(answer).startswith("engine: the memory does not suffice")
        elif fault in {BAD_AT_ONCE, BAD_LATER}:
            assert answer == "engine: the row is bad"
        elif fault == NOT_A_NUMBER:
            assert answer == "engine: the model gives NaN or infinity for it"
        else:
            arrays = [np.array(row) for row in rows]
            assert answer == [answer_of(row, row % 2 * typed) for row in arrays]


@settings(max_examples=50, deadline=None)
@given(plan=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=1, max_size=20))
def test_requests_are_answered_in_order_and_runs_keep_their_limits(plan: list[list[int]]) -> None:
    world = World(FakeRunner(), FakeReplies())
    world.run(
        [
            request_of(number, [[1] * length for length in lengths])
            for number, lengths in enumerate(plan)
        ]
    )
    assert [caller for caller, _ in world.replies.sent] == list(range(len(plan)))
    assert [row for run in world.runner.runs for row in run] == [
        length for lengths in plan for length in lengths
    ]
    for run in world.runner.runs:
        alone = run in plan
        assert alone or (sum(run) <= LIMITS.run_tokens and len(run) <= LIMITS.run_rows)


def test_what_comes_while_two_runs_are_on_the_way_joins_the_third() -> None:
    world = World(FakeRunner(), FakeReplies())
    world.pipeline.start()
    for number in range(2):
        world.pipeline.offer(request_of(number, [[1]]))
        begun = partial(lambda count: len(world.runner.runs) == count, number + 1)
        until("the run begins", 60.0, begun)
    for number in range(2, 6):
        world.pipeline.offer(request_of(number, [[number]]))
    assert world.runner.runs == [[1], [1]]
    world.runner.gate.set()
    world.pipeline.close()
    assert world.runner.runs == [[1], [1], [1, 1, 1, 1]]
    assert world.found().keys() == set(range(6))


def ran_once(took: float) -> World:
    """A pipeline that has seen how long a run of one token takes, and whose next run is begun."""
    world = World(FakeRunner(took=took), FakeReplies())
    world.pipeline.start()
    for number in range(2):
        world.runner.gate.set()
        until(
            "the runs before are over",
            60.0,
            partial(lambda each: len(world.replies.sent) == each, number),
        )
        world.runner.gate.clear()
        world.pipeline.offer(request_of(number, [[1]]))
        begun = partial(lambda count: len(world.runner.runs) == count, number + 1)
        until("the run begins", 60.0, begun)
    return world


def test_what_comes_while_a_run_computes_joins_the_next_which_is_chosen_once_it_is_over() -> None:
    world = ran_once(took=3600.0)
    for number in range(2, 6):
        world.pipeline.offer(request_of(number, [[number]]))
        for _ in range(5):  # other threads have had their turn: a run would have begun
            World(FakeRunner(), FakeReplies()).run([request_of(0, [[1]])])
    world.runner.gate.set()
    until("all are answered", 60.0, lambda: len(world.replies.sent) == 6)
    world.pipeline.close()
    assert world.runner.runs == [[1], [1], [1, 1, 1, 1]]


def test_a_run_that_is_full_is_chosen_however_long_the_one_before_it_takes() -> None:
    world = ran_once(took=3600.0)
    for number in range(2, 2 + LIMITS.run_rows):
        world.pipeline.offer(request_of(number, [[number]]))
    until("the full run begins", 60.0, lambda: world.runner.runs[2:] == [[1] * LIMITS.run_rows])
    world.runner.gate.set()
    world.pipeline.close()


def test_a_full_queue_refuses_in_words_that_gateways_know_until_there_is_room() -> None:
    limits = joining.RunLimits(
        run_tokens=4, run_rows=6, held_tokens=4, row_tokens=9, vocabulary=VOCABULARY
    )
    world = World(FakeRunner(), FakeReplies(), limits)
    world.pipeline.start()
    world.pipeline.offer(request_of(0, [[1, 2, 3]]))
    world.pipeline.offer(request_of(1, [[1, 2]]))
    assert world.replies.sent == [(1, "queue is full: 3 tokens are held")]
    world.runner.gate.set()
    until("the first is answered", 60.0, lambda: len(world.replies.sent) == 2)
    world.pipeline.offer(request_of(2, [[1, 2, 3, 4, 5, 6, 7, 8]]))  # by itself, however large
    world.pipeline.close()
    assert isinstance(world.found()[2], list)


def test_what_ran_was_filled_up_was_refused_and_was_tried_again_is_counted() -> None:
    limits = joining.RunLimits(
        run_tokens=20, run_rows=6, held_tokens=8, row_tokens=9, vocabulary=VOCABULARY
    )
    world = World(FakeRunner(), FakeReplies(), limits)
    world.run(
        [
            request_of(0, [[1, 2], [3]]),
            request_of(1, [[4]]),
            request_of(2, [[BAD_AT_ONCE]]),
            request_of(3, [[5, 6]]),
            request_of(4, [[7, 8, 9]]),
        ]
    )
    # The four that were held fail together; then three of them run, each by itself.
    assert world.counts.take() == {
        counting.RUNS: 3,
        counting.MESSAGES: 3,
        counting.TOKENS: 6,
        counting.PADDING: 3 * EXTRA,
        counting.SECONDS: pytest.approx(3 * world.runner.took),
        counting.REFUSED: 1,
        counting.RETRIED: 4,
    }


@settings(max_examples=50, deadline=None)
@given(plan=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=1, max_size=20))
def test_each_token_of_each_request_is_counted_once(plan: list[list[int]]) -> None:
    world = World(FakeRunner(), FakeReplies())
    world.run(
        [request_of(number, [[1] * length for length in each]) for number, each in enumerate(plan)]
    )
    counts = world.counts.take()
    assert counts[counting.TOKENS] == sum(map(sum, plan))
    assert counts[counting.MESSAGES] == len(plan)
    assert counts[counting.RUNS] == len(world.runner.runs)


class FakeCounter:
    """One of Triton's."""

    def __init__(self, told: "Counter[str]", name: str) -> None:
        self._told = told
        self._name = name

    def increment(self, value: float) -> None:
        if value < 0:
            raise RuntimeError("Triton takes no less than 0")
        self._told[self._name] += value  # type: ignore[assignment]


def test_all_that_was_counted_is_told_once_also_what_was_counted_last() -> None:
    counts, told = counting.Counts(), Counter[str]()
    counters = {name: FakeCounter(told, name) for name in counting.COUNTERS}
    exporter = counting.Exporter(counts, counters)
    counts.note_run(2, 10, 16, 0.5)
    exporter.start()
    until("it is told", 60.0, lambda: told[counting.RUNS])
    counts.note_run(1, 3, 4, 0.25)
    counts.note_refusal()
    exporter.stop()
    assert told == {
        counting.RUNS: 2,
        counting.MESSAGES: 3,
        counting.TOKENS: 13,
        counting.PADDING: 7,
        counting.SECONDS: 0.75,
        counting.REFUSED: 1,
    }


def test_a_caller_that_gave_up_costs_no_run() -> None:
    world = World(FakeRunner(), FakeReplies(gone={0}))
    world.run([request_of(0, [[1, 2]])])
    assert world.runner.runs == []
    assert world.replies.sent == [(0, None)]


def test_a_caller_of_whom_nothing_is_known_is_answered() -> None:
    world = World(FakeRunner(), FakeReplies(silent={0}))
    assert world.run([request_of(0, [[1]])])[0] == [answer_of(np.array([1]), np.array([0]))]


def test_an_answer_that_can_not_be_sent_stops_no_other() -> None:
    world = World(FakeRunner(), FakeReplies(unsent={0, 2}))
    found = world.run([request_of(number, [[number + 1]]) for number in range(4)])
    assert found.keys() == {0, 1, 2, 3}
    assert world.ended == []


def test_a_lost_gpu_ends_the_process_once_all_that_it_holds_are_told() -> None:
    world = World(FakeRunner(lost=True), FakeReplies(unsent={2}))
    requests = [request_of(number, [[1] * 9, [2] * 9]) for number in range(6)]
    world.pipeline = joining.RunPipeline(
        world.runner,
        world.replies,
        LIMITS,
        end=lambda reason: world.ended.append(f"{len(world.replies.sent)} told: {reason}"),
    )
    found = world.run(requests)
    assert world.ended[0] == f"6 told: the GPU can't be used any more: {LOST}"
    assert found.keys() == set(range(6))
    # In words by which gateways ask another Triton, and blame no request.
    assert set(found.values()) == {f"Stub process ends: the GPU can't be used any more: {LOST}"}


def test_without_memory_for_all_together_each_is_tried_by_itself() -> None:
    world = World(FakeRunner(most=3), FakeReplies())
    world.runner.gate.set()
    requests = [request_of(number, [[number, 1, 1]]) for number in range(3)]
    for request in requests:
        world.pipeline.offer(request)
    world.pipeline.start()
    world.pipeline.close()
    assert world.runner.runs == [[3, 3, 3], [3], [3], [3]]
    assert world.runner.freed == 1
    assert [answer[0][0] for answer in world.found().values()] == [2, 3, 4]  # type: ignore[index]


def test_an_engine_that_lost_count_ends_the_process_and_gives_nobody_values() -> None:
    world = World(FakeRunner(short=True), FakeReplies())
    world.runner.gate.set()
    world.pipeline.start()
    world.pipeline.offer(request_of(0, [[1], [2]]))
    until("the process ends", 60.0, lambda: world.ended)
    assert "1 answers for 2 questions" in world.ended[0]
    assert [str(what).partition(":")[0] for _, what in world.replies.sent] == ["Stub process ends"]


@pytest.mark.parametrize(
    "words",
    [
        LOST,
        "CUDA error: device-side assert triggered",
        "CUDA error: unspecified launch failure",
        "CUDA error: uncorrectable ECC error encountered",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx",
        "cudaErrorIllegalAddress",
    ],
)
def test_errors_after_which_a_gpu_computes_nothing_are_known(words: str) -> None:
    assert joining.is_lost(RuntimeError(words))
    assert not joining.is_full(RuntimeError(words))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(FULL),
        MemoryError(),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
    ],
)
def test_want_of_memory_is_no_lost_gpu(error: Exception) -> None:
    assert joining.is_full(error)
    assert not joining.is_lost(error)


@pytest.mark.parametrize(
    "words",
    [
        "shape mismatch",
        "index 3 is out of bounds",
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
        "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling cublasLtMatmul",
    ],
)
def test_a_fault_of_a_request_is_neither(words: str) -> None:
    assert not joining.is_lost(RuntimeError(words))
    assert not joining.is_full(RuntimeError(words))


INT32 = np.int32


@pytest.mark.parametrize(
    ("ids", "starts", "types", "words"),
    [
        (np.array([1, 2]), np.array([0, 2], INT32), None, "INT32"),
        (np.array([[1, 2]], INT32), np.array([0, 2], INT32), None, "one dimension"),
        (np.array([1, 2], INT32), np.array([0], INT32), None, "begin with 0"),
        (np.array([1, 2], INT32), np.array([1, 2], INT32), None, "begin with 0"),
        (np.array([1, 2], INT32), np.array([0, 3], INT32), None, "end with the 2 tokens"),
        (np.array([1, 2], INT32), np.array([0, 1, 1, 2], INT32), None, "must grow"),
        (np.array([1, 2], INT32), np.array([0, 5, 2], INT32), None, "must grow"),
        (np.array([], INT32), np.array([0, 0], INT32), None, "must grow"),
        (np.ones(10, INT32), np.array([0, 10], INT32), None, "over the model's 9"),
        (np.array([1, 100], INT32), np.array([0, 2], INT32), None, "from 0 to 99"),
        (np.array([-1, 2], INT32), np.array([0, 2], INT32), None, "from 0 to 99"),
        (np.array([1, 2], INT32), np.array([0, 2], INT32), np.array([0, 0]), "UINT8"),
        (np.array([1], INT32), np.array([0, 1], INT32), np.array([0, 0], np.uint8), "each of"),
        (np.array([1], INT32), np.array([0, 1], INT32), np.array([2], np.uint8), "less than 2"),
    ],
)
def test_a_request_that_can_not_be_run_is_refused_before_it_runs(
    ids: np.ndarray, starts: np.ndarray, types: np.ndarray | None, words: str
) -> None:
    world = World(FakeRunner(), FakeReplies())
    good = request_of(1, [[1]])
    found = world.run([joining.PackedRequest(ids, starts, types, caller=0), good])
    assert str(found[0]).startswith("engine: ")
    assert words in str(found[0])
    assert found[1] == [answer_of(np.array([1]), np.array([0]))]
    assert world.runner.runs == [[1]]
