"""``kill -9`` of parts of a stack at random instants of rollouts, and what callers saw of it.

Callers may fail only while what answers them is away: their own gateway, or every Triton, until the
first good answer after the restart. Whatever else fails, one Triton of two among it, the stable
version would have answered.
"""

import random
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from outages import Outage, first_answer, unexcused
from rolling_stack import register, until_mlflow_answers, until_told
from rollout_watch import RolloutWatch
from running_stack import RunningStack
from traffic import Traffic, answered_by_all

from contracts.rollout import Outcome

GOOD, BAD = "better", "collapsed"
# The plural is all of them at once.
PARTS = (
    "controller", "controller", "loader", "loader-2", "gateway", "gateway-2", "gateways",
    "triton", "triton-2", "tritons", "fold", "kafka", "mlflow",
)  # fmt: skip


@dataclass
class Killer:
    """Kills parts of a stack while its versions roll out."""

    stack: RunningStack
    load: Traffic
    watch: RolloutWatch
    order: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    phases: Counter[str] = field(default_factory=Counter)  # of the version, when it was killed
    outages: list[Outage] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)  # version -> how it ended

    def roll_out(
        self, variant: str, kills: int, parts: Sequence[str] = PARTS, *, early: int = 1
    ) -> str:
        """Registers a version, and kills parts until it has ended or so many were killed.

        ``early`` of the kills come while the version is prepared, all others in its rollout. It
        must end as it should, after one rollout. Tritons die at most once under one version: a
        second time would be blamed on it, and rightly.

        Returns:
            The version's number.
        """
        until_mlflow_answers(self.stack)
        number = register(self.stack, variant)
        left = list(parts)
        for count in range(kills):
            if count == early:
                self.watch.until("the rollout began", 300, lambda _: number in self.watch.rollouts)
            if self._is_over(number):
                break
            part = self.order.choice(left)
            self.kill(part)
            if part.startswith("triton"):
                left = [item for item in left if not item.startswith("triton")]
        self._hold_to_its_end(number, variant)
        return number

    def kill(self, part: str) -> None:
        """Kills a part at a random instant, every other time that of a write, and lets it come."""
        self.load.more(self.order.randrange(1, 400), 300)
        if self.kills.total() % 2:
            self.watch.until_stored(10)
        where = self._phase()
        killed = time.monotonic()
        dead = {name: self.stack.kill(name) for name in self._processes(part)}
        for name, pid in dead.items():
            self.stack.until_restarted(name, pid)
        self.kills[part] += 1
        self.phases[where] += 1
        restarted = time.monotonic()
        if part.startswith(("gateway", "triton")):
            # What is killed next may be the one that answers now.
            self.stack.until_all_serve()
            self.load.until("all answer again", 180, answered_by_all(len(self.load.ways)))
        for gateway in self._cut_off(dead):
            back = first_answer(self.load.replies, gateway, restarted)
            self.outages.append(Outage(killed, back, frozenset({gateway})))

    def _processes(self, part: str) -> list[str]:
        several = {
            "gateways": [each.name for each in self.stack.gateways],
            "tritons": [each.name for each in self.stack.tritons],
        }
        return several.get(part, [part])

    def _cut_off(self, dead: Collection[str]) -> list[str]:
        """The gateways whose callers nobody can answer without these processes."""
        if {each.name for each in self.stack.tritons} <= set(dead):
            return [each.name for each in self.stack.gateways]
        return [each.name for each in self.stack.gateways if each.name in dead]

    def tell(self) -> dict[str, object]:
        """Holds callers and MLflow to what must be true at the end; figures for the record."""
        failed = unexcused(self.load.replies, self.outages)
        assert not failed, (len(failed), failed[:5])
        stable = self.watch.status.stable
        assert stable is not None
        until_mlflow_answers(self.stack)
        for number, outcome in self.ends.items():
            verdict = "Promoted" if outcome == Outcome.SETTLED.value else outcome
            until_told(self.stack, number, verdict, stable.version)
        return {
            "kills": dict(sorted(self.kills.items())),
            "in_phase": dict(sorted(self.phases.items())),
            "ends": dict(Counter(self.ends.values())),
            "requests": len(self.load.replies),
            "failed_while_their_gateway_or_all_tritons_were_away": sum(
                reply.status != 200 for reply in self.load.replies
            ),
            "failed_otherwise": len(failed),
            "states_stored": self.watch.stored,
            "wrong_states": len(self.watch.faults),
        }

    def _is_over(self, number: str) -> bool:
        last = self.watch.status.last_rollout
        return last is not None and last.candidate.version == number

    def _phase(self) -> str:
        candidate = self.watch.status.candidate
        return candidate.phase.value if candidate else "none on its way"

    def _hold_to_its_end(self, number: str, variant: str) -> None:
        ended = self.watch.until_ended(number, 300)
        expected = Outcome.SETTLED if variant == GOOD else Outcome.ROLLED_BACK
        assert ended.outcome is expected, (variant, ended.outcome, ended.reason)
        assert len(self.watch.rollouts[number]) == 1, self.watch.rollouts
        rejected = [item for item in self.watch.status.rejected if item.version == number]
        assert len(rejected) == (0 if variant == GOOD else 1), rejected
        self.ends[number] = expected.value
