"""Inside the process of a tokeniser: opens it and answers one question after another.

It reads the one file that it is told to, and ends when nobody can ask any more.
"""

import ctypes
import hashlib
import math
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import BinaryIO

import msgspec

from contracts.manifest import TokenizerSpec
from contracts.tasks import Task
from preprocess.encoder import TextEncoder
from preprocess.errors import InvalidTextError, TokenizerFileError, UnknownPromptError
from preprocess.expressions import is_panic
from preprocess.table import Encoder
from preprocess.tasks import HEADS
from preprocess.tokeniser_process.messages import (
    LENGTH,
    Answer,
    Encode,
    FaultReply,
    Open,
    OpenReply,
    Question,
    ReadTexts,
    ReadTokens,
    RefusalReply,
    Rows,
    Texts,
    TokenLists,
    framed,
    rows_of,
)
from preprocess.tokens import texts_of, tokens_of
from preprocess.unknown import unknown_words_of

GIVES_UP = "This model's tokeniser gives up on one of the texts."
_LOOK_SECONDS = 1.0  # between two looks at its memory, which its words take as they come
# Longer than the gateway waits for either: past it nobody does.
_MOST_SECONDS = 90
_SELF = Path("/proc/self")
_questions = msgspec.msgpack.Decoder(Question)


def serve(
    source: BinaryIO,
    target: BinaryIO,
    measure: Callable[[], int],
    timer: Callable[[int], object] = lambda _: None,
) -> None:
    """Opens what the first message names, and answers until the source ends.

    Args:
        source: of messages.
        target: of answers.
        measure: bytes of memory that this tokeniser takes.
        timer: ends the process after this many seconds, whatever it is at; 0: it does not.
    """
    first = _frame(source)
    if first is None:
        return
    timer(_MOST_SECONDS)
    try:
        encoder = opened(msgspec.msgpack.decode(first, type=Open))
    except (OSError, ValueError, TokenizerFileError) as error:
        _write(target, OpenReply(os.getpid(), error=str(error)))
        return
    own = measure()
    timer(0)
    _write(target, OpenReply(os.getpid(), own, encoder.own_expressions))
    looked = -math.inf  # the first question teaches it most
    while (frame := _frame(source)) is not None:
        timer(_MOST_SECONDS)
        said = answer(encoder, _questions.decode(frame))
        timer(0)
        now = monotonic()
        if now - looked >= _LOOK_SECONDS:
            own, looked = measure(), now
        _write(target, Answer(said, own))


def opened(message: Open) -> Encoder:
    """The encoder; raises ``OSError``, ``ValueError`` or ``TokenizerFileError``."""
    content = Path(message.path).read_bytes()
    if hashlib.sha256(content).hexdigest() != message.sha256:
        raise TokenizerFileError(f"{message.path} is not the file that its manifest lists")
    spec = TokenizerSpec.model_validate_json(message.spec)
    return HEADS[Task(message.task)].encoder(content, spec)


def answer(
    encoder: Encoder, question: Question
) -> Rows | TokenLists | Texts | RefusalReply | FaultReply:
    """What comes of one question."""
    try:
        return _answer(encoder, question)
    except (InvalidTextError, UnknownPromptError) as error:
        return RefusalReply(f"{error}.")
    except BaseException as error:  # noqa: BLE001 - the library's panics derive from nothing else
        return RefusalReply(GIVES_UP) if is_panic(error) else FaultReply(repr(error))


def _answer(encoder: Encoder, question: Question) -> Rows | TokenLists | Texts:
    if isinstance(question, Encode):
        encoded = encoder.encode_prompted(question.texts, question.pairs, question.prompt_name)
        unknown = None
        if question.wants_unknown:
            unknown = unknown_words_of(encoder, question.texts, question.pairs, encoded)
        return rows_of(encoded, unknown)
    if not isinstance(encoder, TextEncoder):
        raise TypeError("this model reads no texts")
    if isinstance(question, ReadTokens):
        texts = encoder.prompted(question.texts, question.prompt_name)
        return TokenLists(tokens_of(encoder.tokenizer, texts, special=question.special))
    if isinstance(question, ReadTexts):
        return Texts(texts_of(encoder.tokenizer, question.ids, skip_special=question.skip_special))
    raise TypeError(f"no question: {question}")


def own_bytes(folder: Path = _SELF) -> int:
    """Memory that this process shares with no other, from the kernel.

    What parsing took is given back first: of a BPE with 128,000 merges, half of the process. Where
    the kernel does not say what is shared (gVisor), modules that all processes share count too.
    """
    with suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).malloc_trim(0)
    for name in ("smaps_rollup", "smaps"):
        with suppress(OSError):
            lines = (folder / name).read_text().splitlines()
            own = sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
            if own:
                return own * 1024
    with suppress(OSError):
        return int((folder / "statm").read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _frame(source: BinaryIO) -> bytes | None:
    length = source.read(LENGTH.size)
    if len(length) < LENGTH.size:
        return None
    return source.read(LENGTH.unpack(length)[0])


def _write(target: BinaryIO, message: OpenReply | Answer) -> None:
    target.write(framed(message))
    target.flush()
