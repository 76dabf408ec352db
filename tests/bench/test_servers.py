"""HTTP servers under one application: commands, arithmetic, and answers over ASGI and past it."""

import sys
from typing import Any

import pytest

from bench.servers import applications
from bench.servers.__main__ import APPLICATIONS, SERVERS, Turn, command, table, turn
from gateway.http.messages import Reply
from gateway.http.plain_post import PlainPost
from headrace.stack import install


@pytest.mark.parametrize("server", SERVERS)
def test_every_server_is_told_its_application_its_port_and_uvloop(server: str) -> None:
    for application in APPLICATIONS:
        words = command(server, application, 1234)
        assert words[:3] == [sys.executable, "-P", "-m"]
        assert any(word.endswith("1234") for word in words)
        assert any(word.split(":")[-1] == application for word in words)
        assert hasattr(applications, application)
        if words[3] != applications.__name__:  # which runs on uvloop by itself
            assert "uvloop" in words


def test_the_servers_are_in_their_lock_and_share_versions_with_all_else() -> None:
    def versions(lock: str) -> set[str]:
        text = install.lock_file(lock).read_text(encoding="utf-8")
        return {line.split()[0] for line in text.splitlines() if "==" in line}

    its, ours = versions("peers-servers"), versions("dev")
    named = {each.partition("==")[0] for each in its}
    assert {"granian", "hypercorn"} <= named
    shared = named & {each.partition("==")[0] for each in ours}
    assert shared
    assert {each for each in its if each.partition("==")[0] in shared} <= ours


def test_a_turn_counts_all_threads_and_names_the_busiest_alone() -> None:
    before = {(1, 1): 2.0, (1, 2): 5.0}
    after = {(1, 1): 2.3, (1, 2): 5.1, (1, 3): 0.1}  # the third began within the turn
    found = turn(before, after, requests=1000)
    assert found.all == pytest.approx(500)
    assert found.busiest == pytest.approx(300)


def test_ratios_are_to_the_first_server_within_a_turn() -> None:
    quiet, busy = Turn(10, 8), Turn(40, 30)
    lines = table({"one": [quiet, busy, quiet], "two": [Turn(20, 9), Turn(80, 50), Turn(20, 9)]})
    one, two = lines.splitlines()[-2:]
    assert one == "| one | 10.0 | 10.0 | 8.0 | 1.00 (1.00 to 1.00) |"
    assert two == "| two | 20.0 | 20.0 | 9.0 | 2.00 (2.00 to 2.00) |"


class Granian:
    """RSGI's protocol: gives a body, takes an answer."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.said: list[tuple[int, list[tuple[str, str]], bytes]] = []

    async def __call__(self) -> bytes:
        return self._body

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.said.append((status, headers, body))


async def no_stream(*_: object) -> None:
    raise AssertionError("it should come whole")


async def test_the_echo_answers_alike_in_every_form() -> None:
    sent: list[dict[str, Any]] = []
    parts = [{"body": b"a", "more_body": True}, {"body": b"b", "more_body": False}]

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await applications.ECHO({"type": "http"}, receive, send)
    assert not parts
    protocol = Granian(b"ab")
    await applications.ECHO.__rsgi__(None, protocol)
    _, handler = await applications.ECHO.ready()
    replies: list[Reply] = []
    post = PlainPost("/", {}, b"ab")
    await handler.answer_post(post, lambda reply, _: replies.append(reply), no_stream)
    (status, _, body), (reply,) = protocol.said[0], replies
    assert status == sent[0]["status"] == reply.status == 200
    assert body == sent[1]["body"] == reply.body
