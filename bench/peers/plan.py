"""What is measured, in which order, and how long that takes. Pure.

A visit is one peer on one engine in one round: it is started afresh, asked by closed loads, then by
open ones, and ended. Rounds are interleaved: every peer has its turn before any has its next.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

DEADLINE_SECONDS = 1.0  # of goodput: what is answered later counts for nothing
PATIENT_SECONDS = 60.0  # under closed loads nobody gives up
MANY = 16  # texts of a request that has many
TIMES = (0.5, 0.8, 1.0, 1.5, 4.0)

ENGINE_ALONE_TIMES = 3  # as long as another load
ALONE_ROWS = (1, 2, 4, 8, 16, 64)  # of a run of the engine alone, where processor time is shown

_LOADGEN_SECONDS = 0.7  # the load generator's own start
_JUDGING_SECONDS = 6.0
_OVERLOADED_WARM_UP = 2 * DEADLINE_SECONDS  # until queues are as long as they get
_SETTLED_SECONDS = 0.2


class Engine(StrEnum):
    """What computes."""

    REAL = "real"
    SIMULATED = "simulated"


@dataclass(frozen=True)
class Load:
    """One load of a visit: closed with so many callers, or open at so many times the peak."""

    texts: int = 1
    callers: int = 0
    times: float = 0.0

    @property
    def open(self) -> bool:
        """Whether requests come whatever the answers do."""
        return self.times > 0

    @property
    def name(self) -> str:
        """As results name it."""
        texts = "one text" if self.texts == 1 else f"{self.texts} texts"
        return f"{texts}, {self.times:g} times" if self.open else f"{texts}, {self.callers} callers"


@dataclass(frozen=True)
class Pace:
    """How fast an engine is at least, in texts a second, and what follows from it.

    Attributes:
        slowest: what the slowest peer may be expected to do.
        connections: of open loads. More than a server can answer within the deadline, so that
            they don't bound what it lets in; what is in it when a load ends has to be waited for.
        callers_of_many: closed loads with many texts a request.
    """

    slowest: float
    connections: int
    callers_of_many: tuple[int, ...]


CALLERS = (1, 2, 16, 64, 128)
# Sixty-four requests of 16 texts are fifteen seconds' work of the real engine on one core.
PACES = {
    Engine.REAL: Pace(60.0, 320, (1, 2, 16)),
    Engine.SIMULATED: Pace(1000.0, 4000, CALLERS),
}

# The loads whose processor time is shown by process: those of the goals.
SHARES = {
    Engine.REAL: (Load(1, 2), Load(1, 64)),
    Engine.SIMULATED: (Load(1, 128), Load(MANY, 128)),
}


@dataclass(frozen=True)
class Timing:
    """How long one load is warmed up for and measured."""

    warm_up_seconds: float
    seconds: float


def timing(engine: Engine, load: Load, base: Timing) -> Timing:
    """A load's timing: the base, and long enough for what is in flight to come round."""
    if load.open:
        warm = _OVERLOADED_WARM_UP if load.times > 1 else base.warm_up_seconds
        return Timing(max(warm, base.warm_up_seconds), base.seconds)
    once_round = load.callers * load.texts / PACES[engine].slowest
    return Timing(max(base.warm_up_seconds, once_round), max(base.seconds, once_round))


@dataclass(frozen=True)
class Entrant:
    """Who takes part on one engine.

    Attributes:
        subject: the peer's name.
        engine: what it computes on.
        start_seconds: how long it takes to start.
        starts: how often it is started in a visit.
        floor: whether it only answers, one text a request and under closed loads.
        small: whether it gets a few loads alone, to see that it runs.
        shares: whether it gets those loads alone whose processor time is shown by process.
    """

    subject: str
    engine: Engine
    start_seconds: float
    starts: int = 1
    floor: bool = False
    small: bool = False
    shares: bool = False

    @property
    def closed(self) -> tuple[Load, ...]:
        """The closed loads of a visit."""
        if self.shares:
            return SHARES[self.engine]
        if self.small:
            return (Load(1, 2),) if self.floor else (Load(1, 2), Load(MANY, 1))
        one = tuple(Load(1, callers) for callers in CALLERS)
        if self.floor:
            return one
        return one + tuple(Load(MANY, each) for each in PACES[self.engine].callers_of_many)

    @property
    def open(self) -> tuple[Load, ...]:
        """The open loads of a visit, at multiples of the peak of its closed ones."""
        if self.floor or self.shares:
            return ()
        chosen = (TIMES[0], TIMES[-1]) if self.small else TIMES
        return tuple(Load(times=times) for times in chosen)


def rounds(entrants: Sequence[Entrant], count: int, seed: int) -> list[list[Entrant]]:
    """The order of visits: every entrant once a round, in an order of its own each round."""
    rng = random.Random(seed)
    return [rng.sample(entrants, len(entrants)) for _ in range(count)]


def expected_seconds(entrants: Sequence[Entrant], count: int, base: Timing) -> float:
    """How long a run takes, what has to be installed not counted."""
    total = 0.0
    for each in entrants:
        loads = sum(_seconds(each.engine, load, base) for load in each.closed + each.open)
        total += count * (each.start_seconds * each.starts + loads)
        total += _JUDGING_SECONDS
    return total + count * max(ENGINE_ALONE_TIMES, len(ALONE_ROWS)) * base.seconds


def _seconds(engine: Engine, load: Load, base: Timing) -> float:
    """A load from the generator's start until the peer is quiet again."""
    found = timing(engine, load, base)
    total = _LOADGEN_SECONDS + found.warm_up_seconds + found.seconds + _SETTLED_SECONDS
    if load.open and load.times > 1:
        total += DEADLINE_SECONDS + PACES[engine].connections / PACES[engine].slowest
    return total
