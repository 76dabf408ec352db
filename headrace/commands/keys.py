"""``headrace keys``: makes API keys for the gateway."""

from pathlib import Path

from pydantic import ValidationError

from gateway.admission import keys
from headrace.commands.output import print_json, print_line
from headrace.errors import RequestFailedError


def create(
    file: Path,
    name: str,
    endpoints: list[str],
    *,
    requests_per_second: float | None,
    as_json: bool,
) -> None:
    """Makes a key, stores its hash and prints the key, this once."""
    try:
        key, record = keys.issue(name, endpoints, requests_per_second)
        keys.append(file, record)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RequestFailedError(f"No key was made: {where}: {first['msg']}.") from None
    except (keys.KeyFileError, OSError) as error:
        raise RequestFailedError(f"No key was made: {error}.") from error
    if as_json:
        print_json({"key": key, **record.model_dump(mode="json", by_alias=True)})
        return
    print_line(key)
    print_line(
        f"Keep it: it is shown this once. {file} holds its hash; send it as "
        "'Authorization: Bearer KEY'.",
        style="dim",
    )
