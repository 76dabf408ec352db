"""How long an answer may take. What drips over real sockets is tested with who asks.

The API server in ``cluster/test_client.py``, package stores in
``tests/registry/packages/test_faults_before_store.py``.
"""

import io
import socket
import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import write
from dripping import CHUNKS, HEAD, LONG_HEAD, dripping, plain, slowly_taking

from service import replies
from service.timed_answers import AnswerTime, SlowAnswerError


class Clock:
    """Moved by a test."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_answer_has_its_time_as_a_whole_whatever_came() -> None:
    clock = Clock()
    time = AnswerTime(10.0, clock=clock)
    clock.now = 9.0
    time.note(1 << 30)
    assert time.seconds_left() == 1.0
    clock.now = 10.0
    with pytest.raises(SlowAnswerError, match="no whole answer came within 10 s"):
        time.seconds_left()


def test_a_large_answer_goes_on_while_enough_of_it_comes() -> None:
    clock = Clock()
    time = AnswerTime(10.0, 1_000, clock)
    for _ in range(5):
        clock.now += 9.0
        time.note(600)
        time.note(400)
        assert time.seconds_left() == 10.0
    time.note(999)
    clock.now += 10.0
    with pytest.raises(SlowAnswerError, match="less than 1,000 bytes came within 10 s"):
        time.seconds_left()


def over_tls(
    folder: Path,
) -> tuple[Callable[[socket.socket], socket.socket], ssl.SSLContext]:
    """How a server secures its connections, and whom its callers trust."""
    certificate, key = write(folder, "drips")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate, key)

    def secured(connection: socket.socket) -> socket.socket:
        return served.wrap_socket(connection, server_side=True)

    return secured, ssl.create_default_context(cafile=certificate)


@pytest.mark.parametrize("head", [LONG_HEAD, HEAD, CHUNKS], ids=["head", "body", "chunk"])
def test_a_reply_over_tls_that_drips_is_given_up(tmp_path: Path, head: bytes) -> None:
    secured, trust = over_tls(tmp_path)
    with dripping(head, secured) as port:
        request = urllib.request.Request(f"https://127.0.0.1:{port}/")
        with (
            pytest.raises(SlowAnswerError, match="came within 1 s"),
            replies.ask(request, 1.0, trust) as reply,
        ):
            replies.read(reply)


@pytest.mark.parametrize("is_file", [True, False], ids=["file", "bytes"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_what_a_server_takes_too_slowly_is_given_up(
    tmp_path: Path, scheme: str, is_file: bool
) -> None:
    secured, trust = over_tls(tmp_path)
    body = bytes(32 << 20)  # more than the buffers of both sockets
    data = io.BytesIO(body) if is_file else body
    with slowly_taking(secured if scheme == "https" else plain) as port:
        request = urllib.request.Request(f"{scheme}://127.0.0.1:{port}/", data, method="PUT")
        request.add_header("Content-Length", str(len(body)))
        with (
            pytest.raises(OSError, match="less than 262,144 bytes were taken within 1 s"),
            replies.ask(request, 1.0, trust),
        ):
            raise AssertionError("it was taken")
