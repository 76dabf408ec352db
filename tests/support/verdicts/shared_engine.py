"""Answers' times where two versions and a neighbour share the engines of two Tritons.

Requests are queued and served one by one, batch by batch: a version that has many callers waits for
its own batches, a slow one holds up the others, and a neighbour all of them. Times are those of the
simulated accelerator: a batch takes a millisecond, and each of its tokens a little. What a gateway
and the network take besides is drawn.

Some windows of each state are simulated once, and rollouts draw from them which one they meet.
"""

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from contracts.statistics import LATENCY_EDGES
from measures.correlation import Floats
from verdicts.traffic import BUCKETS, LENGTH_SHARES, LENGTHS

TRITONS = 2
MOST = 32  # requests of a batch
BATCH_SECONDS, TOKEN_SECONDS = 1e-3, 1.2e-6
WINDOWS, SECONDS, WARM_UP = 8, 1.0, 0.3  # of each state, of each of them, and before it
STABLE, CANDIDATE, NEIGHBOUR = range(3)
COPIES = 0.1  # of stable's requests, that are copied in shadow
LONGEST_WAIT = 0.5  # seconds, for which a copy waits until neither version has a request
_REST_SECONDS, _SIGMA = 0.006, 0.35  # of a gateway and the network: median, and of its logarithm
_EDGES = np.array(LATENCY_EDGES.upper)


@dataclass(frozen=True)
class Engine:
    """What two Tritons have to do.

    Attributes:
        requests: a second, of both versions; those that are judged are some of them.
        neighbour: a second, of another model, while it is busy.
        slower: how many times as long the candidate's batches take.
    """

    requests: float = 3000.0
    neighbour: float = 1500.0
    slower: float = 1.0


@dataclass(frozen=True)
class Queue:
    """Requests of one Triton, in the order in which they came, ``[requests]`` each."""

    came: Floats
    model: NDArray[np.int64]
    tokens: NDArray[np.int64]

    @classmethod
    def drawn(cls, rates: Floats, rng: np.random.Generator) -> Self:
        """Of models with so many requests a second."""
        counts = rng.poisson(rates * (WARM_UP + SECONDS))
        model = np.repeat(np.arange(len(rates)), counts)
        came = rng.uniform(0, WARM_UP + SECONDS, len(model))
        order = np.argsort(came)
        tokens = rng.choice(LENGTHS, len(model), p=LENGTH_SHARES)
        return cls(came[order], model[order], tokens)

    def answered(self, engine: Engine, *, is_shadow: bool) -> Floats:
        """Seconds until each was answered: idle engines take the next model's batch in turn.

        As by a gateway, copies are sent one by one, when it has no other request of either version,
        and timed from then; infinite: one waited too long for that and was dropped.
        """
        waiting: list[deque[int]] = [deque() for _ in range(NEIGHBOUR + 1)]
        offered: deque[int] = deque()  # copies that are not sent yet
        sent, done = self.came.copy(), np.full(len(self.came), np.inf)
        now, free, at, turn = 0.0, 0.0, 0, 0
        while at < len(self.came) or any(waiting) or offered:
            if not any(waiting) and not offered:
                now = max(now, float(self.came[at]))
            while at < len(self.came) and self.came[at] <= now:
                is_copy = is_shadow and self.model[at] == CANDIDATE
                (offered if is_copy else waiting[self.model[at]]).append(at)
                at += 1
            while offered and now - self.came[offered[0]] > LONGEST_WAIT:
                offered.popleft()
            if offered and not waiting[STABLE] and not waiting[CANDIDATE]:
                copy = offered.popleft()
                sent[copy] = max(free, self.came[copy])
                waiting[CANDIDATE].append(copy)
            others = [(turn + 1 + each) % len(waiting) for each in range(len(waiting))]
            turn = next((model for model in others if waiting[model]), turn)
            of = waiting[turn]
            if not of:
                continue
            batch = [of.popleft() for _ in range(min(MOST, len(of)))]
            padded = len(batch) * int(self.tokens[batch].max())
            took = BATCH_SECONDS + TOKEN_SECONDS * padded
            now += took * (engine.slower if turn == CANDIDATE else 1.0)
            done[batch] = now
            free = free if turn == NEIGHBOUR else now
        return done - sent


@lru_cache(maxsize=128)
def windows(engine: Engine, share: float, *, is_busy: bool) -> Floats:
    """``[windows, 2, lengths, buckets]``: shares of times, of the candidate and of stable.

    Args:
        engine: that they share.
        share: of callers, that the candidate has; 0 in shadow, where it gets copies.
        is_busy: whether the neighbour's requests come.
    """
    rng = np.random.default_rng([35, round(1000 * share), int(is_busy)])
    is_shadow = share == 0
    of_candidate = COPIES if is_shadow else share
    rates = np.array([1 - share, of_candidate, 0.0]) * engine.requests
    rates[NEIGHBOUR] = engine.neighbour * is_busy
    found = np.zeros((WINDOWS, 2, len(LENGTHS), BUCKETS))
    for window in found:
        for _ in range(TRITONS):
            queue = Queue.drawn(rates / TRITONS, rng)
            rest = np.exp(rng.normal(np.log(_REST_SECONDS), _SIGMA, len(queue.came)))
            took = queue.answered(engine, is_shadow=is_shadow) + rest
            bucket = np.searchsorted(_EDGES, took)
            arm = np.where(queue.model == CANDIDATE, 0, 1)
            is_told = (queue.came >= WARM_UP) & (queue.model != NEIGHBOUR) & np.isfinite(took)
            at = (arm, np.searchsorted(LENGTHS, queue.tokens), bucket)
            np.add.at(window, tuple(part[is_told] for part in at), 1.0)
    # An arm of few requests is told by all of its windows, and by each as far as it goes.
    every = found.sum(axis=0, keepdims=True)
    found += every / np.maximum(every.sum(axis=-1, keepdims=True), 1.0) * 20
    whole: Floats = found / found.sum(axis=-1, keepdims=True)
    return whole
