"""Checks that every port of the stack is free before anything is started.

It binds and closes; it never holds a port.
"""

import errno
import socket
from collections import Counter
from collections.abc import Callable, Mapping

from headrace.errors import ServicePortTakenError
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


def require_free(
    needed: Mapping[str, int], ports: Ports, listens_on: Callable[[str], str] = lambda _: LOOPBACK
) -> None:
    """Refuses to go on unless every needed port is free and no two services share one.

    Raises:
        PortTakenError: with a sentence for every port that is taken.
    """
    shared = [port for port, count in Counter(needed.values()).items() if count > 1]
    if shared:
        names = [name for name, port in needed.items() if port in shared]
        flags = ", ".join(ports.flag(name) for name in names)
        raise ServicePortTakenError(
            f"Two services are given the same port; give each its own: {flags}."
        )
    taken: list[str] = []
    for name, port in needed.items():
        label = name.replace("_", " ")
        try:
            if is_free(port, listens_on(name)):
                continue
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise ServicePortTakenError(
                    f"{listens_on(name)} is no address of this machine: name one of its own with "
                    "--listen, or 0.0.0.0 for all of them."
                ) from None
            taken.append(f"Port {port} for {label} can't be used ({error.strerror})")
        else:
            taken.append(f"Port {port} for {label} is taken by another program")
        taken[-1] += f": stop that program, or choose another port with {ports.flag(name)} PORT."
    if taken:
        raise ServicePortTakenError("\n".join(taken))
