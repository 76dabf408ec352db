"""Ctrl-C: until a command begins, it is one line and the end.

What is imported till then takes a moment, on a busy machine a long one. This module imports only
what Python itself has loaded already.
"""

import os
import signal
import sys

_STOPPED = 130  # as a shell says it of SIGINT


def guard_start() -> None:
    """Makes Ctrl-C end the program at once, unless its parent chose another way."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)


def begin_command() -> None:
    """Gives Ctrl-C back to Python: from now on there may be something to end in order."""
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop(*_: object) -> None:
    # Not by an exception: an import may turn it into another error, or swallow it.
    sys.stderr.write("Stopped.\n")
    sys.stderr.flush()
    os._exit(_STOPPED)
