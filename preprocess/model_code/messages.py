"""What passes between a worker and the process that asks it: a length of 4 bytes, then msgpack.

Plain data alone, and each side checks what it reads against these types. So a worker that is in the
hands of the code it runs can answer wrongly, and no more.
"""

import struct

import msgspec

from preprocess.edits import Form
from preprocess.hooks import Observed

MOST_BYTES = 64 << 20  # of one message
# A worker's answer is read by the process that asks, for which every byte costs time.
MOST_GROWTH, MOST_ADDED = 4, 65_536  # characters of texts that it makes, times and more than came
MOST_DATA_BYTES = 256 << 10  # left for ``postprocess``
_MOST_FURTHER_BYTES = 1 << 20  # of what was observed, of errors and of the rest
_NOTHING = msgspec.Raw(msgspec.msgpack.encode({}))
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

    ``left``: how many values may be observed. ``data`` is msgpack, which only workers read. The
    rest is as in ``preprocess.hooks.State``.
    """

    number: int
    endpoint: str
    request_id: str
    texts: list[str]
    pairs: list[str] | None = None
    version: str = ""
    labels: list[str] = []
    data: msgspec.Raw = _NOTHING
    left: int = 0
    answers: Answers | None = None


class Done(msgspec.Struct, frozen=True):
    """What came of a task.

    ``error``: what the code raised, or what is wrong with what it returned, in a sentence, and
    ``kind`` the error's class. ``texts`` and ``pairs`` are what ``preprocess`` made; ``values``
    what ``postprocess`` made, None if it left them.
    """

    number: int
    error: str = ""
    kind: str = ""
    texts: list[str] = []
    pairs: list[str] | None = None
    data: msgspec.Raw = _NOTHING
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


def longest_answer(task: Task) -> int:
    """The most bytes of an answer to a task."""
    characters = sum(map(len, task.texts)) + sum(map(len, task.pairs or ()))
    values = 0 if task.answers is None else len(task.answers.values)
    made = 4 * (MOST_GROWTH * characters + MOST_ADDED)  # bytes of a character at most
    # A text has a length beside its characters.
    lengths = 8 * (len(task.texts) + len(task.pairs or ()))
    return made + lengths + values + MOST_DATA_BYTES + _MOST_FURTHER_BYTES
