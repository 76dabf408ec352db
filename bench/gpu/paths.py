"""Whole paths, text in and vectors out: Headrace with several gateways, and the Triton ensemble.

The ensemble gets the cores that Headrace's Triton and gateways have together, and a tokeniser for
each gateway. Closed loads, one load generator a gateway; the ensemble is asked by as many.
"""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from bench import load
from bench.gpu.device import Layout
from bench.metrics import Snapshot
from bench.peers.comparison import Likeness
from bench.peers.entrants import HEADRACE, subject
from bench.peers.findings import middle
from bench.peers.plan import MANY, PATIENT_SECONDS
from bench.peers.race import begin, likeness_of, requests
from bench.peers.subjects import Running, Site
from bench.plan import Plan

GATEWAYS = (1, 2, 4, 8)
CALLERS = {1: 128, MANY: 32}  # of a gateway, by texts a request
SMALL_CALLERS = {1: 4, MANY: 1}
_COMPUTED = "nv_inference_compute_infer_duration_us"
_SETTLED_SECONDS = 2.5  # gateways read what loaders measured every second or two


@dataclass(frozen=True)
class Round:
    """What one load came to: milliseconds; the middle p50 and the worst p99 of the generators."""

    texts_per_second: float
    p50: float
    p99: float
    busy: float  # share of the time that the engine computes
    failed: int  # requests not answered with 200


@dataclass
class Path:
    """One server at one number of gateways and texts a request, over the rounds."""

    who: str
    gateways: int
    texts: int
    rounds: list[Round]

    def middle(self, name: str) -> float:
        """The median of a figure over the rounds."""
        return middle([float(getattr(each, name)) for each in self.rounds])


def visit(
    who: str, site: Site, layout: Layout, plan: Plan, callers: dict[int, int], *, judge: bool
) -> tuple[list[Path], Likeness | None]:
    """Starts a server, compares its answers if told, and offers each load once."""
    peer, found = subject(who), []
    with peer.start(site) as running:
        begin(peer, running)
        likeness = likeness_of(peer, running, site.model) if judge else None
        if who == HEADRACE:
            time.sleep(_SETTLED_SECONDS)
        for texts, count in callers.items():
            bodies = requests(peer, texts, plan.seed)
            result = _offer(running, layout, plan, bodies, count, texts=texts)
            found.append(Path(who, len(layout.gateways), texts, [result]))
    return found, likeness


def _offer(
    running: Running, layout: Layout, plan: Plan, bodies: list[str], callers: int, *, texts: int
) -> Round:
    """Offers one load to all gateways at once."""
    count = len(layout.gateways)
    ports = running.ports or (running.port,) * count

    def one(number: int) -> load.Result:
        own = replace(plan, rest=layout.load[number % len(layout.load)])
        part = bodies[number::count]
        return own.offer(
            port=ports[number], path=running.path, bodies=part, callers=callers,
            timeout_seconds=PATIENT_SECONDS,
        )  # fmt: skip

    before = _computed(running)
    with ThreadPoolExecutor(count) as pool:
        waiting = [pool.submit(one, number) for number in range(count)]
        results = [each.result() for each in waiting]
    # Callers are at work while it is warmed up too.
    busy = (_computed(running) - before) / (plan.warm_up_seconds + plan.seconds)
    good = [each.of(200) for each in results]
    return Round(
        texts_per_second=texts * sum(each.per_second for each in good),
        p50=middle([each.latency.p50 for each in good]),
        p99=max((each.latency.p99 for each in good if each.count), default=math.nan),
        busy=busy,
        failed=sum(each.offered for each in results) - sum(each.count for each in good),
    )


def _computed(running: Running) -> float:
    """Seconds that the engine has computed, by Triton's own count."""
    return Snapshot.of(running.metrics).total(_COMPUTED, model=running.computing) / 1e6
