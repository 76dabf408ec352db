"""Has the C library give freed memory back to the operating system.

From the first large block that is freed on, glibc takes blocks as large from the heap, 32 MiB at
most. Small blocks that outlive large ones then pin what lies between them: a gateway whose callers
send large bodies grew by a third in ten minutes while it held nothing. With a fixed threshold it
stays as it is. Fewer areas of the heap than threads would save more, but threads then wait for each
other: overloaded gateways lost connections.

It changes nothing with another C library, or for what ``MALLOC_*`` variables say.
"""

import ctypes
from collections.abc import Mapping

# Of mallopt(3).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# A block that is mapped by itself costs a fault a page: few requests have one of a mebibyte.
MAPPED_FROM_BYTES = 1024 * 1024
_TRIMMED_FROM_BYTES = 8 * 1024 * 1024
_OPTIONS = (
    ("MALLOC_MMAP_THRESHOLD_", _M_MMAP_THRESHOLD, MAPPED_FROM_BYTES),
    ("MALLOC_TRIM_THRESHOLD_", _M_TRIM_THRESHOLD, _TRIMMED_FROM_BYTES),
)


def return_freed_memory(environment: Mapping[str, str]) -> None:
    """Sets the allocator's options, but what ``MALLOC_*`` say; before the process has threads."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for variable, option, value in _OPTIONS:
        if variable not in environment:
            mallopt(option, value)
