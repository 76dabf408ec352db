"""Rows of a batch are answered together where a job lies whole in it, and in any order else."""

import asyncio

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gateway.batching.jobs import Job, TextRow, mark_ended, mark_sent, parts


def job_of(rows: int) -> Job:
    job = Job("e", 10.0, asyncio.get_running_loop().create_future())
    job.rows = [TextRow(job, at, [1] * 4, bucket=8, enqueued=1.0) for at in range(rows)]
    job.unanswered = rows
    return job


def answered(rows: list[TextRow]) -> list[int]:
    """Answers each row of a batch with its own index and its job's size, as the batcher does."""
    counts, at = parts(rows), 0
    for count in counts:
        chunk = rows[at : at + count]
        values = np.array([[row.index, len(row.job.rows)] for row in chunk], np.float32)
        chunk[0].job.fill(chunk[0].index, count, values)
        at += count
    assert at == len(rows)
    return counts


@given(st.data())
async def test_every_row_gets_its_own_values_however_batches_are_made(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    jobs = [job_of(size) for size in sizes]
    rows = [row for job in jobs for row in job.rows]
    if data.draw(st.booleans()):
        rows = data.draw(st.permutations(rows))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        answered(rows[start:end])
    for job, size in zip(jobs, sizes, strict=True):
        values = await job.future
        assert values.tolist() == [[at, size] for at in range(size)]
        assert job.unanswered == 0


async def test_a_job_that_lies_whole_in_a_batch_is_answered_at_once() -> None:
    one, many = job_of(1), job_of(4)
    assert answered([*one.rows, *many.rows]) == [1, 4]


async def test_a_job_whose_rows_are_out_of_order_is_answered_row_by_row() -> None:
    job = job_of(4)
    assert answered([job.rows[at] for at in (0, 2, 1, 3)]) == [1, 1, 1, 1]
    assert (await job.future)[:, 0].tolist() == [0, 1, 2, 3]


async def test_a_jobs_times_are_those_of_the_row_that_took_longest() -> None:
    job = job_of(3)
    mark_sent(job.rows[:2], 2.0)
    mark_ended(job.rows[:2], 2.0, 3.0)
    mark_sent(job.rows[2:], 5.0)
    mark_ended(job.rows[2:], 5.0, 5.5)
    assert job.times == (4.0, 0.5)
    job.end()
    assert job.times == (4.0, 0.5)


async def test_a_job_that_has_ended_refers_to_no_row_and_ignores_answers_to_them() -> None:
    answered_job, failed, cancelled = job_of(3), job_of(3), job_of(3)
    rows = [*failed.rows, *cancelled.rows]
    answered(list(answered_job.rows))
    failed.end(ValueError())
    cancelled.end()
    assert answered_job.rows == failed.rows == cancelled.rows == []
    assert answered(rows) == [1] * 6
    answered_job.end(ValueError())
    assert (await answered_job.future).tolist() == [[at, 3] for at in range(3)]
    assert isinstance(failed.future.exception(), ValueError)
    assert cancelled.future.cancelled()
