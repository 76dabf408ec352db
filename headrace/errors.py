"""What can go wrong in a user's shell, each with a sentence that says what to do.

Every command lets these through to ``headrace.cli``, which prints the message and ends with
``exit_status``. Nothing here is ever shown as a traceback. Scripts know an error by its status,
or by its ``code`` under ``-o json``; both are in ``docs/cli.md`` and never change their meaning.
"""

import json


def sentence_of(content: bytes) -> str:
    """What a gateway says of what it refuses, or the beginning of what came instead."""
    try:
        return str(json.loads(content)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return content[:500].decode(errors="replace")


class HeadraceError(Exception):
    """A failure that a person can act on; ``message`` says how."""

    exit_status = 1
    code = "failed"

    def __init_subclass__(cls, *, status: int, code: str) -> None:
        super().__init_subclass__()
        cls.exit_status, cls.code = status, code

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class MachineError(HeadraceError, status=3, code="machine"):
    """This machine lacks something that the local stack needs."""


class ServicePortTakenError(HeadraceError, status=4, code="port_taken"):
    """Another program listens on a port that a service needs."""


class HomeInUseError(HeadraceError, status=5, code="home_in_use"):
    """Another ``headrace up`` runs on the same home folder."""


class BrokenHomeError(HeadraceError, status=6, code="unreadable"):
    """What is stored can't be read or written: a broken home, or an API server that refuses."""


class DownloadError(HeadraceError, status=7, code="download"):
    """A part of the stack could not be downloaded."""


class ServiceFailedError(HeadraceError, status=8, code="service_failed"):
    """A service ended, or did not become ready, while the stack started."""


class NotRunningError(HeadraceError, status=9, code="not_running"):
    """The command needs a running stack or gateway, and none answers."""


class RequestFailedError(HeadraceError, status=10, code="request_failed"):
    """The gateway or MLflow refused what was asked."""


class BadDocumentError(HeadraceError, status=11, code="bad_document"):
    """What a user wrote is no endpoint; the message has the path of the bad field."""


class RefusedError(HeadraceError, status=1, code="refused"):
    """The controller or the command itself refuses what was asked."""


class DifferentError(HeadraceError, status=1, code="different"):
    """``headrace diff`` found differences, and has shown them."""

    def __init__(self) -> None:
        super().__init__("")


class UndeliveredError(HeadraceError, status=12, code="undelivered"):
    """No controller took the decision, so it was withdrawn."""


class NotPromotedError(HeadraceError, status=13, code="not_promoted"):
    """The version that was waited for was rolled back, rejected, superseded, or expired."""


class TimedOutError(HeadraceError, status=14, code="timed_out"):
    """The time of a wait is over."""


class StoppedError(HeadraceError, status=130, code="stopped"):
    """The user stopped a command, or the stack while it was starting."""
