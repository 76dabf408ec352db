"""Ports of 127.0.0.1 that are this test process's alone, for servers that are told theirs.

A port that was free a moment ago may be taken once its server binds it, or is started again after a
kill: by another process of tests, or by any outgoing connection, whose port the kernel picks. So
these lie below the ports that the kernel picks from, and a process owns a block of them for as long
as it holds the block's first.
"""

import atexit
import functools
import itertools
import socket
from collections.abc import Iterator
from pathlib import Path

FIRST_PORT = 12_000
BLOCK = 250
KERNELS_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
KERNELS_FIRST = 32_768  # Linux' own default


def own_ports(count: int) -> list[int]:
    """The next ports of this process's block that nobody is bound to."""
    return list(itertools.islice(filter(_is_free, _ports()), count))


def own_row(count: int) -> list[int]:
    """As ``own_ports``, side by side: for what counts on from the ports that it is told."""
    while True:
        row = own_ports(count)
        if row[-1] - row[0] == count - 1:
            return row


@functools.cache
def _ports() -> Iterator[int]:
    """The block's ports, round and round: the ones used longest ago come first."""
    first = _take_block()
    return itertools.cycle(range(first + 1, first + BLOCK))


def _take_block() -> int:
    for first in range(FIRST_PORT, _kernels_first() - BLOCK, BLOCK):
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", first))
        except OSError:
            holder.close()
            continue
        atexit.register(holder.close)
        return first
    raise AssertionError("every block of ports is taken by another process of tests")


def _kernels_first() -> int:
    try:
        return int(KERNELS_RANGE.read_text(encoding="ascii").split()[0])
    except FileNotFoundError:
        return KERNELS_FIRST


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
