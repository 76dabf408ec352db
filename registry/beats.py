"""The controller's sign of life: who writes it, when, and where.

A sign is due while passes over all endpoints come to their end, and only then: a loop that hangs,
or whose passes are cut short, is as silent as a controller that is away. A sign that can't be
written holds up no pass; the next one says it all.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from contracts.controller import BEAT_FOLDER, BEAT_SECONDS, ControllerBeat
from service import durable

log = logging.getLogger(__name__)

_FILE = "beat.json"


class Beats(Protocol):
    """Where the sign of life lies."""

    def put(self, beat: ControllerBeat) -> None:
        """Replaces it.

        Raises:
            OSError: it can't be written.
        """
        ...

    def get(self) -> ControllerBeat | None:
        """The last one; None where there is none, or it can't be read now."""
        ...


class FileBeats:
    """One file beside the endpoints, ``<endpoints>/.controller/beat.json``."""

    def __init__(self, endpoints: Path) -> None:
        self._path = endpoints / BEAT_FOLDER / _FILE

    def put(self, beat: ControllerBeat) -> None:
        """Replaces it; see the Protocol."""
        # Not the endpoints' folder: one that is away must not come back empty.
        self._path.parent.mkdir(exist_ok=True)
        durable.write(self._path, beat.model_dump_json().encode() + b"\n")

    def get(self) -> ControllerBeat | None:
        """The last one; see the Protocol."""
        try:
            return ControllerBeat.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            log.warning("the controller's sign of life can't be read: %s", error)
            return None


class Heart:
    """The one writer of the controller's sign of life.

    Args:
        beats: where it lies.
        every_seconds: between two signs.
        now: unix time, seconds.
    """

    def __init__(
        self,
        beats: Beats,
        *,
        every_seconds: float = BEAT_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._beats = beats
        self._every_seconds = every_seconds
        self._now = now
        self._instance = uuid.uuid4().hex
        self._count = 0
        self._passed = asyncio.Event()
        self._unattended: tuple[str, ...] = ()
        self._unheard = False

    def passed(self, unattended: Iterable[str]) -> None:
        """A pass over all endpoints has ended, which could not look after these."""
        self._unattended = tuple(sorted(unattended))
        self._passed.set()

    async def beat(self) -> None:
        """Gives signs until it is cancelled: the first after the first pass."""
        while True:
            await self._passed.wait()
            self._passed.clear()
            await self._give()
            await asyncio.sleep(self._every_seconds)

    async def _give(self) -> None:
        self._count += 1
        sign = ControllerBeat(
            instance=self._instance,
            count=self._count,
            at=self._now(),
            unattended=self._unattended,
        )
        try:
            await asyncio.to_thread(self._beats.put, sign)
        except OSError as error:
            if not self._unheard:
                log.warning(
                    "the sign of life can't be written; gateways will take candidates' callers "
                    "back: %s",
                    error,
                )
            self._unheard = True
        else:
            self._unheard = False
