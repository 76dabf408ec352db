"""Which of one Triton's models are idle, and which of them may leave it now.

Triton counts the requests of a model, and the loader takes its own away (``triton_client``). What
is seen here for the first time counts as asked for just now, and so does everything that can't be
counted: no model leaves because nobody looked. It decides for one Triton only: whether a model
leaves is the status's to say, which speaks for all Tritons of the pool
(``registry/reconcile/sleep.py``).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from registry.loading.desired import Role, Want

_LOOKS = 10  # in the time after which a model is idle
_LOOK_SECONDS = (0.5, 30.0)  # the least and the most between two of them


class Demand(Protocol):
    """What others than the loader ask of a Triton."""

    async def requests(self) -> Mapping[str, int | None]:
        """Requests of all others since some moment, by each model that Triton holds.

        One number says nothing, a larger one than before that somebody asked. None if it
        can't be told now, because a request of the loader's own is on its way.

        Raises:
            TritonUnavailableError: it does not answer.
            TritonRefusedError: it does not tell.
        """


class IdleTimes:
    """When each model was last asked for.

    Args:
        idle_seconds: after which it is idle; 0: it never is.
        settle_seconds: for which the status has said that it sleeps, before it may leave. By then
            every gateway knows.
        now: unix time, seconds.
    """

    def __init__(
        self, idle_seconds: float, settle_seconds: float, now: Callable[[], float]
    ) -> None:
        self._idle_seconds = idle_seconds
        self._settle_seconds = settle_seconds
        self._now = now
        self._asked: dict[str, float] = {}
        self._counted: dict[str, int] = {}
        self._asleep_since: dict[str, float] = {}
        self._look_at = 0.0

    @property
    def look_due(self) -> bool:
        """Whether it is time to count again."""
        return self._idle_seconds > 0 and self._now() >= self._look_at

    def note_request(self, name: str) -> None:
        """Somebody asks for a model now. Any thread may say so."""
        self._asked[name] = self._now()

    def note_held(self, held: Iterable[str]) -> None:
        """Triton holds these; one never heard of is there by an earlier loader."""
        for name in held:
            if name not in self._asked:
                self.note_request(name)

    def forget(self, name: str) -> None:
        """Nobody names a model any more."""
        self._asked.pop(name, None)
        self._counted.pop(name, None)
        self._asleep_since.pop(name, None)

    def note_counts(self, counts: Mapping[str, int | None], loaded: Collection[str]) -> None:
        """Takes what was counted; of models that were left out nobody knows."""
        least, most = _LOOK_SECONDS
        self._look_at = self._now() + min(most, max(least, self._idle_seconds / _LOOKS))
        for name in loaded:
            count = counts.get(name)
            if name not in counts:
                self.note_request(name)
            if count is None:
                continue
            if count > self._counted.get(name, count):
                self.note_request(name)
            self._counted[name] = count

    def is_idle(self, name: str) -> bool:
        """Whether a model has been idle for a long time; true for one never heard of."""
        if self._idle_seconds <= 0:
            return False
        asked = self._asked.get(name)
        return asked is None or self._now() - asked >= self._idle_seconds

    def resolve(self, wants: Iterable[Want]) -> tuple[Want, ...]:
        """What is wanted, asleep only if they are idle here too; the others return."""
        resolved = []
        for want in wants:
            name = want.ref.triton_model
            if not want.asleep:
                self._asleep_since.pop(name, None)
            else:
                self._asleep_since.setdefault(name, self._now())
                asleep = self.is_idle(name)
                want = replace(want, asleep=asleep, returns=not asleep)  # noqa: PLW2901
            resolved.append(want)
        return tuple(resolved)

    def find_leaving(self, wants: Iterable[Want], loaded: Collection[str]) -> Want | None:
        """A model that sleeps and is loaded, and may leave now: the one longest without a caller.

        ``wants`` are resolved.
        """
        now = self._now()
        found = [
            want
            for want in wants
            if want.asleep
            and want.role is Role.STABLE
            and want.ref.triton_model in loaded
            and now - self._asleep_since.get(want.ref.triton_model, now) >= self._settle_seconds
        ]
        return min(found, key=lambda want: self._asked[want.ref.triton_model], default=None)
