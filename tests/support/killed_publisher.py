"""``python -P killed_publisher.py``: operations on a store, each killed at a step.

Each line of the input is a JSON list ``[ROOT, SOURCE, WHAT, STEP, CUT]``, for which a process is
forked: so what they need is imported once. It publishes the package in SOURCE to ROOT, deletes it
there, collects it, marks the store, or remembers the package in the index, and ends by ``_exit``
before its STEP-th change of the file system. With CUT the machine loses its power there: files that
were written and not synced are empty afterwards, and a name that was made or moved and whose folder
was not synced is as it was before. The answer is a line with the process's exit status: 9, or 0 if
it came to its end.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from registry_fakes import KEYS, packed

from registry.conversions.index import ConversionIndex
from registry.packages import gc
from registry.packages.store import PackageStore
from registry.packages.store_mark import StoreMark

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
    before = {path.stat().st_ino for path in folder.rglob("*")} if folder.exists() else set()
    synced: set[int] = set()
    names: list[Name] = []
    real = os.fsync

    def fsync(fd: Any) -> None:
        real(fd)
        inode = os.fstat(fd).st_ino
        synced.add(inode)
        names[:] = [name for name in names if name.folder != inode]

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
                lose(folder, before | synced, names)
            os._exit(9)
        if cut:
            names.extend(made_by(event, args, folder.parent))

    sys.addaudithook(hook)
    act(root, source, what)
    left = 0
    if cut:
        lose(folder, before | synced, names)


def act(root: str, source: str, what: str) -> None:
    manifest, store = packed(Path(source)), PackageStore(root)
    if what == "publish":
        store.publish(Path(source), manifest)
    elif what == "delete":
        store.delete(manifest.package_id())
    elif what == "mark":
        StoreMark(root, KEYS).claim()
    elif what == "remember":
        ConversionIndex(root, store, KEYS).put("options", manifest.ref())
    else:
        other = packed(Path(source).with_name("other"), b"newer", "2")
        store.publish(Path(source).with_name("other"), other)
        gc.collect(store, (), keep=1)


@dataclass
class Name:
    """A name that is new in a folder: what was moved there, and what had the name before."""

    path: Path
    folder: int  # inode
    moved: Path | None = None
    replaced: Path | None = None


def made_by(event: str, args: tuple[Any, ...], beside: Path) -> Iterator[Name]:
    """The name that a change is about to make; what it replaces is kept ``beside``."""
    if event == "os.rename":
        moved, path = Path(args[0]), Path(args[1])
        replaced = beside / uuid4().hex if path.is_file() else None
        if replaced is not None:
            os.link(path, replaced)
        yield Name(path, path.parent.stat().st_ino, moved, replaced)
    elif event in {"open", "os.mkdir"} and not Path(args[0]).exists():
        yield Name(Path(args[0]), Path(args[0]).parent.stat().st_ino)


def lose(folder: Path, kept: set[int], names: list[Name]) -> None:
    """Takes away what no sync has brought to the disk."""
    for name in reversed(names):
        inside = (folder.parent, *folder.parent.rglob("*"))
        where = [path for path in inside if path.stat().st_ino == name.folder]  # it may have moved
        for path in (there / name.path.name for there in where):
            if name.moved is not None:
                if path.exists():
                    path.rename(name.moved)
                if name.replaced is not None:
                    name.replaced.rename(path)
            elif path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_ino not in kept:
            os.truncate(path, 0)


if __name__ == "__main__":
    main()
