"""Has gRPC's library for asyncio free what the operations of a call took, however they end.

grpcio hands a call's operations to its core in batches. It frees a batch (80 bytes an operation,
and a message that has just arrived, whole) only if it succeeds and somebody still awaits it, not
if the caller has gone or a deadline has passed meanwhile. A client that hangs up again and again so
fills a server's memory (https://github.com/grpc/grpc/issues/43360, seen in 1.85.1).

Here the library's own function always sees its batch succeed, as soon as the core is done with it,
and so frees it; what became of it in truth is told to who awaits it. This does not touch calls in
any other way, and does nothing if the library no longer has that function. A server also logs a
batch that fails as an error, with its traceback, if it learns of that before it learns that the
caller has gone; such lines are left out.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from functools import cache
from typing import Any

from grpc._cython import cygrpc

_FUNCTION = "execute_batch"
_Batch = Coroutine[Any, Any, None]
# Of a call, a tuple of operations, and the event loop or what stands for it.
_Begin = Callable[[Any, tuple[Any, ...], Any], _Batch]


class _Completion:
    """What a batch takes for its event loop, and for the future that the core completes.

    The core's completion resumes the batch at once, so that it runs to its end whether or not it is
    still awaited.
    """

    __slots__ = ("_batch", "_loop", "_outcome")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._batch: _Batch | None = None
        self._outcome: asyncio.Future[None] = loop.create_future()

    def begin(self, batch: _Batch) -> "asyncio.Future[None]":
        """Hands the batch to the core; raises what the library says if the core refuses it."""
        batch.send(None)
        self._batch = batch
        return self._outcome

    def create_future(self) -> "_Completion":
        """The loop's method."""
        return self

    def call_soon_threadsafe(self, callback: Callable[..., object], *arguments: object) -> None:
        """The loop's method, by which the library passes a completion on to another loop."""
        if asyncio.get_running_loop() is self._loop:
            callback(*arguments)
        else:
            self._loop.call_soon_threadsafe(callback, *arguments)

    def __await__(self) -> Iterator[None]:
        """The future's method; the batch stays here until the core has completed it."""
        yield

    def cancelled(self) -> bool:
        """The future's method."""
        return False

    def set_result(self, _: None) -> None:
        """The future's method."""
        self._end(None)

    def set_exception(self, failure: BaseException) -> None:
        """The future's method."""
        self._end(failure)

    def _end(self, failure: BaseException | None) -> None:
        batch, self._batch = self._batch, None
        if batch is None:
            return
        try:
            batch.send(None)
        except StopIteration:
            pass
        except Exception as error:  # noqa: BLE001 - told to who awaits the batch
            failure = failure or error
        if self._outcome.done():
            return  # nobody awaits it any more
        if failure is None:
            self._outcome.set_result(None)
        else:
            self._outcome.set_exception(failure)


def _begin_batch(
    begin: _Begin,
    call: Any,  # noqa: ANN401
    operations: tuple[Any, ...],
    loop: asyncio.AbstractEventLoop,
) -> "asyncio.Future[None]":
    completion = _Completion(loop)
    return completion.begin(begin(call, operations, completion))


def freeing(begin: _Begin) -> _Begin:
    """The library's ``execute_batch``, made to free each batch that the core is done with."""

    async def execute_batch(call: Any, operations: tuple[Any, ...], loop: Any) -> None:  # noqa: ANN401
        outcome = _begin_batch(begin, call, operations, loop)
        try:
            await outcome
        finally:
            # A failure refers to this frame: with these it would be a circle, which stays until the
            # garbage collector comes, and the message with it.
            del outcome, operations

    return execute_batch


def _is_no_failed_batch(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not (isinstance(error, cygrpc.ExecuteBatchError) and _FUNCTION in str(error))


@cache
def free_batches() -> None:
    """Has every batch of this process freed from now on."""
    logging.getLogger(cygrpc.__name__).addFilter(_is_no_failed_batch)
    begin: _Begin | None = getattr(cygrpc, _FUNCTION, None)
    if begin is not None:
        setattr(cygrpc, _FUNCTION, freeing(begin))
