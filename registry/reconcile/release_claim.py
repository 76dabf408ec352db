"""Whose a namespace or folder of endpoints is: one release's, whose controller beats there.

Two releases on the same endpoints would judge and route them at once. The controller's heartbeat
bears a mark made of its release's key, as the package store does. Whose heartbeat is another's is
seen by its mark, and that the other still runs by a change of it, whatever clocks say. What a
release left that is gone is taken over. One that can't be read may be anybody's: it is waited for.
Two controllers of one release do no harm: each writes only
against what it has read.
"""

import hmac
import logging
from collections.abc import Callable, Sequence

from contracts.controller import LEAST_TIMEOUT_SECONDS, ControllerBeat
from registry.stores.heartbeats import Heartbeats
from service.cluster.errors import AccessError

log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0


class EndpointsTakenError(Exception):
    """Another release's controller looks after the endpoints."""


class ReleaseClaim:
    """One release's claim on the endpoints of one namespace or folder."""

    def __init__(self, store: Heartbeats, keys: Sequence[bytes], place: str) -> None:
        self._store = store
        self._marks = [_mark(key) for key in keys]
        self._place = place
        self._left: tuple[str, int] | None = None  # the heartbeat of one that does not run

    @property
    def mark(self) -> str:
        """What this release's heartbeats bear."""
        return self._marks[0]

    def refusal(self, pause: Callable[[float], object]) -> str:
        """Why this release can't have the endpoints, else nothing."""
        found = self._wait_for_beat(pause)
        if not self._explain(found):
            return ""
        self._left = _number_of(found)
        for _ in range(round(LEAST_TIMEOUT_SECONDS / _LOOK_SECONDS)):
            pause(_LOOK_SECONDS)
            if refused := self._explain(self._wait_for_beat(pause)):
                return refused
        log.info("takes over %s of a release whose controller does not run any more", self._place)
        return ""

    def explain_conflict(self) -> str:
        """That another release's heartbeat is there, in a sentence, else nothing.

        Raises:
            OSError: the heartbeat can't be read.
        """
        return self._explain(self._store.get())

    def _wait_for_beat(self, pause: Callable[[float], object]) -> ControllerBeat | None:
        while True:
            try:
                return self._store.get()
            except AccessError:
                raise
            except OSError as error:
                log.warning("whose %s is can't be seen yet: %s", self._place, error)
            pause(_LOOK_SECONDS)

    def _explain(self, found: ControllerBeat | None) -> str:
        if found is None or found.release in ("", *self._marks) or _number_of(found) == self._left:
            return ""
        return (
            f"{self._place} is looked after by the controller of another release of Headrace, and "
            "two would judge the same endpoints: install this release in a namespace of its own, "
            "or uninstall the other one"
        )


def _number_of(beat: ControllerBeat | None) -> tuple[str, int] | None:
    return None if beat is None else (beat.instance, beat.count)


def _mark(key: bytes) -> str:
    return hmac.digest(key, b"headrace/endpoints", "sha256").hex()[:32]
