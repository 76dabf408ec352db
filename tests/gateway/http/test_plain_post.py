"""What is recognised without the parser is what the parser reads, and nothing irregular is."""

from typing import Any

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.plain_post import PlainPost, plain_head

BODY = b'{"inputs": "a good film"}'


def post(*lines: bytes, path: bytes = b"/endpoints/a", body: bytes = BODY) -> bytes:
    """A request with these lines of headers and the length of its body."""
    length = b"Content-Length: %d" % len(body)
    return b"\r\n".join([b"POST %b HTTP/1.1" % path, *lines, length, b"", body])


def plain_post(data: bytes) -> PlainPost | None:
    """The request if these are all its bytes and it is plain."""
    head = plain_head(data)
    return head.post(data) if head is not None and head.end == len(data) else None


class Parsed:
    """What the parser calls with what it reads."""

    def __init__(self) -> None:
        self.url, self.body, self.ends = b"", b"", 0
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        """A request's end."""
        self.ends += 1


def parsed(data: bytes) -> tuple[Parsed, Any]:
    """What the parser makes of it."""
    seen = Parsed()
    parser = httptools.HttpRequestParser(seen)
    parser.feed_data(data)
    return seen, parser


def test_a_plain_post_is_recognised() -> None:
    whole = plain_post(post(b"Host: x:1", b"Accept: */*", b"Connection: keep-alive"))
    assert whole is not None
    assert whole.path == "/endpoints/a"
    assert whole.headers[b"host"] == b"x:1"


@pytest.mark.parametrize(
    "data",
    [
        post(b"Host: x")[:-1],
        post(b"Host: x") + b"P",
        post(b"Host: x") + post(b"Host: x"),
        post(b"Host: x").replace(b"HTTP/1.1", b"HTTP/1.0"),
        post(b"Host: x").replace(b"POST", b"PUT"),
        post(b"Host: x", path=b"/endpoints/%61"),
        post(b"Host: x", path=b"/endpoints/a?b=c"),
        post(b"Host: x", path=b"http://x/endpoints/a"),
        post(b"Accept: */*"),
        post(b"Host: x", b"Host: y"),
        post(b"Host: x", b"Content-Length: 3"),
        post(b"Host: x", b"Transfer-Encoding: chunked"),
        post(b"Host: x", b"Expect: 100-continue"),
        post(b"Host: x", b"Connection: close"),
        post(b"Host: x", b"Connection: upgrade", b"Upgrade: h2c"),
        post(b"Host : x"),
        post(b"Host: x", b" folded"),
        post(b"Host: x\n"),
        post(b"Host: \x00"),
        post(b"Host: \xff"),
        post(b"Host: x", body=b""),
        b"\r\n" + post(b"Host: x"),
        b"POST /endpoints/a HTTP/1.1\r\nHost: x\r\n\r\n",
        b"",
    ],
)
def test_what_is_irregular_is_left_to_the_parser(data: bytes) -> None:
    assert plain_post(data) is None


@pytest.mark.parametrize("missing", range(1, len(BODY) + 1))
def test_the_headers_of_a_post_tell_how_much_is_to_come(missing: int) -> None:
    data = post(b"Host: x")
    head = plain_head(data[:-missing])
    assert head is not None
    assert head.end == len(data)
    assert head.post(data).body == BODY


PIECES = st.sampled_from(
    [
        b"POST", b"GET", b" ", b"/", b"/endpoints/a", b"HTTP/1.1", b"HTTP/1.0", b"\r\n", b"\n",
        b"\r", b":", b": ", b"Host", b"X-Key", b"a b", b"\t", b"Content-Length", b"3", b"03",
        b"Connection", b"keep-alive", b"close", b"Transfer-Encoding", b"chunked", b"abc",
    ]
)  # fmt: skip
MOSTLY_GOOD = st.builds(
    lambda lines, body, cut, more: (post(*lines, body=body) + more)[cut:],
    st.lists(st.lists(PIECES, max_size=5).map(b"".join), max_size=4),
    st.binary(max_size=20),
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([b"", b"", b"\r\n", b"P"]),
)


@given(MOSTLY_GOOD | st.lists(PIECES, max_size=30).map(b"".join))
def test_what_is_recognised_is_what_the_parser_reads(data: bytes) -> None:
    whole = plain_post(data)
    if whole is None:
        return
    seen, parser = parsed(data)
    assert seen.ends == 1
    assert seen.url.decode() == whole.path
    assert seen.headers == list(whole.headers.items())
    assert seen.body == data[len(data) - int(whole.headers[b"content-length"]) :]
    assert parser.get_method() == b"POST"
    assert parser.get_http_version() == "1.1"
    assert parser.should_keep_alive()
    assert not parser.should_upgrade()
