"""``headrace keys``: makes, lists, rotates and revokes API keys for the gateway.

They change a file. Gateways that read it follow within a second; those that get it from a Secret
follow when the Secret has been made again from the file.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from gateway.admission import key_file
from gateway.admission.key_file import Grant, KeyFileError, KeyRecord
from headrace.commands.layout import TableRow, rows, sentences
from headrace.commands.output import console, print_json, print_line, strip_controls
from headrace.errors import RequestFailedError
from headrace.invocation import is_structured
from headrace.options import make_absolute
from headrace.program import App

app = App(help="API keys of the gateway.")

KeyFile = Annotated[Path, typer.Option(help="The gateway's key file.")]
KeyName = Annotated[str, typer.Argument(help="Whose keys.")]


@app.declare()
def create(
    name: Annotated[str, typer.Argument(help="Whose key it is; appears in metrics and logs.")],
    file: Annotated[Path, typer.Option(help="The gateway's key file, made if need be.")],
    endpoint: Annotated[
        list[str] | None, typer.Option(help="An endpoint that it opens; all, unless given.")
    ] = None,
    requests_per_second: Annotated[
        float | None,
        typer.Option(help="Most requests a second, of all endpoints and gateways together."),
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(min=0, help="Days until it expires; by default never."),
    ] = None,
    force_version: Annotated[
        bool, typer.Option("--force-version", help="It may name a version: x-headrace-version.")
    ] = False,
) -> None:
    """Makes an API key, adds its hash to the key file and prints the key, this once."""
    file, now = make_absolute(file), _now()
    try:
        expires = None if days is None else now + timedelta(days=days)
        grant = Grant(tuple(endpoint or ["*"]), requests_per_second, force_version, expires)
        key, record = key_file.issue(name, grant, created=now)
        key_file.append(file, record)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RequestFailedError(f"No key was made: {where}: {first['msg']}.") from None
    except (KeyFileError, OSError, OverflowError) as error:
        raise RequestFailedError(f"No key was made: {error}.") from error
    _show(file, key, record)


@app.declare()
def rotate(
    name: KeyName,
    file: KeyFile,
    hours: Annotated[float, typer.Option(min=0, help="How long the old keys stay valid.")] = 24.0,
) -> None:
    """Makes another key with the same rights; the old ones expire after some hours."""
    file, now = make_absolute(file), _now()
    try:
        until = now + timedelta(hours=hours)
        key, record = key_file.rotate(file, name, now=now, until=until)
    except (KeyFileError, OSError, OverflowError) as error:
        raise RequestFailedError(f"No key was made: {error}.") from error
    _show(file, key, record)
    if not is_structured():
        print_line(f"Other keys of {name} open until {until.isoformat()}.", style="dim")


@app.declare()
def revoke(name: KeyName, file: KeyFile) -> None:
    """Takes all keys of a name out of the file; gateways that read it refuse them."""
    file = make_absolute(file)
    try:
        count = key_file.revoke(file, name)
    except (KeyFileError, OSError) as error:
        raise RequestFailedError(f"Nothing was revoked: {error}.") from error
    if is_structured():
        print_json({"name": name, "revoked": count})
    else:
        print_line(f"{count} of {name} revoked in {file}.")


@app.declare("list")
def show(file: KeyFile) -> None:
    """Lists whose keys there are, for which endpoints and until when; never the keys."""
    file = make_absolute(file)
    try:
        records, errors = key_file.read(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RequestFailedError(f"{file} can't be read: {error}.") from error
    if is_structured():
        print_json([record.model_dump(mode="json", by_alias=True) for record in records])
    else:
        headings = ("name", "requests/s", "versions", "created", "expires")
        console.print(rows(headings, [_row(record) for record in records]))
    if errors:
        raise RequestFailedError(
            f"{file} has broken lines, which are ignored: {'; '.join(errors)}."
        )


def _row(record: KeyRecord) -> TableRow:
    limit = record.requests_per_second
    expires = _moment(record.expires)
    if record.expires is not None and record.expires <= _now():
        expires += " (over)"
    cells = (
        strip_controls(record.name),
        "-" if limit is None else f"{limit:g}",
        "any" if record.force_version else "-",
        _moment(record.created),
        expires,
    )
    opens = "all endpoints" if record.endpoints == ("*",) else ", ".join(record.endpoints)
    return TableRow(cells, sentences(f"opens {strip_controls(opens)}"))


def _moment(moment: datetime | None) -> str:
    return "-" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _show(file: Path, key: str, record: KeyRecord) -> None:
    if is_structured():
        print_json({"key": key, **record.model_dump(mode="json", by_alias=True)})
        return
    print_line(key)
    print_line(
        f"Keep it: it is shown this once. {file} holds its hash; send it as "
        "'Authorization: Bearer KEY'.",
        style="dim",
    )
