"""A backfill of the next space beside interactive requests, on a simulated accelerator.

Batchers, schedules and the bounds of bulk requests are the gateway's own (``bulk_world``). The
accelerator takes 1 ms a batch and 1.2 us a padded token; a call of a text comes at random instants.
The next version is a package of its own; ``headrace backfill`` has 8 requests of 32 texts on their
way. With and without it the same calls come.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from bulk_world import ACCELERATOR, Setting, beside

from verdicts.findings import Finding

# Seconds of gateway.bulkDelaySeconds (by default 0), the callers of each gateway by weight, and the
# share of the time in which the accelerator works for interactive calls; of 0, half of it, nine
# tenths in every other second.
BURSTS = 0.0
ONE, TWO, UNEVEN, FOUR = (1.0,), (1.0, 1.0), (1.0, 0.0), (1.0, 1.0, 1.0, 1.0)
LOADS = (0.01, 0.1, 0.5, 0.8, BURSTS)
SETTINGS = (
    *((0.0, callers, load) for callers in (ONE, TWO, UNEVEN) for load in LOADS),
    (0.0, ONE, 0.95),
    (0.0, FOUR, 0.5),
    (0.002, ONE, 0.1),
)
MOST = 110  # percent of its p99 without a backfill

Job = tuple[float, Sequence[float], float, int]


def slowed(
    calls: int,
    processes: int = 1,
    settings: Sequence[tuple[float, Sequence[float], float]] = SETTINGS,
) -> list[Finding]:
    """What so many interactive calls wait, and how much is embedded, in each setting."""
    jobs = [(*each, calls) for each in settings]
    if processes == 1:
        return [found for job in jobs for found in _beside(job)]
    with ProcessPoolExecutor(processes) as pool:
        return [found for each in pool.map(_beside, jobs) for found in each]


def _beside(job: Job) -> Sequence[Finding]:
    delay, callers, load, calls = job
    gateways = len(callers)
    setting = Setting(
        ACCELERATOR,
        gateways=gateways,
        spread=tuple(callers) if 0.0 in callers else (),  # so that even ones keep their draws
        apart=True,
        short_seconds=delay,
        bulk_texts=32,
        bulk_calls=8,
        bursts=load == BURSTS,
    )
    quiet, busy = (beside(setting, load or 0.5, bulk=bulk, calls=calls) for bulk in (False, True))
    what = f"{1000 * delay:g} ms, {gateways} gateway{'s' * (gateways > 1)}, "
    what += "all callers at one, " * (0.0 in callers)
    what += f"load {load:g}" if load else "bursts"
    texts = busy.bulk_texts / busy.ended
    minutes = 1e6 / texts / 60 if texts else float("inf")
    ratio = 100 * busy.p99 / quiet.p99
    return [
        Finding(what, "p99 without, us", 1e6 * quiet.p99, None, calls, "us"),
        Finding(what, "with, us", 1e6 * busy.p99, None, calls, "us"),
        Finding(what, "with, %", ratio, MOST, calls, "percent"),
        Finding(what, "texts/s", texts, None, calls, "texts"),
        Finding(what, "minutes for a million", minutes, None, calls, "minutes"),
    ]
