"""How long a version on trial may take, so that the one that stands in for it still can answer.

``attempts.py`` asks before an attempt that another version would make good. Pure arithmetic; the
batcher's own estimates are all that it knows of the engines.
"""

from collections.abc import Sequence

from gateway.batching.batcher import Batcher

_MARGIN = 2.0  # times the usual: estimates are of typical batches
_LEAST_RESERVE_SECONDS = 0.05  # for what an attempt costs beside the engine, on a busy gateway
# A reserve of more than this share of the time would leave a version on trial too little to be
# judged by: then it gets all of it, and nobody stands in if it is too late.
_MOST_RESERVED = 0.5


def usual_seconds(batcher: Batcher, flow: str, tokens: Sequence[int]) -> float:
    """What texts of so many tokens would take from now on: their wait, and their batches.

    Args:
        batcher: of the version that would answer.
        flow: the endpoint.
        tokens: of each text.
    """
    # In another version's tokens they may be longer than this one's rows.
    longest = batcher.model.buckets[-1]
    rows = [min(count, longest) for count in tokens]
    bucket = batcher.model.bucket_of(max(rows))
    batch = batcher.cost.seconds(bucket, batcher.cost.best_rows(bucket))
    return batcher.wait_seconds(flow) + max(batch, batcher.work_seconds(rows))


def first_deadline(now: float, deadline: float, usual: float) -> float:
    """When to give up on a first attempt.

    Args:
        now: the event loop's clock, seconds.
        deadline: the caller's, by the same clock.
        usual: seconds that the second attempt usually takes.
    """
    reserve = max(_LEAST_RESERVE_SECONDS, _MARGIN * usual)
    if reserve > _MOST_RESERVED * (deadline - now):
        return deadline
    return deadline - reserve
