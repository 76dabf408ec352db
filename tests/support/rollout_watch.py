"""Watches an endpoint's stored states while its rollouts go on, and holds them to what must hold.

Reads the file that the controller writes, as gateways do: as often as it can, from a thread of its
own.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from contracts.endpoint import (
    HISTORY_LIMIT,
    Arm,
    EndpointStatus,
    ModelEndpoint,
    Phase,
    Transition,
)
from contracts.rollout import RolloutState
from registry.stores.endpoints import FileEndpointStore
from registry.stores.whole_endpoints import WholeEndpoints
from service.endpoint_records import FileRecords

LOOK_SECONDS = 0.01


def faults(status: EndpointStatus) -> list[str]:
    """What is wrong with one status by itself."""
    found = []
    weight = sum(route.weight for route in status.routes if route.arm is not Arm.SHADOW)
    if status.routes and weight != 100:
        found.append(f"weights sum to {weight}")
    if any(route.ref not in status.packages for route in status.routes):
        found.append("a package is routed that no Triton must hold")
    if len({route.arm for route in status.routes}) != len(status.routes):
        found.append("an arm is routed twice")
    state = status.rollout
    if state is not None and (state.ended_at is not None or state.outcome is not None):
        found.append("a rollout goes on that has ended")
    if state is None and len(status.routes) > 1:
        found.append("callers are split without a rollout")
    if len(status.history) > HISTORY_LIMIT:
        found.append("history has no end")
    return found


def jumps(before: ModelEndpoint, after: ModelEndpoint) -> list[str]:
    """What can't have happened between two states that were stored one after the other."""
    found = []
    if int(after.metadata.revision) < int(before.metadata.revision):
        found.append("an older revision came back")
    old, new = before.status, after.status
    if new.generation < old.generation:
        found.append("the generation went back")
    followed = (old.routes, old.packages, old.rollout and old.rollout.id)
    if new.generation == old.generation and followed != (
        new.routes,
        new.packages,
        new.rollout and new.rollout.id,
    ):
        found.append("routes or packages changed within a generation")
    if not _continues(old, new):
        found.append("history was lost")
    if old.rollout is not None and new.rollout is not None and old.rollout.id == new.rollout.id:
        if new.rollout.looked_through < old.rollout.looked_through:
            found.append("evidence went back")
        if new.rollout.step < old.rollout.step and not _were_edited(old, new):
            found.append("a step went back")
        if old.rollout.promoted_at is not None and new.rollout.promoted_at is None:
            found.append("a promotion was lost")
    return found


def _were_edited(old: EndpointStatus, new: EndpointStatus) -> bool:
    """Whether the history says that people changed the rollout's steps in between."""
    told = [line for line in new.history if line not in old.history]
    return any(line.reason.startswith("the spec's steps were edited") for line in told)


def _continues(old: EndpointStatus, new: EndpointStatus) -> bool:
    """Whether the new history is the old one with lines behind it, but for what its bound took."""
    lost = old.history
    while lost and new.history[: len(lost)] != lost:
        lost = lost[1:]
    return len(new.history) == HISTORY_LIMIT or lost == old.history


@dataclass
class RolloutWatch:
    """The states of one endpoint while the context lasts. ``faults`` are what was wrong in them."""

    folder: Path
    name: str
    faults: list[str] = field(default_factory=list)
    last: ModelEndpoint | None = None
    rollouts: dict[str, set[str]] = field(default_factory=dict)  # version -> ids of its rollouts
    stored: int = 0  # different states that were seen
    _lines: dict[tuple[float, str, Phase], Transition] = field(default_factory=dict)

    def __enter__(self) -> "RolloutWatch":
        self._stop = threading.Event()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="rollout-watch")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    @property
    def status(self) -> EndpointStatus:
        assert self.last is not None
        return self.last.status

    @property
    def history(self) -> list[Transition]:
        """All lines that the endpoint's history had, those included that it has forgotten."""
        with self._news:
            return list(self._lines.values())

    def until(
        self, what: str, seconds: float, check: Callable[[EndpointStatus], bool]
    ) -> EndpointStatus:
        """Waits until a stored status is as asked for, and returns it."""

        def is_so() -> bool:
            return self.last is not None and check(self.last.status)

        with self._news:
            arrived = self._news.wait_for(is_so, seconds)
        assert arrived, f"not within {seconds:.0f} s: {what}; {self.last and told(self.last)}"
        return self.status

    def until_ended(self, version: str, seconds: float = 300) -> RolloutState:
        """Waits until a version's rollout has ended, and returns how."""

        def has_ended(status: EndpointStatus) -> bool:
            last = status.last_rollout
            return last is not None and last.candidate.version == version and not status.rollout

        last = self.until(f"version {version}'s end", seconds, has_ended).last_rollout
        assert last is not None
        return last

    def until_stored(self, seconds: float = 30) -> None:
        """Waits for the next state that is stored, whatever it is."""
        before = self.stored
        with self._news:
            self._news.wait_for(lambda: self.stored != before, seconds)

    def _run(self) -> None:
        summaries = FileEndpointStore(self.folder)
        store = WholeEndpoints(summaries, FileRecords(self.folder), for_people=True)
        while not self._stop.wait(LOOK_SECONDS):
            try:
                now = store.get(self.name)
            except Exception as error:  # noqa: BLE001 - whatever it is, a reader must not see it
                self.faults.append(repr(error))
                continue
            if now is not None and now != self.last:
                self._take(now)

    def _take(self, now: ModelEndpoint) -> None:
        found = faults(now.status)
        if self.last is not None:
            found += jumps(self.last, now)
        self.faults += [f"revision {now.metadata.revision}: {fault}" for fault in found]
        state = now.status.rollout
        if state is not None:
            self.rollouts.setdefault(state.candidate.version, set()).add(state.id)
        with self._news:
            for line in now.status.history:
                self._lines[line.at, line.version, line.phase] = line
            self.last, self.stored = now, self.stored + 1
            self._news.notify_all()


def told(endpoint: ModelEndpoint) -> str:
    """A status in a few lines, for a test that fails."""
    status = endpoint.status
    checks = status.rollout.checks if status.rollout else ()
    lines = [
        *(f"{route.arm.value} {route.ref.version} {route.weight:g}" for route in status.routes),
        f"candidate {status.candidate and status.candidate.model_dump(exclude={'ref'})}",
        *(f"{line.version} {line.phase.value} {line.reason}" for line in status.history[-6:]),
        *(f"{check.name}: {check.verdict.value}: {check.reason}" for check in checks),
    ]
    return "\n".join(lines)
