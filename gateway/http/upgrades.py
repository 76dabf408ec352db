"""Requests that offer to go on in HTTP/2, as Java's own client sends each one over plain HTTP.

A server may ignore such an offer (RFC 7540, section 3.2). httptools' parser does not: it takes a
request that has one for one without a body, and what follows for another protocol. So the request
is read again by another parser, without its offer. Other offers, of WebSockets for example, are
left as they are: the answer to such a request is the last of its connection.
"""

import httptools

from gateway.http.messages import Headers

_OPTIONS = (b"upgrade", b"http2-settings")


def new_parser(protocol: object) -> httptools.HttpRequestParser:
    """A parser as uvicorn sets up its own."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def head_without_offer(method: bytes, url: bytes, headers: Headers) -> bytes | None:
    """The head of a request of HTTP/1.1 without its offer; None if it makes no offer of HTTP/2."""
    if [value.lower() for name, value in headers if name == b"upgrade"] != [b"h2c"]:
        return None
    if [name for name, _ in headers].count(b"http2-settings") != 1:
        return None
    options = b",".join(value for name, value in headers if name == b"connection").split(b",")
    others = [each.strip() for each in options if each.strip().lower() not in _OPTIONS]
    if len(others) + len(_OPTIONS) != len(options):
        return None
    kept = [pair for pair in headers if pair[0] not in (*_OPTIONS, b"connection")]
    if others:
        kept.append((b"connection", b", ".join(others)))
    if any(b"\r" in value or b"\n" in value for _, value in kept):
        return None
    lines = [b"%b %b HTTP/1.1" % (method, url), *(b"%b: %b" % pair for pair in kept)]
    return b"\r\n".join((*lines, b"", b""))
