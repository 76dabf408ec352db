"""The windows of every arm over the last day, kept packed: what the board shows and drift reads.

A window is closed once, when nothing is expected to come to it any more; what comes later is still
counted into it, and only drift, which looks once, has not seen it. Sums are exact. Pure; the clock
is passed in.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from contracts.endpoint import Arm
from contracts.statistics import Statistic
from contracts.windows import MICRO, EvidenceCounts, UnkWordCounts, WindowAggregate
from measures.merging import add, merge
from measures.trust import ScoredFeedback, Trust, interval
from stats.evaluation.board import (
    MINUTE_SECONDS,
    MINUTES_SECONDS,
    WINDOWS_SECONDS,
    Accuracy,
    Series,
    Window,
)

MOST_SLOTS = 512  # endpoint, version, package, arm; more are not shown
AHEAD_SECONDS = 7200  # a gateway's clock may be wrong by an hour, and is believed


class Slot(NamedTuple):
    """Whose counts they are."""

    endpoint: str
    version: str
    package: str
    arm: Arm


class ClosedWindow(NamedTuple):
    """A window that nothing more is expected of."""

    slot: Slot
    window: Window

    @property
    def end(self) -> int:
        """Unix seconds."""
        return self.window.start + self.window.seconds


def slot_of(aggregate: WindowAggregate) -> Slot:
    """Whose aggregate it is."""
    return Slot(aggregate.endpoint, aggregate.version, aggregate.package, aggregate.arm)


@dataclass(slots=True)
class _Answers:
    """What accuracy is made of."""

    score_micro: int = 0
    scores: int = 0
    right: int = 0
    feedback: int = 0
    scored: ScoredFeedback = field(default_factory=ScoredFeedback)


@dataclass(slots=True)
class ArmHistory:
    """One arm's; ``closed``: up to which windows were closed, unix seconds."""

    windows: dict[int, Window] = field(default_factory=dict)
    minutes: dict[int, Window] = field(default_factory=dict)
    answers: dict[int, _Answers] = field(default_factory=dict)
    closed: float = 0.0


class History:
    """All arms' windows."""

    def __init__(self, kept: Mapping[Slot, ArmHistory] | None = None) -> None:
        self._kept = dict(kept or {})

    def of(self, endpoint: str) -> dict[Slot, ArmHistory]:
        """What is kept of an endpoint; it goes on changing."""
        return {slot: kept for slot, kept in self._kept.items() if slot.endpoint == endpoint}

    def adopt(self, kept: Mapping[Slot, ArmHistory]) -> None:
        """Goes on with what another one kept of an endpoint."""
        self._kept |= kept

    def add(self, aggregate: WindowAggregate, seconds: int, now: float) -> bool:
        """Counts what an aggregate gained; False if it is too old, too far ahead or one too many.

        Args:
            aggregate: of one window, which is not changed.
            seconds: the window's length.
            now: unix seconds.
        """
        if not now - MINUTES_SECONDS <= aggregate.start + seconds <= now + AHEAD_SECONDS:
            return False
        slot = slot_of(aggregate)
        kept = self._kept.get(slot)
        if kept is None:
            if len(self._kept) >= MOST_SLOTS:
                return False
            kept = self._kept[slot] = ArmHistory()
        # What rollouts are judged by is told to nobody here.
        pairs, equal = aggregate.evidence.pairs, aggregate.evidence.pairs_equal
        aggregate = msgspec.structs.replace(
            aggregate, evidence=EvidenceCounts(pairs=pairs, pairs_equal=equal)
        )
        _count(kept.windows, aggregate, aggregate.start, seconds)
        minute = aggregate.start - aggregate.start % MINUTE_SECONDS
        # Words that became UNK stay with the last hour: their sums have no bound of their own. So
        # do buckets of tokens and of vectors, which only drift looks at, window by window.
        wordless = msgspec.structs.replace(
            aggregate, unk_words=UnkWordCounts(), topics={}, vectors={}
        )
        _count(kept.minutes, wordless, minute, max(seconds, MINUTE_SECONDS))
        _answer(kept.answers.setdefault(minute, _Answers()), aggregate)
        return True

    def close(self, until: float) -> list[ClosedWindow]:
        """The windows that end by then and were not closed before, oldest first."""
        found = [
            ClosedWindow(slot, window)
            for slot, kept in self._kept.items()
            for window in kept.windows.values()
            if kept.closed < window.start + window.seconds <= until
        ]
        for kept in self._kept.values():
            kept.closed = max(kept.closed, until)
        return sorted(found, key=lambda closed: (closed.end, closed.slot))

    def forget(self, now: float) -> None:
        """Drops what is older than the board shows."""
        for slot, kept in list(self._kept.items()):
            _drop(kept.windows, min(now - WINDOWS_SECONDS, kept.closed))
            _drop(kept.minutes, now - MINUTES_SECONDS)
            for start in [start for start in kept.answers if start not in kept.minutes]:
                del kept.answers[start]
            if not kept.minutes and not kept.windows:
                del self._kept[slot]

    def series(self) -> Iterator[Series]:
        """Every arm's closed windows, sorted by slot."""
        for slot in sorted(self._kept):
            kept = self._kept[slot]
            yield Series(*slot, _list_shown(kept, kept.windows), _list_shown(kept, kept.minutes))

    def accuracy(self, now: float) -> Iterator[tuple[Slot, Accuracy]]:
        """Every arm's accuracy over the last hour, if anything is known of it."""
        for slot in sorted(self._kept):
            total, day = _Answers(), ScoredFeedback()
            for start, answers in self._kept[slot].answers.items():
                day.add(answers.scored.texts, answers.scored.right, answers.scored.sums)
                if start >= now - WINDOWS_SECONDS:
                    total.score_micro += answers.score_micro
                    total.scores += answers.scores
                    total.right += answers.right
                    total.feedback += answers.feedback
            if total.scores or total.feedback:
                yield slot, _accuracy(slot, total, day)


def _list_shown(kept: ArmHistory, windows: dict[int, Window]) -> tuple[Window, ...]:
    return tuple(
        windows[start] for start in sorted(windows) if start + windows[start].seconds <= kept.closed
    )


def _count(
    windows: dict[int, Window], aggregate: WindowAggregate, start: int, seconds: int
) -> None:
    held = windows.get(start)
    if held is None:
        total = aggregate
        if start != aggregate.start:
            total = merge([aggregate])
            total.start = start
    else:
        total = held.aggregate()
        add(total, aggregate)
    windows[start] = Window.of(total, seconds)


def _drop(windows: dict[int, Window], before: float) -> None:
    for start in [start for start, held in windows.items() if start + held.seconds < before]:
        del windows[start]


def _answer(answers: _Answers, aggregate: WindowAggregate) -> None:
    answers.score_micro += aggregate.sums.get(Statistic.SCORE, 0)
    answers.scores += sum(aggregate.histograms.get(Statistic.SCORE, {}).values())
    answers.scored.add(
        aggregate.feedback_scores, aggregate.feedback_right, aggregate.feedback_score_sums
    )
    for answered, truths in aggregate.feedback.items():
        answers.right += truths.get(answered, 0)
        answers.feedback += sum(truths.values())


def _accuracy(slot: Slot, total: _Answers, day: ScoredFeedback) -> Accuracy:
    mean = total.score_micro / MICRO / total.scores if total.scores else None
    trust = day.trust()
    estimated = mean if trust is Trust.HELD else None
    low, high = (
        (None, None) if estimated is None else interval(estimated, total.scores, day.doubt())
    )
    return Accuracy(
        slot.version,
        slot.arm,
        estimated,
        total.scores,
        total.right / total.feedback if total.feedback else None,
        total.feedback,
        mean_score=mean,
        trust=trust,
        low=low,
        high=high,
    )
