"""What one Triton failed to load, as its loader remembers and reports it.

Only facts: what failed, how often in a row, and whether a package that is known to be good was
loaded since then. It judges nobody. Every failure is tried again, with growing pauses, a version on
trial under which Triton ends only once others hold it: another load may end it again.
"""

import logging
from collections.abc import Callable, Container, Mapping
from dataclasses import replace

from contracts.loading import FailureCause, LoadFailure, WitnessAnswer
from contracts.model import ModelRef
from registry import metrics
from registry.loading import desired
from registry.loading.desired import PackageFailure, Want

log = logging.getLogger(__name__)

_PROVABLE = frozenset({FailureCause.REFUSED, FailureCause.CRASHED})


class Failures:
    """By Triton's name of the package. ``now`` gives unix seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures: dict[str, PackageFailure] = {}

    def get(self, name: str) -> PackageFailure | None:
        """What is known of one."""
        return self._failures.get(name)

    @property
    def all(self) -> Mapping[str, PackageFailure]:
        """All of them, for ``desired``."""
        return self._failures

    def add(
        self, want: Want, reason: str, cause: FailureCause, pause: float = 0.0
    ) -> PackageFailure:
        """Notes one more failure; ``pause``: the least seconds to the next try."""
        name = want.ref.triton_model
        previous = self._failures.get(name)
        failure = desired.count_failure(want, reason, previous, cause=cause, now=self._now())
        failure = replace(failure, retry_at=max(failure.retry_at, self._now() + pause))
        self._failures[name] = failure
        metrics.LOAD_FAILURES.labels("version" if failure.blames_model else "environment").inc()
        log.warning("%s is not loaded: %s", name, reason)
        return failure

    def drop(self, name: str) -> None:
        """Forgets one that was loaded."""
        self._failures.pop(name, None)

    def keep(self, wants: tuple[Want, ...], missing: Container[str]) -> None:
        """Forgets failures at what is not missing any more, or not on trial any more."""
        on_trial = {want.ref.triton_model for want in wants if want.on_trial}
        self._failures = {
            name: item
            for name, item in self._failures.items()
            if name in missing and (item.cause is not FailureCause.CRASHED or name in on_trial)
        }

    def retry_what_did_not_fit(self) -> None:
        """At once; until then it is reported as before."""
        now = self._now()
        self._failures = {
            name: replace(item, retry_at=now) if item.no_room else item
            for name, item in self._failures.items()
        }

    def find_unproven(self) -> ModelRef | None:
        """A package for whose refusal a witness is due, if there is one."""
        now = self._now()
        for item in self._failures.values():
            if item.cause in _PROVABLE and item.witness_at is not None and now >= item.witness_at:
                return item.ref
        return None

    def note_witness(self, ref: ModelRef, answer: WitnessAnswer) -> None:
        """Notes what the witness did. One that was not loaded is asked again later."""
        name = ref.triton_model
        if (item := self._failures.get(name)) is not None:
            self._failures[name] = desired.add_witness(item, answer, self._now())

    def list_reported(self) -> tuple[LoadFailure, ...]:
        """As the report has them."""
        return tuple(
            LoadFailure(
                ref=item.ref,
                reason=item.reason,
                by_version=item.by_version,
                cause=item.cause,
                witness=item.witness,
                again=item.again,
                persists=item.attempts >= desired.PERSISTENT_ATTEMPTS,
            )
            for item in self._failures.values()
        )
