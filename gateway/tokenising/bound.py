"""Which tokenisers stay open within a bound of bytes, and which are closed for another. No I/O.

The longest unasked goes first. What is being opened or closed counts with its bytes and is never
chosen, nor is what a rollout compares: these have to be open together, and if two rollouts closed
each other's, neither would ever go on. A rollout whose tokenisers do not fit beside those of others
waits, and one alone does not. So a tokeniser that is larger than the bound is opened all the same,
and memory may pass the bound by one rollout's, one that callers are moved to and one that is asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto


class State(Enum):
    """What one is at."""

    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()


@dataclass(slots=True)
class _Held:
    state: State
    bytes: int
    asked: float


class Bound:
    """The bytes of all tokenisers that have a process.

    Args:
        most_bytes: of all together.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._held: dict[str, _Held] = {}
        self._kept: frozenset[str] = frozenset()

    @property
    def bytes(self) -> int:
        """Of all that have a process, those that are being closed included."""
        return sum(held.bytes for held in self._held.values())

    def state(self, key: str) -> State | None:
        """What one is at; None if it has no process."""
        held = self._held.get(key)
        return None if held is None else held.state

    def need(self, moved: Mapping[str, int], groups: Sequence[Mapping[str, int]]) -> frozenset[str]:
        """Which ones are kept open from now on.

        Args:
            moved: estimates of bytes, by key. Callers are moved to these once they are open; one at
                least is kept.
            groups: the same, of those that must be open together. Groups that were kept stay, and
                one at least is kept.

        Returns:
            Those for which there is room, and a group whole or not at all.
        """
        kept: dict[str, int] = {}
        for group in groups:
            if group.keys() <= self._kept:
                kept.update(self._known(group))
        for at, (key, size) in enumerate(moved.items()):
            together = {**kept, **self._known({key: size})}
            if not at or sum(together.values()) <= self.most_bytes:
                kept = together
        alone = kept.keys() <= moved.keys()
        for group in groups:
            together = {**kept, **self._known(group)}
            if alone or sum(together.values()) <= self.most_bytes:
                kept, alone = together, False
        self._kept = frozenset(kept)
        return self._kept

    def excess(self) -> list[str]:
        """Those that have to be closed because others have grown."""
        return self._to_close("")

    def opening(self, key: str, estimate: int, now: float) -> list[str]:
        """One is about to be opened, and will take about this many bytes.

        Returns:
            Those that have to be closed for it.
        """
        self._held[key] = _Held(State.OPENING, estimate, now)
        return self._to_close(key)

    def opened(self, key: str, measured: int, now: float) -> list[str]:
        """It is open and takes this many; returns those that have to be closed for it."""
        self._held[key] = _Held(State.OPEN, measured, now)
        return self._to_close(key)

    def asked(self, key: str, measured: int, now: float) -> list[str]:
        """It was asked, and takes this many by now; returns those that have to be closed for it."""
        held = self._held.get(key)
        if held is None:
            return []
        held.asked = now
        if held.bytes == measured:
            return []
        held.bytes = measured
        return self._to_close(key)

    def closing(self, key: str) -> None:
        """It is being closed; its bytes are taken until it is gone."""
        self._held[key].state = State.CLOSING

    def gone(self, key: str) -> None:
        """Its process has ended."""
        self._held.pop(key, None)

    def _to_close(self, kept: str) -> list[str]:
        """The open ones, but the one that is kept, that must go for the others to fit."""
        staying = [held for held in self._held.values() if held.state is not State.CLOSING]
        over = sum(held.bytes for held in staying) - self.most_bytes
        if over <= 0:
            return []
        found: list[str] = []
        for key, held in sorted(self._held.items(), key=lambda item: item[1].asked):
            if over <= 0:
                break
            if key != kept and key not in self._kept and held.state is State.OPEN:
                over -= held.bytes
                found.append(key)
        return found

    def _known(self, group: Mapping[str, int]) -> dict[str, int]:
        held = self._held
        return {key: held[key].bytes if key in held else size for key, size in group.items()}
