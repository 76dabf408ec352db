"""HTTP/2 from the client's side: whatever pieces bytes come in, and whatever windows allow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.http2 import connection as http2
from gateway.engine.http2.connection import (
    Connection,
    Exchange,
    Http2Error,
    decode,
    header,
    request_head,
)

DATA, HEADERS, RESET, SETTINGS, PUSH, PING, AWAY, UPDATE, MORE = 0, 1, 3, 4, 5, 6, 7, 8, 9
END_STREAM = ACK = 1
END_HEADERS, PADDED, PRIORITY = 4, 8, 0x20
HEAD = request_head(b"here:1", b"/a.B/C")
ANSWER = header(b":status", b"200") + header(b"content-type", b"application/grpc")
TRAILERS = header(b"grpc-status", b"0")


def frame(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags)) + number.to_bytes(4, "big")
    return head + payload


def setting(name: int, value: int) -> bytes:
    return name.to_bytes(2, "big") + value.to_bytes(4, "big")


def answer(number: int, body: bytes) -> bytes:
    return (
        frame(HEADERS, END_HEADERS, number, ANSWER)
        + frame(DATA, 0, number, body)
        + frame(HEADERS, END_HEADERS | END_STREAM, number, TRAILERS)
    )


def frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """(kind, flags, stream, payload) of each."""
    found = []
    while data:
        size = int.from_bytes(data[:3], "big")
        found.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]))
        data = data[9 + size :]
    return found


def opened(*settings: bytes) -> Connection:
    """A connection whose server has said its settings; nothing is left to be written."""
    connection = Connection()
    assert connection.take().startswith(http2.PREFACE)
    connection.receive(frame(SETTINGS, 0, 0, b"".join(settings)))
    assert frames(connection.take()) == [(SETTINGS, ACK, 0, b"")]
    return connection


def sent(connection: Connection, number: int) -> bytes:
    """What of a body is written now."""
    written = frames(connection.take())
    return b"".join(part for kind, _, stream, part in written if (kind, stream) == (DATA, number))


@given(
    bodies=st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 60), max_size=60),
)
def test_answers_are_the_same_in_whatever_pieces_they_come(
    bodies: list[bytes], cuts: list[int]
) -> None:
    connection = opened()
    exchanges = [Exchange(HEAD, b"question") for _ in bodies]
    for exchange in exchanges:
        connection.send(exchange)
    data = b"".join(answer(each.number, body) for each, body in zip(exchanges, bodies, strict=True))
    ended = []
    for cut in cuts:
        ended += connection.receive(data[:cut])
        data = data[cut:]
    ended += connection.receive(data)
    assert ended == exchanges
    assert [b"".join(each.parts) for each in ended] == bodies
    assert all(each.headers == {b":status": b"200", b"grpc-status": b"0"} for each in ended)
    assert connection.exchanges == 0


@given(
    bodies=st.lists(st.binary(max_size=200), min_size=1, max_size=3),
    windows=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), max_size=30),
    first=st.integers(0, 50),
)
def test_bodies_are_sent_whole_and_in_order_as_windows_open(
    bodies: list[bytes], windows: list[tuple[int, int]], first: int
) -> None:
    connection = opened(setting(4, first))
    exchanges = [Exchange(HEAD, body) for body in bodies]
    allowed = {2 * index + 1: first for index in range(len(bodies))}
    arrived = dict.fromkeys(allowed, b"")
    ends: list[int] = []

    def write() -> None:
        for kind, flags, number, part in frames(connection.take()):
            if kind == DATA:
                assert number not in ends
                arrived[number] += part
                if flags & END_STREAM:
                    ends.append(number)
        for number, part in arrived.items():
            assert len(part) <= allowed[number]

    for exchange in exchanges:
        connection.send(exchange)
    write()
    for which, more in windows:
        number = 2 * which + 1
        if number in allowed:
            allowed[number] += more
            connection.receive(frame(UPDATE, 0, number, more.to_bytes(4, "big")))
            write()
    for number in allowed:
        allowed[number] += 200
        connection.receive(frame(UPDATE, 0, number, (200).to_bytes(4, "big")))
        write()
    assert list(arrived.values()) == bodies
    assert sorted(ends) == sorted(allowed)


def test_the_connections_window_bounds_all_bodies_together_and_frames_their_pieces() -> None:
    connection = opened(setting(4, 1 << 20))
    first, second = Exchange(HEAD, b"a" * 60_000), Exchange(HEAD, b"b" * 60_000)
    connection.send(first)
    written = frames(connection.take())
    assert [len(part) for kind, _, _, part in written if kind == DATA] == [16_384] * 3 + [10_848]
    connection.send(second)
    assert len(sent(connection, 3)) == 5_535
    connection.receive(frame(UPDATE, 0, 0, (1 << 20).to_bytes(4, "big")))
    assert len(sent(connection, 3)) == 60_000 - 5_535


def test_a_change_of_the_first_window_holds_for_bodies_under_way() -> None:
    connection = opened(setting(4, 10))
    connection.send(Exchange(HEAD, b"x" * 30))
    assert len(sent(connection, 1)) == 10
    connection.receive(frame(SETTINGS, 0, 0, setting(4, 5)))
    connection.receive(frame(UPDATE, 0, 1, (5).to_bytes(4, "big")))
    assert sent(connection, 1) == b""  # 5 less, 5 more
    connection.receive(frame(SETTINGS, 0, 0, setting(4, 12)))
    assert len(sent(connection, 1)) == 7


def test_an_empty_body_ends_its_stream() -> None:
    connection = opened(setting(4, 0))
    connection.send(Exchange(HEAD, b""))
    assert frames(connection.take())[-1] == (DATA, END_STREAM, 1, b"")


def test_padding_priorities_and_headers_in_pieces_are_read() -> None:
    connection = opened()
    exchange = Exchange(HEAD, b"")
    connection.send(exchange)
    head = bytes((3,)) + bytes(5) + ANSWER[:7] + bytes(3)
    assert not connection.receive(frame(HEADERS, PADDED | PRIORITY, 1, head))
    connection.receive(frame(MORE, 0, 1, ANSWER[7:20]))
    connection.receive(frame(MORE, END_HEADERS, 1, ANSWER[20:]))
    connection.receive(frame(DATA, PADDED, 1, b"\x02body\0\0"))
    (ended,) = connection.receive(frame(HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS))
    assert ended is exchange
    assert exchange.parts == [b"body"]
    assert exchange.headers[b":status"] == b"200"


def test_what_comes_for_a_cancelled_exchange_is_passed_over() -> None:
    connection = opened()
    exchange, other = Exchange(HEAD, b"x"), Exchange(HEAD, b"y")
    connection.send(exchange)
    connection.send(other)
    connection.take()
    connection.cancel(exchange)
    connection.cancel(exchange)
    assert frames(connection.take()) == [(RESET, 0, 1, http2.CANCEL.to_bytes(4, "big"))]
    assert connection.receive(answer(1, b"late") + answer(3, b"good")) == [other]
    assert other.parts == [b"good"]


def test_of_a_cancelled_body_no_more_is_sent() -> None:
    connection = opened(setting(4, 2))
    exchange = Exchange(HEAD, b"long question")
    connection.send(exchange)
    connection.cancel(exchange)
    connection.take()
    connection.receive(frame(SETTINGS, 0, 0, setting(4, 100)))
    assert sent(connection, 1) == b""


def test_a_connection_whose_numbers_run_out_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "_LAST_STREAM", 3)
    connection = opened()
    connection.send(Exchange(HEAD, b""))
    connection.send(Exchange(HEAD, b""))
    assert connection.leaving


def test_an_answer_before_all_was_sent_ends_the_sending() -> None:
    connection = opened(setting(4, 2))
    exchange = Exchange(HEAD, b"long question")
    connection.send(exchange)
    connection.take()
    trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, header(b"grpc-status", b"8"))
    assert connection.receive(trailers) == [exchange]
    assert [kind for kind, *_ in frames(connection.take())] == [RESET]
    connection.receive(frame(UPDATE, 0, 1, (99).to_bytes(4, "big")))
    assert connection.take() == b""


def test_a_server_that_leaves_answers_what_it_took_and_refuses_the_rest() -> None:
    connection = opened()
    first, second = Exchange(HEAD, b""), Exchange(HEAD, b"")
    connection.send(first)
    connection.send(second)
    last = (1).to_bytes(4, "big") + bytes(4)
    assert connection.receive(frame(AWAY, 0, 0, last)) == [second]
    assert second.reset == http2.REFUSED_STREAM
    assert connection.leaving
    assert connection.receive(answer(1, b"a")) == [first]
    assert first.reset is None


def test_a_ping_is_answered_and_a_reset_ends_its_exchange() -> None:
    connection = opened()
    exchange = Exchange(HEAD, b"")
    connection.send(exchange)
    connection.take()
    connection.receive(frame(PING, 0, 0, b"12345678"))
    assert frames(connection.take()) == [(PING, ACK, 0, b"12345678")]
    assert connection.receive(frame(PING, ACK, 0, b"headrace")) == []
    assert connection.receive(frame(RESET, 0, 1, (2).to_bytes(4, "big"))) == [exchange]
    assert exchange.reset == 2


def test_the_server_bounds_exchanges_at_once() -> None:
    connection = opened(setting(3, 1))
    connection.send(Exchange(HEAD, b""))
    assert not connection.room
    connection.receive(answer(1, b""))
    assert connection.room


def test_the_server_gets_room_to_send_more() -> None:
    connection = opened()
    connection.send(Exchange(HEAD, b""))
    connection.take()
    part = frame(DATA, 0, 1, bytes(1 << 18))
    for _ in range(257):
        connection.receive(part)
    (update,) = frames(connection.take())
    assert update[:3] == (UPDATE, 0, 0)
    assert int.from_bytes(update[3], "big") == 257 << 18


@pytest.mark.parametrize(
    "data",
    [
        frame(PUSH, END_HEADERS, 1, bytes(4)),
        frame(MORE, END_HEADERS, 1, ANSWER),
        frame(HEADERS, 0, 1, ANSWER) + frame(DATA, 0, 1, b"x"),
        frame(HEADERS, 0, 1, ANSWER) + frame(MORE, 0, 3, ANSWER),
        frame(HEADERS, 0, 1) + 5 * frame(MORE, 0, 1, bytes(1 << 14)),
        frame(HEADERS, 0, 1) + 65 * frame(MORE, 0, 1),
        frame(HEADERS, 0, 1, bytes(1 << 17)) + frame(MORE, END_HEADERS, 1),
        frame(DATA, PADDED, 1, b"\x05abc"),
        frame(DATA, PADDED, 1),
        frame(SETTINGS, 0, 0, setting(4, 1 << 31)),
        b"\xff\xff\xff" + bytes(6),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        frame(HEADERS, END_HEADERS, 1, b"\xbe"),  # the first header of a table
        frame(HEADERS, END_HEADERS, 1, ANSWER[:-1]),
        frame(HEADERS, END_HEADERS, 1, b"\x7f\xff\xff\xff\xff\xff\xff\x01"),
    ],
)
def test_what_no_server_may_do_ends_the_connection(data: bytes) -> None:
    connection = opened()
    connection.send(Exchange(HEAD, b""))
    with pytest.raises(Http2Error):
        connection.receive(data)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    connection = opened()
    connection.send(Exchange(HEAD, b""))
    try:
        connection.receive(data)
        connection.receive(frame(HEADERS, END_HEADERS, 1, data))
    except Http2Error:
        pass


# RFC 7541, appendix C: a response compressed with the Huffman code (C.6.1), and a header without.
COMPRESSED = bytes.fromhex(
    "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97"
    "c8e9ae82ae43d3"
)
PLAIN = bytes.fromhex("4803333032580770726976617465")


def test_headers_compressed_or_not_are_read() -> None:
    assert decode(COMPRESSED) == decode(PLAIN) == {b":status": b"302"}
    assert decode(b"\x88") == {b":status": b"200"}
    assert decode(b"\x20\x88") == {b":status": b"200"}  # a table of no size first


def test_trailers_that_a_proxy_compressed_are_read() -> None:
    # A table of no size, then status 5 and its message, names and values compressed.
    block = "2040889acac8b21234da8f816f40899acac8b5254207317f87a8e95253db549f"
    expected = {b"grpc-status": b"5", b"grpc-message": b"not found"}
    assert decode(bytes.fromhex(block)) == expected


@pytest.mark.parametrize(
    ("value", "compressed"),
    [
        (b"www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
        (b"no-cache", "a8eb10649cbf"),
        (b"Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
        (b"https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
    ],
)
def test_strings_of_the_rfc_are_read(value: bytes, compressed: str) -> None:
    octets = bytes.fromhex(compressed)
    block = header(b"grpc-message", b"")[:-1] + bytes((0x80 | len(octets),)) + octets
    assert decode(block) == {b"grpc-message": value}


@pytest.mark.parametrize(
    "octets", [b"\x00", b"\xff\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff"]
)
def test_a_string_that_ends_within_a_code_is_none(octets: bytes) -> None:
    block = header(b"grpc-message", b"")[:-1] + bytes((0x80 | len(octets),)) + octets
    with pytest.raises(Http2Error):
        decode(block)


def test_a_request_names_the_scheme_of_its_connection() -> None:
    assert b"\x86" in HEAD  # of the static table: :scheme http, and https
    assert b"\x87" in request_head(b"here:1", b"/a.B/C", over_tls=True)


def test_long_names_are_sent_whole() -> None:
    name = b"a" * 300
    assert decode(header(b"grpc-message", name)) == {b"grpc-message": name}
    assert name in request_head(name, b"/a.B/C")
