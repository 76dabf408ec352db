"""Which offers to go on in HTTP/2 are taken out of a head, and what stays of it."""

import pytest

from gateway.http.messages import Headers
from gateway.http.upgrades import head_without_offer

OFFER: Headers = [
    (b"connection", b"Upgrade, HTTP2-Settings"),
    (b"http2-settings", b"AAEAAEAA-_="),
    (b"upgrade", b"h2c"),
]
LENGTH = (b"content-length", b"2")


def test_a_head_is_the_same_without_its_offer() -> None:
    head = head_without_offer(b"POST", b"/a?b=%20c", [(b"host", b"x"), *OFFER, LENGTH])
    assert head == b"POST /a?b=%20c HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n"


def test_other_options_of_the_connection_stay() -> None:
    headers = [(b"connection", b"close, HTTP2-Settings ,Upgrade"), *OFFER[1:]]
    assert (
        head_without_offer(b"GET", b"/", headers) == b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n"
    )


@pytest.mark.parametrize(
    "headers",
    [
        [LENGTH],
        OFFER[:2],
        [OFFER[0], OFFER[2]],
        OFFER[1:],
        [*OFFER, OFFER[1]],
        [*OFFER, (b"upgrade", b"websocket")],
        [(b"connection", b"Upgrade"), *OFFER[1:]],
        [*OFFER[:2], (b"upgrade", b"websocket")],
        [*OFFER, (b"x-folded", b"a\r\n b")],
    ],
)
def test_what_is_no_such_offer_is_left_alone(headers: Headers) -> None:
    assert head_without_offer(b"POST", b"/", headers) is None
