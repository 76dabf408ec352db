"""API keys: who calls, and which endpoints a caller may use.

Keys are stored in a file, one JSON object a line, and only as hashes. The file is read again when
it changes. While it can't be read, the last keys stay valid. A key itself is never stored or
logged, and is shown once, when it is created.

Keys are hashed with plain SHA-256. Slow hashes (scrypt, bcrypt) protect passwords that people
choose. These keys are 256 random bits, which can't be guessed, and with a slow hash on every
request anybody could overload the gateway with wrong keys.
"""

import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.errors import ForbiddenError, UnauthenticatedError

log = logging.getLogger(__name__)

PREFIX = "hr_"  # lets scanners of source code recognise a key that was committed
EVERY_ENDPOINT = "*"
LOOK_SECONDS = 1.0


class KeyFileError(ValueError):
    """The key file is invalid. The message names the line, without its content."""


class KeyRecord(BaseModel):
    """One line of the key file."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(min_length=1, max_length=100, description="the caller, in events and logs")
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="of the key's UTF-8, hex")
    endpoints: tuple[str, ...] = Field((EVERY_ENDPOINT,), description="names, or * for all")
    requests_per_second: float | None = Field(None, gt=0, alias="requestsPerSecond")

    def allows(self, endpoint: str) -> bool:
        """Whether the key opens the endpoint."""
        return EVERY_ENDPOINT in self.endpoints or endpoint in self.endpoints


def new_key() -> str:
    """A fresh key: 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(key: str) -> str:
    """What is stored of a key: SHA-256, hex."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def issue(
    name: str,
    endpoints: Iterable[str] = (EVERY_ENDPOINT,),
    requests_per_second: float | None = None,
) -> tuple[str, KeyRecord]:
    """A new key, to be shown once, and the record to be stored; raises ``ValidationError``."""
    key = new_key()
    record = KeyRecord(
        name=name,
        sha256=digest(key),
        endpoints=tuple(endpoints),
        requests_per_second=requests_per_second,
    )
    return key, record


def append(path: Path, record: KeyRecord) -> None:
    """Adds a record to the key file, which is created, for its owner only, if missing.

    Raises:
        KeyFileError: the file is broken, or the name is taken.
        OSError: the file can't be written.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if any(record.name == known.name for known in parse(text)):
        raise KeyFileError(f"{path} has a key named {record.name!r} already")
    line = record.model_dump_json(by_alias=True) + "\n"
    start = "" if not text or text.endswith("\n") else "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(start + line)


def parse(text: str) -> list[KeyRecord]:
    """The records of a key file; empty lines and lines that begin with # are ignored.

    Raises:
        KeyFileError: a line is no record, or two share a name or a key.
    """
    records: list[KeyRecord] = []
    names: set[str] = set()
    digests: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            record = KeyRecord.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            raise KeyFileError(f"line {number}: {where}: {first['msg']}") from None
        if record.name in names or record.sha256 in digests:
            raise KeyFileError(f"line {number}: its name or its key stands on an earlier line")
        names.add(record.name)
        digests.add(record.sha256)
        records.append(record)
    return records


class KeyRing:
    """The valid keys. Used from one thread.

    An empty ``path`` switches keys off. Until the file was read once, no key is valid.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = Path(path) if str(path) else None
        self._clock = clock
        self._by_digest: dict[str, KeyRecord] = {}
        self._by_name: dict[str, KeyRecord] = {}
        self._stamp: tuple[int, int, int] | None = None
        self._reason: str | None = None
        self._next_look = clock()
        self._refresh()

    def authorise(self, presented: str | None, endpoint: str) -> str | None:
        """The caller's name, None where keys are off.

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
        record = self._by_digest.get(digest(presented))
        if record is None:
            raise UnauthenticatedError("The API key is not known here.")
        if not record.allows(endpoint):
            raise ForbiddenError(f"The API key {record.name!r} is not for {endpoint!r}.")
        return record.name

    def own_limit(self, caller: str) -> float | None:
        """The requests a second that the caller's key itself sets, for ``RateLimits``."""
        record = self._by_name.get(caller)
        return None if record is None else record.requests_per_second

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
            records = parse(self._path.read_text(encoding="utf-8"))
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
        self._by_name = {record.name: record for record in records}
        log.info("keys read", extra={"file": str(self._path), "keys": len(records)})
