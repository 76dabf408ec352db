"""Where the gateway is, for the commands that ask it."""

from pathlib import Path

from headrace.errors import NotRunningError
from headrace.stack import state
from headrace.stack.state import Home


def address(home: Path, url: str | None) -> str:
    """The gateway's HTTP address: the one given, else that of the stack on ``home``.

    Raises:
        NotRunningError: none is given and no stack runs there.
    """
    if url is not None:
        return url.rstrip("/")
    record = state.read_record(Home(home))
    if record is None:
        raise NotRunningError(
            f"No stack runs on {home}. Start it with headrace up, or name a gateway with --url."
        )
    return record.gateway_url
