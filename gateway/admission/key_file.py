"""The file of API keys: one JSON object a line, each with the hash of a key, never the key itself.

Several keys may have one name while they are rotated; the newest one says the name's limit. A key
is shown once, when it is made.

Keys are hashed with plain SHA-256. Slow hashes (scrypt, bcrypt) protect passwords that people
choose. These keys are 256 random bits, which can't be guessed, and with a slow hash on every
request anybody could overload the gateway with wrong keys.
"""

import fcntl
import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

PREFIX = "hr_"  # lets scanners of source code recognise a key that was committed
EVERY_ENDPOINT = "*"


class KeyFileError(ValueError):
    """The key file is invalid. The message names the line, without its content."""


class KeyRecord(BaseModel):
    """One line of the key file."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(min_length=1, max_length=100, description="the caller, in events and logs")
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="of the key's UTF-8, hex")
    endpoints: tuple[str, ...] = Field((EVERY_ENDPOINT,), description="names, or * for all")
    requests_per_second: float | None = Field(None, gt=0, alias="requestsPerSecond")
    force_version: bool = Field(
        False, alias="forceVersion", description="whether x-headrace-version may name a version"
    )
    created: AwareDatetime | None = None
    expires: AwareDatetime | None = None

    def allows(self, endpoint: str) -> bool:
        """Whether the key opens the endpoint."""
        return EVERY_ENDPOINT in self.endpoints or endpoint in self.endpoints


def new_key() -> str:
    """A fresh key: 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(key: str) -> str:
    """What is stored of a key: SHA-256, hex."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Grant:
    """What a new key opens, see ``KeyRecord``."""

    endpoints: tuple[str, ...] = (EVERY_ENDPOINT,)
    requests_per_second: float | None = None
    force_version: bool = False
    expires: datetime | None = None


def issue(
    name: str, grant: Grant | None = None, *, created: datetime | None = None
) -> tuple[str, KeyRecord]:
    """A new key, to be shown once, and the record to be stored; raises ``ValidationError``."""
    key = new_key()
    record = KeyRecord(name=name, sha256=digest(key), created=created, **asdict(grant or Grant()))
    return key, record


def append(path: Path, record: KeyRecord) -> None:
    """Adds a record to the key file, which is created, for its owner only, if missing.

    Raises:
        KeyFileError: the file is broken, or the name is taken.
        OSError: the file can't be written.
    """
    with _alone(path):
        text = _text(path)
        if any(record.name == known.name for known in parse(text)):
            raise KeyFileError(
                f"{path} has a key named {record.name!r} already: rotate it, or choose another name"
            )
        _replace(path, text, [record])


def rotate(path: Path, name: str, *, now: datetime, until: datetime) -> tuple[str, KeyRecord]:
    """Adds a new key that opens what the name's newest one opens; the others expire ``until``.

    A key that expires earlier keeps its time.

    Raises:
        KeyFileError: the file is broken, or holds no such name.
        OSError: the file can't be written.
    """
    with _alone(path):
        newest = _named(path, name)[-1]
        grant = Grant(newest.endpoints, newest.requests_per_second, newest.force_version)
        key, record = issue(name, grant, created=now)

        def ending(known: KeyRecord) -> KeyRecord:
            return known.model_copy(update={"expires": min(until, known.expires or until)})

        _replace(path, _changed(path, name, ending), [record])
    return key, record


def revoke(path: Path, name: str) -> int:
    """Takes all keys of a name out of the file, and tells how many they were.

    Raises:
        KeyFileError: the file is broken, or holds no such name.
        OSError: the file can't be written.
    """
    with _alone(path):
        count = len(_named(path, name))
        _replace(path, _changed(path, name, lambda _: None))
    return count


def _named(path: Path, name: str) -> list[KeyRecord]:
    found = [record for record in parse(_text(path)) if record.name == name]
    if not found:
        raise KeyFileError(f"{path} has no key named {name!r}")
    return found


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _lines(text: str) -> list[str]:
    """The file's lines; JSON leaves characters in strings that ``str.splitlines`` breaks at."""
    return text.removesuffix("\n").split("\n")


def _changed(path: Path, name: str, change: Callable[[KeyRecord], KeyRecord | None]) -> str:
    """The file's text with the records of a name changed, or taken out; comments stay."""
    kept: list[str] = []
    for line in _lines(_text(path)):
        record = KeyRecord.model_validate_json(line) if _is_record(line) else None
        if record is None or record.name != name:
            kept.append(line)
        elif (changed := change(record)) is not None:
            kept.append(_line(changed))
    return "".join(f"{line}\n" for line in kept)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """No other command changes a key file of the folder meanwhile."""
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str, more: Iterable[KeyRecord] = ()) -> None:
    """Replaces the file as a whole, so that no gateway reads half of it."""
    start = "" if not text or text.endswith("\n") else "\n"
    added = "".join(f"{_line(record)}\n" for record in more)
    path = path.resolve()
    descriptor, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text + start + added)
        if path.exists():
            before = path.stat()
            os.chown(scratch, before.st_uid, before.st_gid)
            Path(scratch).chmod(stat.S_IMODE(before.st_mode))
        Path(scratch).replace(path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def _line(record: KeyRecord) -> str:
    return record.model_dump_json(by_alias=True, exclude_defaults=True)


def _is_record(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def parse(text: str) -> list[KeyRecord]:
    """The records of a key file; empty lines and lines that begin with # are ignored.

    Raises:
        KeyFileError: a line is no record, or two hold the same key.
    """
    records, errors = read(text)
    if errors:
        raise KeyFileError(errors[0])
    return records


def read(text: str) -> tuple[list[KeyRecord], list[str]]:
    """The records of a key file, and of each line that is none its number and what is wrong."""
    records: list[KeyRecord] = []
    errors: list[str] = []
    digests: set[str] = set()
    for number, line in enumerate(_lines(text), start=1):
        if not _is_record(line):
            continue
        try:
            record = KeyRecord.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            errors.append(f"line {number}: {where}: {first['msg']}")
            continue
        if record.sha256 in digests:
            errors.append(f"line {number}: its key stands on an earlier line")
            continue
        digests.add(record.sha256)
        records.append(record)
    return records, errors
