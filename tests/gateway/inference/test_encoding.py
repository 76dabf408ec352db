"""Where texts are encoded, and what becomes of a tokeniser that gives up on one."""

import asyncio
import threading
from types import SimpleNamespace
from typing import cast

import pytest
from gateway_world import call_of

from gateway.errors import DeadlineExceededError, InvalidInputError, OverloadedError
from gateway.inference import encoding
from gateway.inference.encoding import Encoding
from gateway.packages import ServedModel
from preprocess.encoder import EncodedTexts


class PanicException(BaseException):
    """As the tokenisers' library has it: derived from no other class."""


class Encoder:
    """Notes its thread, and waits or fails where told to."""

    def __init__(self, *own: str) -> None:
        self.own_expressions = own
        self.threads: list[str] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.failure: BaseException | None = None

    def encode_prompted(
        self, texts: list[str], pairs: list[str] | None, prompt_name: str | None
    ) -> EncodedTexts:
        del pairs, prompt_name
        self.threads.append(threading.current_thread().name)
        assert self.go_on.wait(60)
        if self.failure is not None:
            raise self.failure
        ids = [[len(text)] for text in texts]
        ones = [1] * len(texts)
        return EncodedTexts(ids, None, ones, ones, [0] * len(texts), [False] * len(texts))


def model_of(encoder: Encoder) -> ServedModel:
    return cast("ServedModel", SimpleNamespace(encoder=encoder, opened=encoder))


async def test_an_authors_expressions_never_run_on_the_event_loop_nor_before_others() -> None:
    encodings, own, long = Encoding(), Encoder("(a+)+$"), Encoder()
    own.go_on.clear()
    assert encodings.encode_inline(model_of(own), call_of("short")) is None
    held = asyncio.create_task(encodings.encode_in_thread(model_of(own), call_of("short")))
    await asyncio.sleep(0)
    await encodings.encode_in_thread(model_of(long), call_of("x" * 10_000))  # waits for nobody
    own.go_on.set()
    await held
    assert [name.rpartition("_")[0] for name in own.threads + long.threads] == [
        "tokenise-own",
        "tokenise",
    ]
    encodings.close()


async def test_a_call_waits_for_an_expression_until_its_deadline_alone() -> None:
    encodings, own = Encoding(), Encoder("(a+)+$")
    own.go_on.clear()
    with pytest.raises(DeadlineExceededError):
        await encodings.encode_in_thread(model_of(own), call_of("short", timeout=0.01))
    own.go_on.set()
    encodings.close()


async def test_what_waits_for_expressions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_MOST_OWN_CHARACTERS", 100)
    encodings, own = Encoding(), Encoder("(a+)+$")
    own.go_on.clear()
    held = asyncio.create_task(encodings.encode_in_thread(model_of(own), call_of("x" * 60)))
    await asyncio.sleep(0)
    with pytest.raises(OverloadedError):
        await encodings.encode_in_thread(model_of(own), call_of("x" * 60))
    own.go_on.set()
    await held
    encodings.close()


async def test_a_tokeniser_that_gives_up_is_the_callers_error_and_no_crash() -> None:
    encodings, own = Encoding(), Encoder("(a+)+$")
    own.failure = PanicException("retry-limit-in-match over")
    with pytest.raises(InvalidInputError, match="gives up on one of the texts"):
        await encodings.encode_in_thread(model_of(own), call_of("short"))
    own.own_expressions = ()
    with pytest.raises(InvalidInputError):
        encodings.encode_inline(model_of(own), call_of("short"))
    encodings.close()
