"""``service.allocator``: what was freed leaves the process."""

import subprocess
import sys

MEBIBYTE = 1024 * 1024
# Large blocks with small ones between them that stay; then the large ones are freed.
PROGRAM = """
import os, sys
from pathlib import Path
from service.allocator import return_freed_memory

if sys.argv[1] == "returned":
    return_freed_memory({})

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

for size in (8, 16, 24):
    block = bytearray(size * 1024 * 1024)
    del block  # glibc takes as large blocks from the heap from now on
before = resident()
large, small = [], []
for _ in range(8):
    large.append(b"x" * (16 * 1024 * 1024))
    small.append(b"x" * 4096)
del large
print(resident() - before)
"""


def grown(mode: str) -> int:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, mode], capture_output=True, text=True, check=True
    )
    return int(found.stdout)


def test_small_blocks_that_stay_do_not_keep_large_ones_that_were_freed() -> None:
    assert grown("returned") < 16 * MEBIBYTE
    assert grown("kept") > 24 * MEBIBYTE  # otherwise this program shows nothing
