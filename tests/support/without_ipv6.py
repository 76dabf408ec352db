"""Runs a program as on a machine whose kernel has no IPv6: it can make no such socket.

``python -P without_ipv6.py PROGRAM ARGUMENTS``. For x86-64 and ARM64.
"""

import ctypes
import errno
import platform
import runpy
import socket
import struct
import sys

_SOCKET = {"x86_64": 41, "aarch64": 198}
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _ARGUMENT_AT = 0, 16
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def refuse_ipv6() -> None:
    """From now on, for this process and those that it starts."""
    steps = (
        (_LOAD, 0, 0, _NUMBER_AT),
        (_EQUAL, 0, 3, _SOCKET[platform.machine()]),
        (_LOAD, 0, 0, _ARGUMENT_AT),
        (_EQUAL, 0, 1, socket.AF_INET6),
        (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = struct.pack("<H6xQ", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None)
    assert libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
    assert libc.prctl(_SECCOMP, _FILTER, program, 0, 0) == 0


if __name__ == "__main__":
    refuse_ipv6()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
