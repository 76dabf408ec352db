"""Measures the time of a processor that the event loop spends on reading a request.

Measured is each step of its task, from one wait to the next, until the pipeline has the request:
not the waits, and not what other requests do meanwhile. What becomes of it is not decided here.
"""

import types
from collections.abc import Callable, Coroutine, Generator
from time import thread_time
from typing import Any, TypeVar

from gateway.request_context import RequestContext

T = TypeVar("T")

# A whole body that is not larger and not compressed is read too soon to be measured: to read the
# clock of a thread takes as long as half a microsecond.
UNMEASURED_BYTES = 8192


@types.coroutine
def measured(
    work: Coroutine[Any, Any, T],
    context: RequestContext,
    spent: Callable[[RequestContext, float], None],
) -> Generator[Any, Any, T]:
    """Awaits the work, and passes the seconds of each step to ``spent``."""
    failure: BaseException | None = None
    while True:
        began = thread_time()
        try:
            waits_for = work.send(None) if failure is None else work.throw(failure)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            failure = None  # it refers to this frame
            spent(context, thread_time() - began)
        try:
            yield waits_for
        except BaseException as error:  # noqa: BLE001  it is passed on
            failure = error
        else:
            if context.handed_over:
                break
    rest: T = yield from work
    return rest
