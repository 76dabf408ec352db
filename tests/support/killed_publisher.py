"""``python -P killed_publisher.py``: operations on a store, each killed at a step.

Each line of the input is a JSON list ``[ROOT, SOURCE, WHAT, STEP, CUT]``, for which a process is
forked: so what they need is imported once. It publishes the package in SOURCE to ROOT, deletes it
there, or collects it, and ends by ``_exit`` before its STEP-th change of the file system. With CUT
the machine loses its power there: files that were written and not synced are empty afterwards. The
answer is a line with the process's exit status: 9, or 0 if it came to its end.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from registry_fakes import packed

from registry.packages import gc
from registry.packages.store import PackageStore

_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "shutil.copyfile"}


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            operate(*json.loads(line))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def operate(root: str, source: str, what: str, step: int, cut: bool) -> None:
    folder = Path(root)
    manifest = packed(Path(source))
    store = PackageStore(root)
    before = {path.stat().st_ino for path in folder.rglob("*")} if folder.exists() else set()
    synced: set[int] = set()
    real = os.fsync

    def fsync(fd: Any) -> None:
        real(fd)
        synced.add(os.fstat(fd).st_ino)

    os.fsync = fsync
    left = step

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal left
        writes = (
            event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if left <= 0 or not (event in _CHANGES or writes):
            return
        left -= 1
        if left == 0:
            if cut:
                lose(folder, before | synced)
            os._exit(9)

    sys.addaudithook(hook)
    if what == "publish":
        store.publish(Path(source), manifest)
    elif what == "delete":
        store.delete(manifest.package_id())
    else:
        other = packed(Path(source).with_name("other"), b"newer", "2")
        store.publish(Path(source).with_name("other"), other)
        gc.collect(store, (), keep=1)
    left = 0
    if cut:
        lose(folder, before | synced)


def lose(folder: Path, kept: set[int]) -> None:
    """Empties what no sync has brought to the disk."""
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_ino not in kept:
            os.truncate(path, 0)


if __name__ == "__main__":
    main()
