"""``headrace keys``: makes, lists, rotates and revokes API keys for the gateway.

They change a file. Gateways that read it follow within a second; those that get it from a Secret
follow when the Secret has been made anew of the file.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from gateway.admission import key_file
from gateway.admission.key_file import Grant, KeyFileError, KeyRecord
from headrace.commands.layout import Row, rows, sentences
from headrace.commands.output import console, print_json, print_line, printable
from headrace.errors import RequestFailedError


def create(
    file: Path,
    name: str,
    endpoints: list[str],
    *,
    requests_per_second: float | None,
    days: float | None = None,
    force_version: bool = False,
    as_json: bool = False,
) -> None:
    """Makes a key that expires after ``days``, stores its hash, and prints the key, this once."""
    now = _now()
    try:
        expires = None if days is None else now + timedelta(days=days)
        grant = Grant(tuple(endpoints), requests_per_second, force_version, expires)
        key, record = key_file.issue(name, grant, created=now)
        key_file.append(file, record)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RequestFailedError(f"No key was made: {where}: {first['msg']}.") from None
    except (KeyFileError, OSError, OverflowError) as error:
        raise RequestFailedError(f"No key was made: {error}.") from error
    _show(file, key, record, as_json=as_json)


def rotate(file: Path, name: str, *, hours: float, as_json: bool = False) -> None:
    """Makes another key of the name, and lets those that it has expire after ``hours``."""
    now = _now()
    try:
        until = now + timedelta(hours=hours)
        key, record = key_file.rotate(file, name, now=now, until=until)
    except (KeyFileError, OSError, OverflowError) as error:
        raise RequestFailedError(f"No key was made: {error}.") from error
    _show(file, key, record, as_json=as_json)
    if not as_json:
        print_line(f"Other keys of {name} open until {until.isoformat()}.", style="dim")


def revoke(file: Path, name: str, *, as_json: bool = False) -> None:
    """Takes all keys of the name out of the file."""
    try:
        count = key_file.revoke(file, name)
    except (KeyFileError, OSError) as error:
        raise RequestFailedError(f"Nothing was revoked: {error}.") from error
    if as_json:
        print_json({"name": name, "revoked": count})
    else:
        print_line(f"{count} of {name} revoked in {file}.")


def show(file: Path, *, as_json: bool = False) -> None:
    """Lists the keys of the file: whose, for which endpoints, until when; never the keys."""
    try:
        records, errors = key_file.read(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RequestFailedError(f"{file} can't be read: {error}.") from error
    if as_json:
        names = dict.fromkeys(record.name for record in records)
        print_json([record.model_dump(mode="json", by_alias=True) for record in records], names)
    else:
        headings = ("name", "requests/s", "versions", "created", "expires")
        console.print(rows(headings, [_row(record) for record in records]))
    if errors:
        raise RequestFailedError(
            f"{file} has broken lines, which are ignored: {'; '.join(errors)}."
        )


def _row(record: KeyRecord) -> Row:
    limit = record.requests_per_second
    expires = _moment(record.expires)
    if record.expires is not None and record.expires <= _now():
        expires += " (over)"
    cells = (
        printable(record.name),
        "-" if limit is None else f"{limit:g}",
        "any" if record.force_version else "-",
        _moment(record.created),
        expires,
    )
    opens = "all endpoints" if record.endpoints == ("*",) else ", ".join(record.endpoints)
    return Row(cells, sentences(f"opens {printable(opens)}"))


def _moment(moment: datetime | None) -> str:
    return "-" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _show(file: Path, key: str, record: KeyRecord, *, as_json: bool) -> None:
    if as_json:
        print_json({"key": key, **record.model_dump(mode="json", by_alias=True)})
        return
    print_line(key)
    print_line(
        f"Keep it: it is shown this once. {file} holds its hash; send it as "
        "'Authorization: Bearer KEY'.",
        style="dim",
    )
