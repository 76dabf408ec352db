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

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class MachineError(HeadraceError):
    """This machine lacks something that the local stack needs."""

    exit_status = 3
    code = "machine"


class ServicePortTakenError(HeadraceError):
    """Another program listens on a port that a service needs."""

    exit_status = 4
    code = "port_taken"


class HomeInUseError(HeadraceError):
    """Another ``headrace up`` runs on the same home folder."""

    exit_status = 5
    code = "home_in_use"


class BrokenHomeError(HeadraceError):
    """What is stored can't be read or written: a broken home, or an API server that refuses."""

    exit_status = 6
    code = "unreadable"


class DownloadError(HeadraceError):
    """A part of the stack could not be downloaded."""

    exit_status = 7
    code = "download"


class ServiceFailedError(HeadraceError):
    """A service ended, or did not become ready, while the stack started."""

    exit_status = 8
    code = "service_failed"


class NotRunningError(HeadraceError):
    """The command needs a running stack or gateway, and none answers."""

    exit_status = 9
    code = "not_running"


class RequestFailedError(HeadraceError):
    """The gateway or MLflow refused what was asked."""

    exit_status = 10
    code = "request_failed"


class BadDocumentError(HeadraceError):
    """What a user wrote is no endpoint; the message has the path of the bad field."""

    exit_status = 11
    code = "bad_document"


class RefusedError(HeadraceError):
    """The controller or the command itself refuses what was asked."""

    exit_status = 1
    code = "refused"


class DifferentError(HeadraceError):
    """``headrace diff`` found differences, and has shown them."""

    exit_status = 1
    code = "different"

    def __init__(self) -> None:
        super().__init__("")


class UndeliveredError(HeadraceError):
    """No controller took the decision, so it was withdrawn."""

    exit_status = 12
    code = "undelivered"


class NotPromotedError(HeadraceError):
    """The version that was waited for was rolled back, rejected, superseded, or expired."""

    exit_status = 13
    code = "not_promoted"


class TimedOutError(HeadraceError):
    """The time of a wait is over."""

    exit_status = 14
    code = "timed_out"


class StoppedError(HeadraceError):
    """The user stopped a command, or the stack while it was starting."""

    exit_status = 130
    code = "stopped"
