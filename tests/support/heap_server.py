"""A process with both fronts that tells where gRPC listens, and what its heap holds at each line.

python -P -m heap_server [--as-the-library-has-it]
"""

import asyncio
import ctypes
import gc
import sys
import time

from front_fakes import FakeMetrics
from front_server import Served, serving
from grpc._cython import cygrpc

# The heap as glibc counts it is exact with these: no chunks kept for a thread, one arena.
ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0",
}
_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _MallInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def heap_bytes() -> int:
    """What is allocated and not freed, Python's small objects excepted."""
    library = ctypes.CDLL("libc.so.6")
    library.mallinfo2.restype = _MallInfo
    found = library.mallinfo2()
    return int(found.uordblks + found.hblkhd)


def until_idle(loop: asyncio.AbstractEventLoop, tasks: int) -> None:
    """Waits until the calls of all who have gone are over."""
    while len(asyncio.all_tasks(loop)) > tasks:
        time.sleep(0.01)  # a thread of its own looks on


def main() -> None:
    library = cygrpc.execute_batch
    gc.disable()  # what only it would free is held, too
    with serving(Served(metrics=FakeMetrics(keep=False))) as served:
        if sys.argv[1:] == ["--as-the-library-has-it"]:
            cygrpc.execute_batch = library
        tasks = len(asyncio.all_tasks(served.loop))
        print(served.grpc_port, flush=True)
        for _ in sys.stdin:
            until_idle(served.loop, tasks)
            print(heap_bytes(), flush=True)


if __name__ == "__main__":
    main()
