"""``python -P -m preprocess.tokeniser_process.spawner [hidden]``: forks tokenisers' processes.

Its standard input is a Unix socket. For each socket that comes over it, it forks a process that
answers on that one: in some 30 ms, with all modules read and their memory shared, where a fresh
interpreter takes a second of the processor. It has one thread, and ends when its input does. So
does each process that it forked, when its own socket does: no signal to stop ends one before its
gateway has its answers.

``hidden``: no process of the same user can look into these ones.
"""

import gc
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress

from preprocess.model_code.sandbox import hide_from_others
from preprocess.tokeniser_process.messages import OpenReply, framed
from preprocess.tokeniser_process.serving import own_bytes, serve

_MOST_FILES = 1 << 16


def main() -> int:
    """The process; returns its exit status."""
    # Such signals come to all processes of a service at once, and the gateway answers what it was
    # asked before it stops.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if "hidden" in sys.argv[1:]:
        hide_from_others()
    # uvloop leaves a copy of the input open. Held by forks, it would hide that this process ended.
    os.closerange(3, _MOST_FILES)
    control = socket.socket(fileno=os.dup(0))
    gc.collect()
    gc.freeze()  # so that a collection in a fork does not copy these pages
    control.sendall(b"r")
    while True:
        word, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not word:
            return 0
        for fd in fds:
            with socket.socket(fileno=fd) as connection:
                try:
                    forked = os.fork()
                except OSError as error:  # too many processes, or too little memory
                    _refuse(connection, f"no process can be forked for a tokeniser: {error}")
                    continue
                if forked == 0:
                    control.close()
                    os.close(0)
                    _serve(connection)


def _serve(connection: socket.socket) -> None:
    status = 1
    try:
        with (
            suppress(BrokenPipeError, ConnectionResetError),
            connection.makefile("rb") as source,
            connection.makefile("wb") as target,
        ):
            serve(source, target, own_bytes, signal.alarm)
        status = 0
    except BaseException:  # noqa: BLE001 - nothing of the spawner's runs on in a fork
        traceback.print_exc()
    finally:
        os._exit(status)


def _refuse(connection: socket.socket, reason: str) -> None:
    with suppress(OSError):
        connection.sendall(framed(OpenReply(os.getpid(), error=reason)))


if __name__ == "__main__":
    sys.exit(main())
