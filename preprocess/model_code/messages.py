"""What passes between a worker and the process that asks it: a length of 4 bytes, then msgpack.

Plain data alone, and each side checks what it reads against these types. So a worker that is in the
hands of the code it runs can answer wrongly, and no more.
"""

import struct
from typing import Any

import msgspec

from preprocess.edits import Form
from preprocess.hooks import Observed

MOST_BYTES = 64 << 20  # of one message
LENGTH = struct.Struct("<I")


class Hello(msgspec.Struct, frozen=True):
    """A worker has started, or could not.

    ``parts``: which of ``preprocess`` and ``postprocess`` the code has. ``files_closed``,
    ``calls_refused``: see ``sandbox.close_off``. ``error``: why it can't work.
    """

    parts: list[str] = []
    files_closed: bool = False
    calls_refused: bool = False
    error: str = ""


class Answers(msgspec.Struct, frozen=True):
    """Answers that may be changed: little-endian float32 ``[rows, width]`` in their form."""

    form: Form
    values: bytes
    width: int


class Task(msgspec.Struct, frozen=True):
    """One call: of ``postprocess`` where there are ``answers``, else of ``preprocess``.

    ``left``: how many values may be observed. The rest is as in ``preprocess.hooks.State``.
    """

    number: int
    endpoint: str
    request_id: str
    texts: list[str]
    pairs: list[str] | None = None
    version: str = ""
    labels: list[str] = []
    data: dict[str, Any] = {}
    left: int = 0
    answers: Answers | None = None


class Done(msgspec.Struct, frozen=True):
    """What came of a task.

    ``error``: what the code raised, or what is wrong with what it returned, in a sentence, and
    ``kind`` the error's class. ``texts`` and ``pairs`` are what ``preprocess`` made; ``values``
    what ``postprocess`` made, None where it left them.
    """

    number: int
    error: str = ""
    kind: str = ""
    texts: list[str] = []
    pairs: list[str] | None = None
    data: dict[str, Any] = {}
    observed: Observed = {}
    values: bytes | None = None


def framed(message: Hello | Task | Done) -> bytes:
    """The bytes of a message.

    Raises:
        ValueError: it is too long.
        TypeError: it holds what is no plain data.
    """
    body = msgspec.msgpack.encode(message)
    if len(body) > MOST_BYTES:
        raise ValueError(f"{len(body)} bytes are more than the {MOST_BYTES} of a message")
    return LENGTH.pack(len(body)) + body
