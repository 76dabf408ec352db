"""The home that a command works on, and the endpoints in it."""

from pathlib import Path

from headrace.errors import NotRunningError
from headrace.stack.state import Home
from registry.endpoint_store import FileEndpointStore


def opened(root: Path) -> Home:
    """The home, whether its stack runs or not.

    Raises:
        NotRunningError: there is no such home.
    """
    home = Home(root)
    if not home.marker.exists():
        raise NotRunningError(f"{root} is no Headrace home. Start a stack with headrace up.")
    return home


def store(home: Home) -> FileEndpointStore:
    """The endpoints of the home, for reading and for writing."""
    return FileEndpointStore(home.endpoints)
