"""Where the programs begin: until a command does, Ctrl-C is one line and the end.

What is imported till then takes a moment, on a busy machine many.

Nothing is imported here but what Python itself has loaded already.
"""

import os
import signal
import sys

_STOPPED = 130  # as a shell says it of SIGINT


def headrace() -> None:
    """The program ``headrace``."""
    _guard()
    from headrace.cli import app  # noqa: PLC0415

    app(prog_name="headrace")


def kubectl() -> None:
    """The program ``kubectl-headrace``."""
    _guard()
    from headrace.cli import kubectl as begin  # noqa: PLC0415

    begin()


def command_begins() -> None:
    """From now on there may be something to end in order: Ctrl-C is Python's again."""
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _guard() -> None:
    # Unless whoever started us chose otherwise.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)


def _stop(*_: object) -> None:
    # Not by an exception: an import may turn it into another error, or swallow it.
    sys.stderr.write("Stopped.\n")
    sys.stderr.flush()
    os._exit(_STOPPED)
