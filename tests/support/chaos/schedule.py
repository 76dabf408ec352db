"""Which faults come in which order: a pure function of a seed.

Kinds and targets are dealt from decks that are shuffled again when they are empty, so that a run
of any length meets as many different ones as it has room for.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

UP = "up"  # the target that is the whole stack's parent


class Kind(StrEnum):
    """A family of faults; ``faults/`` holds them."""

    KILL = "kill"
    PAUSE = "pause"
    RESTART = "restart"
    DEAF_PORT = "deaf port"
    FULL_DISK = "full disk"
    HUNG_STORE = "hung store"
    LOCKED_DATABASE = "locked database"
    LOST_LOG = "lost log"
    # Of one Triton that lives and says that it is ready (``sick_triton.Sickness``):
    REFUSES_LOADS = "refuses loads"
    FAILS = "fails inferences"
    NAN = "answers NaN"
    SLOW = "slow by five"
    NO_MEMORY = "out of memory"


SICK = frozenset({Kind.REFUSES_LOADS, Kind.FAILS, Kind.NAN, Kind.SLOW, Kind.NO_MEMORY})


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. ``target`` is what it strikes, as its family names it; ``hold_seconds`` how long
    it lasts, 0 for one that is over at once.
    """

    kind: Kind
    target: str
    hold_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Round:
    """One fault, or two at once, after ``gap_seconds`` of peace."""

    gap_seconds: float
    faults: tuple[Fault, ...]

    @property
    def hold_seconds(self) -> float:
        """Until the last of its faults is over."""
        return max(fault.hold_seconds for fault in self.faults)


# How many cards of a deck each kind is.
CARDS: Mapping[Kind, int] = {
    Kind.KILL: 14,
    Kind.PAUSE: 6,
    Kind.DEAF_PORT: 3,
    Kind.LOCKED_DATABASE: 2,
    Kind.HUNG_STORE: 2,
    Kind.LOST_LOG: 1,
    Kind.FULL_DISK: 1,
    Kind.RESTART: 1,
    Kind.REFUSES_LOADS: 3,
    Kind.FAILS: 2,
    Kind.NAN: 2,
    Kind.SLOW: 2,
    Kind.NO_MEMORY: 2,
}
SHORTEST_HOLD_SECONDS = 1.0
# SIGSTOP lasts as long as any client's patience; the others as long as it takes to be noticed.
LONGEST_HOLD_SECONDS: Mapping[Kind, float] = {
    Kind.PAUSE: 60.0,
    Kind.DEAF_PORT: 20.0,
    Kind.FULL_DISK: 20.0,
    Kind.HUNG_STORE: 40.0,
    Kind.LOCKED_DATABASE: 40.0,
    # As long as two looks of a loader's prober, and a load that is tried again and again.
    **dict.fromkeys(SICK, 50.0),
}
TWO_AT_ONCE = 0.15  # of the rounds
LONGEST_GAP_SECONDS = 3.0


class _Deck:
    """Deals its cards in random order, and again from the start when all are dealt."""

    def __init__(self, cards: Sequence[str], order: random.Random) -> None:
        self._cards = tuple(cards)
        self._order = order
        self._left: list[str] = []

    def deal(self) -> str:
        if not self._left:
            self._left = list(self._cards)
            self._order.shuffle(self._left)
        return self._left.pop()


def rounds(seed: int, targets: Mapping[Kind, Sequence[str]]) -> Iterator[Round]:
    """Rounds without end, the same ones for the same seed and targets.

    Args:
        seed: of all that is random.
        targets: what each kind can strike here; a kind without any is left out.

    Raises:
        ValueError: there is nothing to strike.
    """
    order = random.Random(seed)
    kinds = [kind for kind in CARDS if targets.get(kind)]
    if not kinds:
        raise ValueError("there is no target for any fault")
    deck = _Deck([kind for kind in kinds for _ in range(CARDS[kind])], order)
    decks = {kind: _Deck(targets[kind], order) for kind in kinds}
    left: Fault | None = None
    while True:
        faults = [left or _fault(deck, decks, order)]
        left = None
        if order.random() < TWO_AT_ONCE:
            second = _fault(deck, decks, order)
            if _collide(faults[0], second):
                left = second  # comes alone, next
            else:
                faults.append(second)
        yield Round(round(order.uniform(0, LONGEST_GAP_SECONDS), 2), tuple(faults))


def _fault(deck: _Deck, decks: Mapping[Kind, _Deck], order: random.Random) -> Fault:
    kind = Kind(deck.deal())
    target = decks[kind].deal()
    longest = LONGEST_HOLD_SECONDS.get(kind)
    if longest is None:
        return Fault(kind, target)
    # Of every order of magnitude as many: most are short, some outlast every timeout.
    low, high = math.log(SHORTEST_HOLD_SECONDS), math.log(longest)
    return Fault(kind, target, round(math.exp(order.uniform(low, high)), 2))


def _collide(first: Fault, second: Fault) -> bool:
    """Whether one would undo the other: a restart ends all, and one target suffers one fault.

    Nor are two Tritons sick at once: others have to serve.

    Who kills ``up`` starts it again, which is refused, with a sentence, while a port is taken or
    the disk is full: that is no fault of the stack.
    """
    kinds = {first.kind, second.kind}
    if Kind.RESTART in kinds or first.target == second.target or kinds <= SICK:
        return True
    kills_up = any(each.kind is Kind.KILL and each.target == UP for each in (first, second))
    return kills_up and bool(kinds & {Kind.DEAF_PORT, Kind.FULL_DISK})
