"""Which pairs of a shadow are kept for people to label, where an operator lets texts be kept.

Of each mirrored request one text is compared, drawn by lot; it is counted, and counted again where
the versions label it differently. Such a pair gets an id drawn by lot, and so a place in the order
of labelling (``contracts.pairs``). A pair is kept while fewer than ``KEPT`` come before it: then it
belongs to a uniform sample of all that disagreed, whenever it came. Its text stays here until
``take`` has put it into a message, and no longer.

The event loop counts, another thread takes; neither waits for more than the other's few steps.
"""

import heapq
import random
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from contracts.pairs import KEPT, LONGEST_TEXT, Disagreement, ShadowComparison, place

MOST_ROLLOUTS = 16  # with more, the oldest one's has ended long ago
_PAIRS_A_MESSAGE = 8  # of two texts of ``LONGEST_TEXT``, below a megabyte however it is written

Versions = tuple[str, str, str]  # endpoint, stable, candidate


@dataclass(slots=True)
class _Rollout:
    """What was compared of two versions.

    Attributes:
        gateway: names this count; another one after it was forgotten.
        compared: texts so far.
        disagree: of these.
        told: ``compared`` in the last message.
        sequence: of the next message.
        last: a heap of those kept, by their places negated: the last in the order is on top.
        waiting: pairs that are kept and in no message yet, by id.
    """

    gateway: str
    compared: int = 0
    disagree: int = 0
    told: int = 0
    sequence: int = 0
    last: list[tuple[int, str]] = field(default_factory=list)
    waiting: dict[str, Disagreement] = field(default_factory=dict)


class KeptPairs:
    """The pairs of one process.

    Args:
        gateway: unique for each start of a gateway process.
        kept: most pairs of a rollout.
        new_id: names a pair, by lot.
        draw: a whole number below this many, by lot.
    """

    def __init__(
        self,
        gateway: str,
        *,
        kept: int = KEPT,
        new_id: Callable[[], str] = lambda: secrets.token_hex(6),
        draw: Callable[[int], int] = random.randrange,
    ) -> None:
        self._gateway = gateway
        self._kept = kept
        self._new_id = new_id
        self._draw = draw
        self._lock = threading.Lock()
        self._rollouts: dict[Versions, _Rollout] = {}
        self._begun = 0

    def compared(
        self,
        versions: Versions,
        texts: Sequence[str],
        seconds: Sequence[str | None] | None,
        labels: tuple[Sequence[str], Sequence[str]],
    ) -> None:
        """Counts one of a request's texts, and keeps it if it is to be labelled.

        Args:
            versions: endpoint, stable and candidate.
            texts: of the request, at least one.
            seconds: what each is read together with, if anything.
            labels: stable's and the candidate's, one a text each.
        """
        at = self._draw(len(texts))
        stable, candidate = labels[0][at], labels[1][at]
        with self._lock:
            rollout = self._of(versions)
            rollout.compared += 1
            if stable == candidate:
                return
            rollout.disagree += 1
            pair_id = self._new_id()
            number, _ = place(pair_id)
            heapq.heappush(rollout.last, (-number, pair_id))
            second = None if seconds is None else seconds[at]
            rollout.waiting[pair_id] = Disagreement(
                pair_id,
                stable,
                candidate,
                _cut(texts[at]),
                None if second is None else _cut(second),
            )
            if len(rollout.last) > self._kept:
                _, beyond = heapq.heappop(rollout.last)
                rollout.waiting.pop(beyond, None)

    def take(self) -> ShadowComparison | None:
        """The next message, which has to reach the topic unchanged; None if nothing is new."""
        with self._lock:
            for (endpoint, stable, candidate), rollout in self._rollouts.items():
                if rollout.told == rollout.compared and not rollout.waiting:
                    continue
                ids = list(rollout.waiting)[:_PAIRS_A_MESSAGE]
                rollout.told = rollout.compared
                rollout.sequence += 1
                return ShadowComparison(
                    rollout.gateway,
                    rollout.sequence - 1,
                    endpoint,
                    stable,
                    candidate,
                    rollout.compared,
                    rollout.disagree,
                    self._kept,
                    [rollout.waiting.pop(each) for each in ids],
                )
        return None

    def _of(self, versions: Versions) -> _Rollout:
        rollout = self._rollouts.get(versions)
        if rollout is None:
            if len(self._rollouts) >= MOST_ROLLOUTS:
                del self._rollouts[next(iter(self._rollouts))]
            rollout = self._rollouts[versions] = _Rollout(f"{self._gateway}-{self._begun}")
            self._begun += 1
        return rollout


def _cut(text: str) -> str:
    """At most ``LONGEST_TEXT`` characters, all of which can be written."""
    return text[:LONGEST_TEXT].encode("utf-8", "replace").decode("utf-8")
