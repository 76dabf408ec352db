"""A loader's ledger on disk: what it put into Triton, and how often Triton ended under what.

It survives a killed loader. Decisions are ``desired``'s; this only keeps them.
"""

import logging
from collections.abc import Callable, Container
from pathlib import Path

from registry.loading.desired import ModelLedger, Want
from service import durable

log = logging.getLogger(__name__)

_WRITE_SECONDS = 30.0  # between two writes of how long Triton was watched


class LedgerFile:
    """The one writer of a ledger."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._ledger = _read(path)
        self._written_at = now()
        self._watched_at: float | None = None  # the last pass to which Triton answered
        self.ended_at = 0.0  # unix time at which Triton was last found to have ended by itself

    @property
    def ledger(self) -> ModelLedger:
        """As it is now."""
        return self._ledger

    def write(self, ledger: ModelLedger) -> None:
        """Replaces it, if it is another one; raises ``OSError``."""
        if ledger != self._ledger:
            durable.write(self._path, ledger.model_dump_json(indent=2).encode())
            self._ledger = ledger
            self._written_at = self._now()

    def away(self) -> None:
        """Triton does not answer: the time from now on is not counted."""
        self._watched_at = None

    def record_crash(self, lost: Container[str], wants: tuple[Want, ...]) -> None:
        """Notes that Triton ended, and under what, also for the loader after this one.

        An end of which a load was told already, or while one on trial waits to be loaded, says
        nothing of how often Triton ends without any.
        """
        self.ended_at = self._now()
        trials = [want.ref for want in wants if want.on_trial]
        under = [ref for ref in trials if ref.triton_model in lost]
        if under or not trials:
            self.write(self._ledger.count_end_of_triton(under))

    def count_uptime(self, held: Container[str], wants: tuple[Want, ...]) -> None:
        """Counts the time since the last pass; on disk it is written only now and then."""
        now, last = self._now(), self._watched_at
        self._watched_at = now
        trials = [want.ref for want in wants if want.on_trial]
        under = [ref for ref in trials if ref.triton_model in held]
        if last is None or (trials and not under):
            return
        watched = self._ledger.count_trial_seconds(under, max(0.0, now - last))
        if now - self._written_at >= _WRITE_SECONDS:
            self._written_at = now
            try:
                self.write(watched)
            except OSError as error:  # a full disk must not keep a loader from its work
                log.warning("the ledger can't be written: %s", error)
        self._ledger = watched


def _read(path: Path) -> ModelLedger:
    """The ledger as it was left; an empty one if there is none or it can't be read.

    Without it nothing is lost but Triton's ends so far, and the unloading of what an earlier loader
    had put there and no endpoint names any more.
    """
    try:
        return ModelLedger.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return ModelLedger()
    except ValueError as error:
        log.warning("the ledger %s can't be read and is started empty: %s", path, error)
        return ModelLedger()
