"""Does in a thread what a large answer of an engine would hold the event loop for.

Batches in flight bound how much waits for it. It does nothing for callers' own bodies, which have
threads that bound what each of them may ask (``gateway.http.large_work``).
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# Numbers that are looked at where they are, some times over, within a millisecond.
BATCH_INLINE_NUMBERS = 256 * 1024
BATCH_INLINE_BYTES = 4 * BATCH_INLINE_NUMBERS

# One, as answers come one after the other. It is started with the first large one.
_thread = ThreadPoolExecutor(1, thread_name_prefix="large-answers")


async def beside(work: Callable[[], T]) -> T:
    """What work gives, which is done in the thread; raises what it raises."""
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
