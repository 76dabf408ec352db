"""One run of chaos: faults by the schedule, until the time is over, and then peace.

After each round of faults the stack must become whole by itself: every process runs and serves,
and everything published is counted. Only then comes the next one, so that what callers see can be
laid at the door of one round. A stack that does not come back is a violation; it is started anew,
and the run goes on.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from counting_check import CountingCheck
from outages import Outage
from traffic import Traffic

from chaos.faults import FAMILIES, targets
from chaos.faults.lost_log import TARGETS as LOGS
from chaos.invariants import Invariants, keep_logs
from chaos.schedule import SICK, Fault, Kind, Round, rounds
from chaos.sentences import PART_SECONDS, SHOWN_BY, complaints, false_sentences, names
from chaos.world import NotHereError, World

QUIET_EVERY = 12  # rounds
LOOK_SECONDS = 0.3
LOOK_EVERY_SECONDS = 5.0
ASKING_SECONDS = 4.0  # that the status takes at most
PEACE_SECONDS = 30.0  # until it says that a stack that is whole is well


class BeyondHelpError(Exception):
    """The stack can't be struck any more: the run ends here."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a run.

    Attributes:
        seconds: of faults.
        seed: of their schedule.
        whole_within_seconds: after the end of a fault.
        give_up_seconds: after which a stack that is not whole is started anew.
        kept: folder for the logs of violations.
        kinds: of faults; others are left out.
    """

    seconds: float
    seed: int
    whole_within_seconds: float
    give_up_seconds: float
    kept: Path
    kinds: tuple[Kind, ...]


@dataclass
class Struck:
    """One fault as it was. Seconds, ``at`` and since the start."""

    at: float
    kind: str
    target: str
    hold_seconds: float
    recovery_seconds: float | None = None  # None: it was not there to be struck
    with_another: bool = False
    note: str = ""


@dataclass
class Diagnosis:
    """Whether the status names a sick Triton soon after that did something wrongly."""

    world: World
    fault: Fault
    named_after: float | None = None  # seconds

    def look(self) -> None:
        """Asks the status."""
        first = self._first()
        if first is None or self.named_after is not None:
            return
        if names(self.world.told(), self.world.loader(self.fault.target)):
            self.named_after = round(time.time() - first, 1)

    def is_late(self, now: float) -> bool:
        """Whether it should have been named by now (unix seconds)."""
        first, known = self._first(), SHOWN_BY.get(self.fault.kind)
        return first is not None and known is not None and now - first > known[1]

    def _first(self) -> float | None:
        """Unix time of the first thing by which one knows it."""
        known = SHOWN_BY.get(self.fault.kind)
        return None if known is None else self.world.wards[self.fault.target].seen().get(known[0])


@dataclass
class Run:
    """Strikes, waits and writes down."""

    world: World
    callers: Traffic
    invariants: Invariants
    counted: CountingCheck
    wish: Wish
    say: Callable[[str], None]
    struck: list[Struck] = field(default_factory=list)
    by_hand: int = 0
    sick: "Counter[str]" = field(default_factory=Counter)  # what sick Tritons spoilt, and was told
    named_after: list[float] = field(default_factory=list)  # seconds since the first of that
    logs_lost_at: float = 0.0  # unix seconds; what was published before can't be recounted

    def run(self) -> None:
        ends = time.monotonic() + self.wish.seconds
        here = {
            kind: names for kind, names in targets(self.world).items() if kind in self.wish.kinds
        }
        for count, planned in enumerate(rounds(self.wish.seed, here), 1):
            if time.monotonic() >= ends:
                break
            self._round(planned)
            if count % QUIET_EVERY == 0:
                self._quiet()
        self._quiet()

    def faults(self) -> int:
        """How many were struck."""
        return sum(each.recovery_seconds is not None for each in self.struck)

    def figures(self) -> dict[str, object]:
        done = [each for each in self.struck if each.recovery_seconds is not None]
        recoveries = sorted(each.recovery_seconds or 0.0 for each in done)
        seen = self.invariants
        return {
            "seed": self.wish.seed,
            "seconds": round(seen.now),
            "gateways": len(self.world.gateways),
            "tritons": len(self.world.tritons),
            "pools": len(set(self.world.pools.values())),
            "faults": len(done),
            "by_kind": dict(Counter(each.kind for each in done)),
            "by_target": dict(sorted(Counter(f"{e.kind}: {e.target}" for e in done).items())),
            "whole_within_seconds": self.wish.whole_within_seconds,
            "longest_recovery_seconds": recoveries[-1] if recoveries else None,
            "median_recovery_seconds": recoveries[len(recoveries) // 2] if recoveries else None,
            "started_by_hand": self.by_hand,
            "requests": sum(seen.statuses.values()),
            "by_dialect_and_status": dict(sorted(seen.statuses.items())),
            "feedback_by_status": {str(k): v for k, v in sorted(self.callers.feedback.items())},
            "answers_compared": seen.checked,
            "slowest_answer_seconds": round(seen.slowest_seconds, 2),
            "versions": self._versions(),
            "sick": dict(sorted(self.sick.items())),
            "longest_seconds_to_a_name": max(self.named_after, default=None),
            "largest_log_mb": round(seen.largest_log_bytes / 1e6, 1),
            "violations": [asdict(each) for each in seen.violations],
            "struck": [_row(each) for each in self.struck],
        }

    def _versions(self) -> dict[str, int]:
        return dict(
            Counter(
                f"{each.variants.get(version, '?')}: {line.phase.value}"
                for each in self.invariants.rollouts.values()
                for version, line in each.ends().items()
            )
        )

    def _round(self, planned: Round) -> None:
        time.sleep(planned.gap_seconds)
        began = time.monotonic()
        before = len(self.invariants.violations)
        done: list[Struck] = []
        services: set[str] = set()
        try:
            with ExitStack() as stack:
                for fault in planned.faults:
                    done.append(self._note(fault, planned))
                    services |= stack.enter_context(self._one(fault, done[-1]))
                self._hold(planned)
        except (AssertionError, OSError) as error:
            self.invariants.violated("a fault could not be undone", [planned, repr(error)])
        undone = time.monotonic()
        why = self._until_whole(undone + self.wish.give_up_seconds)
        recovery = time.monotonic() - undone
        if not why:
            self._peace()
        self.invariants.outage(Outage(began, time.monotonic(), frozenset(services)))
        self._judge_recovery(planned, recovery, why)
        for each in done:
            if not each.note:
                each.recovery_seconds = round(recovery, 1)
        self.invariants.judge(self.callers.take())
        if not self.callers.alive:
            raise RuntimeError("the callers ended: nothing is proved any more")
        self._tell(planned, recovery, why, before)

    @contextmanager
    def _one(self, fault: Fault, struck: Struck) -> Iterator[frozenset[str]]:
        """Strikes one fault; what was not there to be struck is no fault."""
        if fault.kind is Kind.LOST_LOG and fault.target in LOGS:
            self.logs_lost_at = time.time()
        block = FAMILIES[fault.kind](self.world, fault.target)
        try:
            services = block.__enter__()
        except NotHereError as error:
            struck.note = str(error)
            yield frozenset()
            return
        try:
            yield services
        finally:
            block.__exit__(None, None, None)

    def _note(self, fault: Fault, planned: Round) -> Struck:
        struck = Struck(
            self.invariants.now,
            fault.kind.value,
            fault.target,
            fault.hold_seconds,
            with_another=len(planned.faults) > 1,
        )
        self.struck.append(struck)
        return struck

    def _hold(self, planned: Round) -> None:
        began, struck = time.monotonic(), self.world.pids()
        ends = began + planned.hold_seconds
        diagnoses = [Diagnosis(self.world, each) for each in planned.faults if each.kind in SICK]
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_EVERY_SECONDS))
            self.invariants.look()
            for each in diagnoses:
                each.look()
            held, now = time.monotonic() - began, self.world.pids()
            same = {name for name, pid in struck.items() if now.get(name) == pid}
            if held >= PART_SECONDS and ends > time.monotonic() + ASKING_SECONDS:
                said = false_sentences(self.world.told(), planned.faults, held, same)
                if said and self.world.pids() == now:
                    self.invariants.violated("a sentence of the status is false", said)
        for each in diagnoses:
            self._take(each)

    def _take(self, found: "Diagnosis") -> None:
        """Notes what became of a sick Triton, while it is sick yet."""
        kind, loader = found.fault.kind, self.world.loader(found.fault.target)
        spoilt = self.world.wards[found.fault.target].seen()
        self.sick.update(f"{kind.value}: {method.rpartition('/')[2]}" for method in spoilt)
        if found.named_after is not None:
            self.sick[f"{kind.value}: named"] += 1
            self.named_after.append(found.named_after)
        elif found.is_late(time.time()):
            method, seconds = SHOWN_BY[kind]
            self.invariants.violated(
                "the status does not name a sick Triton",
                [f"{loader}: {kind.value}, {method}, for more than {seconds:.0f} s"],
            )

    def _peace(self) -> None:
        """A stack that is whole is soon told to be."""
        deadline = time.monotonic() + PEACE_SECONDS
        while wrong := complaints(self.world.told()):
            if time.monotonic() > deadline:
                self.invariants.violated("the status complains of a stack that is whole", wrong)
                return
            time.sleep(LOOK_SECONDS)

    def _until_whole(self, deadline: float) -> str:
        """Waits; why the stack is not whole, empty where it is."""
        while True:
            why = self.world.not_whole()
            if not why:
                try:
                    self.counted.until_counted(max(1.0, deadline - time.monotonic()))
                except AssertionError as error:
                    why = str(error)
                else:
                    self.invariants.look()
                    return ""
            if time.monotonic() > deadline:
                return why
            time.sleep(LOOK_SECONDS)

    def _judge_recovery(self, planned: Round, recovery: float, why: str) -> None:
        struck = [f"{fault.kind.value} {fault.target}" for fault in planned.faults]
        if why:
            self.invariants.violated(
                "the stack did not become whole by itself", [*struck, f"{recovery:.0f} s", why]
            )
            self._by_hand()
        elif recovery > self.wish.whole_within_seconds:
            self.invariants.violated(
                f"the stack took {recovery:.0f} s to become whole again", struck
            )

    def _by_hand(self) -> None:
        """Starts the stack anew, so that the run can go on.

        Raises:
            BeyondHelpError: a person would have to look.
        """
        self.by_hand += 1
        keep_logs(self.world, self.wish.kept, len(self.invariants.violations))
        try:
            self.world.end()
            self.world.start()
        except (AssertionError, OSError) as error:
            self.invariants.violated("headrace up does not start again", [error])
            raise BeyondHelpError from error
        if why := self._until_whole(time.monotonic() + self.wish.give_up_seconds):
            self.invariants.violated("the stack is not whole after a start by hand", [why])
            raise BeyondHelpError

    def _quiet(self) -> None:
        self.callers.rest()
        time.sleep(2 * LOOK_SECONDS)
        self._until_whole(time.monotonic() + self.wish.give_up_seconds)
        self.invariants.quiet()
        self.callers.go_on()

    def _tell(self, planned: Round, recovery: float, why: str, before: int) -> None:
        names = " and ".join(
            f"{fault.kind.value} {fault.target}"
            + (f" for {fault.hold_seconds:.0f} s" if fault.hold_seconds else "")
            for fault in planned.faults
        )
        ended = f"whole after {recovery:.1f} s" if not why else f"NOT WHOLE: {why}"
        self.say(f"{self.invariants.now:7.1f} s  {names}: {ended}")
        new = self.invariants.violations[before:]
        for each in new:
            self.say(f"           VIOLATION {each.what}")
            for line in each.evidence:
                self.say(f"             {line}")
        if new:
            keep_logs(self.world, self.wish.kept, len(self.invariants.violations))


def _row(struck: Struck) -> str:
    """One fault in a line: a record of hundreds stays readable."""
    parts = [f"{struck.at:.1f} s", struck.kind, struck.target]
    if struck.hold_seconds:
        parts.append(f"for {struck.hold_seconds:.1f} s")
    if struck.with_another:
        parts.append("with another")
    ended = struck.recovery_seconds
    parts.append(
        struck.note or (f"whole after {ended:.1f} s" if ended is not None else "not whole")
    )
    return ", ".join(parts)


def order(seed: int, name: str) -> random.Random:
    """Chance of its own for a part of a run."""
    return random.Random(f"{seed} {name}")
