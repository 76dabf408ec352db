"""API keys: who calls, and which endpoints a caller may use.

The key file is read again when it changes. While it can't be read at all, the last keys stay valid.
A line that is broken opens nothing and is logged; the other lines count, so that a key which was
taken out is refused. A key itself is never logged.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from gateway.admission.key_file import KeyRecord, digest, read
from gateway.errors import ForbiddenError, UnauthenticatedError

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
_MOST_LOGGED = 5


class KeyRing:
    """The valid keys. Used from one thread.

    An empty ``path`` switches keys off. Until the file was read once, no key is valid.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = Path(path) if str(path) else None
        self._clock = clock
        self._wall_clock = wall_clock
        self._by_digest: dict[str, KeyRecord] = {}
        self._by_name: dict[str, list[KeyRecord]] = {}
        self._last: tuple[str, KeyRecord] | None = None
        self._limits: dict[str, float | None] = {}
        self._broken_lines = 0
        self._stamp: tuple[int, int, int] | None = None
        self._reason: str | None = None
        self._next_look = clock()
        self._refresh()

    @property
    def broken_lines(self) -> int:
        """Lines of the file that open nothing because they are broken."""
        return self._broken_lines

    def authorise(
        self, presented: str | None, endpoint: str, *, forces_version: bool = False
    ) -> str | None:
        """The caller's name, None if keys are off.

        Raises:
            UnauthenticatedError: no key, an unknown one, or one that has expired.
            ForbiddenError: it does not open the endpoint, or may name no version or space.
        """
        record = self._recognised(presented)
        if record is None:
            return None
        if not record.allows(endpoint):
            raise ForbiddenError(f"The API key {record.name!r} is not for {endpoint[:80]!r}.")
        if forces_version and not record.force_version:
            raise ForbiddenError(
                f"The API key {record.name!r} may not name a version or a space "
                "(x-headrace-version, x-headrace-space)."
            )
        return record.name

    def authorise_named(self, name: str | None, endpoint: str) -> str | None:
        """As ``authorise``, for a caller whose key was recognised before, by the key's name.

        Raises:
            UnauthenticatedError: no key of this name is valid any more.
            ForbiddenError: none of them opens the endpoint.
        """
        if self._path is None:
            return None
        self._refresh()
        records = [each for each in self._by_name.get(name or "", ()) if not self._is_over(each)]
        if not records:
            raise UnauthenticatedError(f"No API key {name!r} is valid any more.")
        if not any(each.allows(endpoint) for each in records):
            raise ForbiddenError(f"The API key {name!r} is not for {endpoint[:80]!r}.")
        return name

    def recognise(self, presented: str | None) -> str | None:
        """The caller's name, None if keys are off.

        Raises:
            UnauthenticatedError: as ``authorise``.
        """
        record = self._recognised(presented)
        return None if record is None else record.name

    def _recognised(self, presented: str | None) -> KeyRecord | None:
        """The record of a key, None if keys are off.

        A key is looked up by its hash, which callers can't choose, so that the time of a look-up
        reveals nothing about the valid keys.
        """
        if self._path is None:
            return None
        self._refresh()
        if not presented:
            raise UnauthenticatedError(
                "This gateway needs an API key: send it as 'Authorization: Bearer <key>'."
            )
        last = self._last
        if last is not None and last[0] is presented:  # asked again about the same request
            record = last[1]
        else:
            found = self._by_digest.get(digest(presented))
            if found is None:
                raise UnauthenticatedError("The API key is not known here.")
            record = found
            self._last = (presented, record)
        if record.expires is not None and self._is_over(record):
            raise UnauthenticatedError(
                f"The API key {record.name!r} expired at {record.expires.isoformat()}."
            )
        return record

    def _is_over(self, record: KeyRecord) -> bool:
        expires = record.expires
        return expires is not None and expires.timestamp() <= self._wall_clock()

    def own_limit(self, caller: str) -> float | None:
        """The requests a second that the caller's key itself sets, for ``RateLimits``."""
        return self._limits.get(caller)

    def _refresh(self) -> None:
        """Checks the file, once a second at most, and reads it if it has changed."""
        now = self._clock()
        if self._path is None or now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        try:
            status = self._path.stat()
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
            if stamp == self._stamp:
                return
            records, errors = read(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            self._stamp = None
            if str(error) != self._reason:
                self._reason = str(error)
                log.error(
                    "the key file can't be read, keys stay as they were",
                    extra={"file": str(self._path), "reason": self._reason},
                )
            return
        self._stamp, self._reason = stamp, None
        self._by_digest = {record.sha256: record for record in records}
        self._by_name = {}
        for record in self._by_digest.values():
            self._by_name.setdefault(record.name, []).append(record)
        self._last = None
        # Of a name's keys the newest one says its limit.
        self._limits = {record.name: record.requests_per_second for record in records}
        self._broken_lines = len(errors)
        for reason in errors[:_MOST_LOGGED]:
            log.error(
                "a line of the key file is broken and is ignored",
                extra={"file": str(self._path), "reason": reason},
            )
        log.info(
            "keys read",
            extra={"file": str(self._path), "keys": len(records), "broken": len(errors)},
        )
