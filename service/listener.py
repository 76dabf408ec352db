"""Sockets on which services listen. It never accepts a connection."""

import socket


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections.

    On ``::`` it takes those of IPv4 too, and only them if there is no IPv6: a chart need not know
    which addresses its cluster has.

    Raises:
        OSError: nothing can listen there.
    """
    both = host == "::" and socket.has_dualstack_ipv6()
    if host == "::" and not both:
        host = "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, dualstack_ipv6=both)
