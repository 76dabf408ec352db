"""Starts a peer's processes on the core under test and ends every one of them, by its id."""

import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from bench import processes

_LEAVE_SECONDS = 2.0
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@contextmanager
def started(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    cores: Sequence[int],
    ready: str,
    seconds: float = 300.0,
) -> Iterator[int]:
    """A peer in a folder of its own, once ``ready`` answers 200; its process id."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "LANG": "C.UTF-8",
        "PYTHONSAFEPATH": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        **dict.fromkeys(_THREADS, "1"),
        **environment,
    }
    # env(1) becomes the peer: the process id stays.
    words = ["env", "-i", "-C", str(folder), *(f"{name}={value}" for name, value in told.items())]
    below: list[psutil.Process] = []
    try:
        with processes.started([*words, *command], folder / "log.txt") as leader:
            os.sched_setaffinity(leader.pid, cores)  # before it has threads: they inherit it
            try:
                _wait(leader, command, ready, folder / "log.txt", seconds)
                yield leader.pid
            finally:
                with suppress(psutil.NoSuchProcess):
                    below = psutil.Process(leader.pid).children(recursive=True)
    finally:
        _, left = psutil.wait_procs(below, timeout=_LEAVE_SECONDS)
        for each in left:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(left, timeout=_LEAVE_SECONDS)


def _wait(
    process: "subprocess.Popen[bytes]",
    command: Sequence[str],
    ready: str,
    log: Path,
    seconds: float,
) -> None:
    deadline = time.monotonic() + seconds
    while not processes.answers(ready):
        if process.poll() is not None or time.monotonic() > deadline:
            words = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"{' '.join(command[:4])} did not get ready: {words}")
        time.sleep(0.05)


@contextmanager
def side_by_side(several: Iterable[AbstractContextManager[object]]) -> Iterator[None]:
    """Enters all at once, and leaves all at once; one that fails to begin ends the others."""
    waiting = list(several)
    stacks = [ExitStack() for _ in waiting]
    with ThreadPoolExecutor(max(1, len(waiting))) as pool:
        try:
            entering = [
                pool.submit(stack.enter_context, each)
                for stack, each in zip(stacks, waiting, strict=True)
            ]
            wait(entering)  # all of them, or one would begin after it was to end
            for each in entering:
                each.result()
            yield
        finally:
            list(pool.map(ExitStack.close, stacks))
