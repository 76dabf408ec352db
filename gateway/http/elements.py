"""Counts the elements of a JSON body before any object is made of it.

An empty array takes three bytes of a body, and of memory thirty times as many: what a body becomes
is known by its strings, arrays and objects, not by its length. Numbers and the characters of
strings become at most some ten times as large, and are bounded with the body. Nothing here checks
that a body is JSON; of one that is not, a count says nothing, and the parser refuses it.
"""

from time import sleep
from typing import NamedTuple

import numpy as np

# So much is looked at without a pause, some milliseconds' work.
_PIECE_BYTES = 64 * 1024
_COUNTED_BYTES = 256 * 1024
_QUOTE, _BACKSLASH, _BRACKET, _BRACE, _COMMA = map(np.uint8, b'"\\[{,')


class Elements(NamedTuple):
    """Of a body."""

    things: int  # strings (names of fields too), arrays and objects
    commas: int  # outside strings: no array, and no object, has more elements than these and one


def most_elements(body: bytes) -> Elements:
    """At least as many as ``elements`` finds; quickly, but too many if texts hold such characters.

    For a thread, if the body is large: numpy lets others run while it compares.
    """
    things = commas = 0
    characters = np.frombuffer(body, np.uint8)
    for start in range(0, len(body), _COUNTED_BYTES):
        piece = characters[start : start + _COUNTED_BYTES]
        quotes = piece == _QUOTE
        # A quote behind a backslash is in a string, or ends one: each string has at least one
        # other. Of one that a piece begins with, the backslash is not seen.
        escaped = quotes[1:] & (piece[:-1] == _BACKSLASH)
        found = map(np.count_nonzero, (quotes, piece == _BRACKET, piece == _BRACE))
        things += int(sum(found) - np.count_nonzero(escaped))
        commas += int(np.count_nonzero(piece == _COMMA))
    return Elements(things, commas)


def elements(body: bytes, most_things: int, most_commas: int) -> Elements:
    """What a body has, or more than ``most_things`` or ``most_commas`` as soon as there are more.

    For a thread: it pauses, so that the event loop runs meanwhile.
    """
    quotes = brackets = commas = 0
    inside = False  # a string that began in the piece before
    escapes = False  # the last backslash of the piece before, what comes next
    for start in range(0, len(body), _PIECE_BYTES):
        piece = body[start + escapes : start + _PIECE_BYTES]
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        escapes = backslashes % 2 == 1
        piece = piece[: len(piece) - escapes].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        outside = b"".join(parts[inside::2])
        quotes += len(parts) - 1
        inside ^= len(parts) % 2 == 0
        brackets += outside.count(b"[") + outside.count(b"{")
        commas += outside.count(b",")
        if quotes // 2 + brackets > most_things or commas > most_commas:
            break
        sleep(0)
    return Elements(quotes // 2 + brackets, commas)
