"""Checks that every port of the stack is free before anything is started.

It binds and closes; it never holds a port.
"""

import errno
import socket
from collections import Counter
from collections.abc import Mapping

from headrace.errors import PortTakenError
from headrace.stack.settings import LOOPBACK, Ports


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on ``host:port`` now.

    Raises:
        OSError: the port can't be used at all, for instance one below 1024 without the right.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a port whose last connections are in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def require_free(needed: Mapping[str, int], ports: Ports) -> None:
    """Refuses to go on unless every needed port is free and no two services share one.

    Raises:
        PortTakenError: with a sentence for every port that is taken.
    """
    shared = [port for port, count in Counter(needed.values()).items() if count > 1]
    if shared:
        names = [name for name, port in needed.items() if port in shared]
        flags = ", ".join(ports.flag(name) for name in names)
        raise PortTakenError(f"Two services are given the same port; give each its own: {flags}.")
    taken: list[str] = []
    for name, port in needed.items():
        label = name.replace("_", " ")
        try:
            if is_free(port):
                continue
        except OSError as error:
            taken.append(f"Port {port} for {label} can't be used ({error.strerror})")
        else:
            taken.append(f"Port {port} for {label} is taken by another program")
        taken[-1] += f": stop that program, or choose another port with {ports.flag(name)} PORT."
    if taken:
        raise PortTakenError("\n".join(taken))
