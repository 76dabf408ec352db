"""Runs a version's code in a worker process, and keeps what that process does to itself.

One worker does one call at a time; others wait in a bounded queue. A call has a time limit, after
which the worker is killed. A worker that was killed or has ended is started again: at once where it
had run well, else after a pause that doubles. During the pause calls fail at once. Nobody who asks
ever waits for a worker longer than the deadline that it names.
"""

import asyncio
import logging
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import monotonic

import msgspec

from contracts import telemetry_off
from contracts.backoff import Backoff
from preprocess.model_code.archive import ArchiveError, unpack
from preprocess.model_code.messages import LENGTH, Done, Hello, Task, framed, longest_answer

log = logging.getLogger(__name__)

_LONGEST_HELLO = 10_000  # bytes
_ENDING_SECONDS = 5.0  # that a process that has closed its output may take to end
_PAUSES = Backoff(0.25, 30.0)
_LAST_WORDS = 2_000  # bytes of what the code prints that are kept
_DONE, _HELLO = msgspec.msgpack.Decoder(Done), msgspec.msgpack.Decoder(Hello)
_OUT_OF_MEMORY = "MemoryError"


class Failure(StrEnum):
    """What may go wrong with a version's code."""

    RAISED = "raised"  # or returned what can't be used
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASHED = "crashed"
    NOT_STARTED = "not_started"
    PAUSED = "paused"  # it failed before, and is started again later
    QUEUE_FULL = "queue_full"


class ModelCodeError(Exception):
    """The version's code failed; the message is a sentence for callers."""

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class CodeLimits:
    """What the code of one version may take.

    Attributes:
        call_seconds: of one call.
        memory_bytes: address space of the worker, Python and its libraries included.
        waiting: calls that wait for the worker.
        start_seconds: to start and import.
        steady_seconds: a worker that ran for so long is started again at once when it fails.
        pauses: before another start of one that did not.
        closed_off: whether it runs only where the kernel closes files and other processes off.
    """

    call_seconds: float = 0.5
    memory_bytes: int = 1 << 30
    waiting: int = 64
    start_seconds: float = 30.0
    steady_seconds: float = 10.0
    pauses: Backoff = _PAUSES
    closed_off: bool = True


@dataclass(slots=True)
class _Waiting:
    task: Task
    future: "asyncio.Future[Done]"


class CodeProcess:
    """The code of one version, for one endpoint.

    Args:
        archive: the version's code, as ``archive.pack`` made it.
        folder: in which the code is unpacked, in a folder of its own.
        limits: what it may take.
        told: is told of each failure that ends a worker or keeps it from starting.
        name: for the log.
    """

    def __init__(
        self,
        archive: bytes,
        folder: Path,
        limits: CodeLimits,
        told: Callable[[Failure], None],
        *,
        name: str,
    ) -> None:
        self._archive = archive
        self._folder = folder
        self._limits = limits
        self._told = told
        self._name = name
        self._queue: deque[_Waiting] = deque()
        self._asked: _Waiting | None = None  # the one that the worker does, or did last
        self._wake = asyncio.Event()
        self._changed = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None
        self._number = 0
        self._pauses = 0
        self._paused_until = 0.0
        self._failed: ModelCodeError | None = None
        self._parts: frozenset[str] | None = None
        self.starts = 0
        self.pid: int | None = None

    def start(self) -> None:
        """Starts the worker, which ``close`` ends."""
        self._owner = asyncio.get_running_loop().create_task(self._run(), name="model code")

    async def close(self) -> None:
        """Ends the worker; calls that wait fail."""
        if self._owner is not None:
            self._owner.cancel()
            await asyncio.gather(self._owner, return_exceptions=True)
        stopped = ModelCodeError(Failure.NOT_STARTED, "The version's code was stopped.")
        self._fail(self._asked, stopped)
        self._fail_waiting(stopped)

    @property
    def running(self) -> bool:
        """Whether a worker is there and takes calls."""
        return self.pid is not None

    @property
    def problem(self) -> str:
        """Why no worker takes calls now, in a sentence; empty where one does or soon will."""
        failed = self._failed
        return "" if self.running or failed is None else str(failed)

    @property
    def waiting(self) -> int:
        """Calls that wait, beside the one that the worker does."""
        return len(self._queue)

    def lacks(self, part: str) -> bool:
        """Whether the code is known not to have ``preprocess`` or ``postprocess``."""
        return self._parts is not None and part not in self._parts

    async def started(self, deadline: float) -> None:
        """Waits until a worker takes calls.

        Raises:
            ModelCodeError: it can't be started.
            TimeoutError: the deadline, by ``time.monotonic``, passed.
        """
        async with asyncio.timeout(max(0.0, deadline - monotonic())):
            while not self.running and (self._failed is None or self._paused_until == 0.0):
                self._changed.clear()
                await self._changed.wait()
        if self._failed is not None:
            raise self._failed

    async def restarted(self, deadline: float) -> None:
        """Waits until a worker takes calls, through failures and pauses.

        Raises:
            TimeoutError: the deadline, by ``time.monotonic``, passed.
        """
        async with asyncio.timeout(max(0.0, deadline - monotonic())):
            while not self.running:
                self._changed.clear()
                await self._changed.wait()

    async def call(self, task: Task, deadline: float) -> Done:
        """Has the worker do a task; its number is set here.

        Args:
            task: what to do.
            deadline: until when to wait, by ``time.monotonic``.

        Raises:
            ModelCodeError: the code failed, or can't be asked now.
            TimeoutError: the deadline passed while it was waiting or at work.
        """
        now = monotonic()
        if now < self._paused_until and self._failed is not None:
            seconds = self._paused_until - now
            raise ModelCodeError(
                Failure.PAUSED, f"{self._failed} It is started again in {seconds:.1f} s."
            )
        if len(self._queue) >= self._limits.waiting:
            raise ModelCodeError(
                Failure.QUEUE_FULL,
                f"{len(self._queue)} calls wait for the version's code, which is too slow.",
            )
        self._number += 1
        task = msgspec.structs.replace(task, number=self._number)
        waiting = _Waiting(task, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._wake.set()
        try:
            async with asyncio.timeout(max(0.0, deadline - now)):
                done = await waiting.future
        finally:
            # Taken out of the queue, too, where it still waits there.
            waiting.future.cancel()
            with suppress(ValueError):
                self._queue.remove(waiting)
        if done.error:
            memory = done.kind == _OUT_OF_MEMORY
            failure = Failure.MEMORY if memory else Failure.RAISED
            raise ModelCodeError(failure, f"The version's code failed: {done.error}.")
        return done

    async def _run(self) -> None:
        while True:
            worker = _Worker(self._archive, self._folder, self._limits, self._wake)
            began: float | None = None  # a start that fails has not run well, however long it took
            try:
                hello = await worker.start()
                self._parts = frozenset(hello.parts)
                self.starts += 1
                self.pid, self._failed = worker.pid, None
                self._changed.set()
                self._say_closed(hello)
                began = monotonic()
                await self._serve(worker)
            except ModelCodeError as error:
                self.pid, self._failed = None, error
                self._told(error.failure)
                self._fail(self._asked, error)
                await worker.end()
                await self._pause(error, 0.0 if began is None else monotonic() - began)
            except Exception as bug:
                log.exception("a bug: a version's code can't be asked", extra={"model": self._name})
                self.pid, self._failed = None, _build_crash_error(type(bug).__name__)
                self._fail(self._asked, self._failed)
                await worker.end()
                await self._pause(self._failed, 0.0)
            finally:
                self.pid = None
                await worker.end()

    def _say_closed(self, hello: Hello) -> None:
        if not (hello.files_closed and hello.calls_refused) and self.starts == 1:
            log.warning(
                "a version's code is not closed off: the kernel lacks Landlock or seccomp",
                extra={"model": self._name},
            )

    async def _serve(self, worker: "_Worker") -> None:
        """Does what waits until the worker fails; raises that failure."""
        while True:
            while not self._queue and not worker.gone.is_set():
                self._wake.clear()
                await self._wake.wait()
            if worker.gone.is_set():
                raise await worker.describe_crash()
            waiting = self._asked = self._queue.popleft()
            if waiting.future.done():
                continue
            done = await worker.ask(waiting.task)
            if not waiting.future.done():
                waiting.future.set_result(done)
            if done.kind == _OUT_OF_MEMORY:
                raise ModelCodeError(Failure.MEMORY, f"The version's code failed: {done.error}.")

    async def _pause(self, error: ModelCodeError, ran_seconds: float) -> None:
        """Waits as long as is due before the next start."""
        steady = ran_seconds >= self._limits.steady_seconds
        self._pauses = 0 if steady else self._pauses + 1
        pause = self._limits.pauses.after(self._pauses) if self._pauses else 0.0
        fields = {"model": self._name, "reason": str(error), "pause_seconds": pause}
        log.warning("a version's code failed and is started again", extra=fields)
        if pause:
            self._paused_until = monotonic() + pause
            self._changed.set()
            self._fail_waiting(error)
            await asyncio.sleep(pause)
            self._paused_until = 0.0

    def _fail_waiting(self, error: ModelCodeError) -> None:
        while self._queue:
            self._fail(self._queue.popleft(), error)

    def _fail(self, waiting: _Waiting | None, error: ModelCodeError) -> None:
        if waiting is not None and not waiting.future.done():
            waiting.future.set_exception(error)


class _Worker:
    """One process, from its start to its end."""

    def __init__(
        self, archive: bytes, folder: Path, limits: CodeLimits, wake: asyncio.Event
    ) -> None:
        self._archive = archive
        self._parent = folder
        self._limits = limits
        self._wake = wake
        self._code: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._last_words = b""
        self._tasks: list[asyncio.Task[None]] = []
        self.gone = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Of the process."""
        return None if self._process is None else self._process.pid

    async def start(self) -> Hello:
        """Starts it and waits until it can work; raises ``ModelCodeError``."""
        limits = self._limits
        try:
            self._code = await asyncio.to_thread(self._unpack)
            self._process = await asyncio.create_subprocess_exec(
                *_command(self._code, limits.memory_bytes),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        except (ArchiveError, OSError) as error:
            raise _not_started(str(error)) from error
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch()), loop.create_task(self._listen())]
        try:
            async with asyncio.timeout(limits.start_seconds):
                hello = _HELLO.decode(await self._read(_LONGEST_HELLO))
        except TimeoutError as error:
            raise _not_started(f"it took more than {limits.start_seconds:g} s") from error
        except (EOFError, OSError, msgspec.MsgspecError) as error:
            raise _not_started(await self._end_told()) from error
        if hello.error:
            raise _not_started(hello.error)
        if limits.closed_off and not (hello.files_closed and hello.calls_refused):
            raise _not_started(
                "this kernel has no Landlock or no seccomp to close it off with, and the operator "
                "asks for both"
            )
        return hello

    async def ask(self, task: Task) -> Done:
        """What comes of a task; raises ``ModelCodeError`` where the worker is of no more use."""
        limits = self._limits
        try:
            frame = framed(task)
        except (ValueError, TypeError, RecursionError) as error:
            return Done(task.number, error=str(error), kind=type(error).__name__)
        try:
            async with asyncio.timeout(limits.call_seconds):
                self._write(frame)
                done = _DONE.decode(await self._read(longest_answer(task)))
        except TimeoutError as error:
            raise ModelCodeError(
                Failure.TIMEOUT,
                f"The version's code took more than {limits.call_seconds:g} s and was stopped.",
            ) from error
        except (EOFError, OSError) as error:
            raise await self.describe_crash() from error
        except (msgspec.MsgspecError, RecursionError) as error:
            raise _build_crash_error("it wrote what is no answer") from error
        if done.number != task.number:
            raise _build_crash_error("it answered what nobody has asked")
        return done

    async def describe_crash(self) -> ModelCodeError:
        """The failure of a process that has ended, or closed its output."""
        return _build_crash_error(await self._end_told())

    async def end(self) -> None:
        """Kills the process, if it is there, and removes its code."""
        if self._process is not None and not self.gone.is_set():
            with suppress(ProcessLookupError):
                self._process.kill()
            await self.gone.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        code, self._code = self._code, None
        if code is not None:
            await asyncio.to_thread(shutil.rmtree, code, ignore_errors=True)

    def _unpack(self) -> Path:
        self._parent.mkdir(parents=True, exist_ok=True)
        code = Path(tempfile.mkdtemp(dir=self._parent))
        unpack(self._archive, code)
        return code

    def _write(self, frame: bytes) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise EOFError
        # Not drained: nothing else is written before the answer to this is read.
        process.stdin.write(frame)

    async def _read(self, most: int) -> bytes:
        process = self._process
        if process is None or process.stdout is None:
            raise EOFError
        (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        if length > most:
            raise msgspec.ValidationError("too long")
        return await process.stdout.readexactly(length)

    async def _watch(self) -> None:
        try:
            if self._process is not None:
                await self._process.wait()
        finally:  # at the end of the event loop, too, where this is cancelled before ``end``
            self.gone.set()
            self._wake.set()

    async def _listen(self) -> None:
        """Keeps the end of what the code prints."""
        stream = None if self._process is None else self._process.stderr
        while stream is not None:
            words = await stream.read(_LAST_WORDS)
            if not words:
                return
            self._last_words = (self._last_words + words)[-_LAST_WORDS:]

    async def _end_told(self) -> str:
        """How the process has ended; kills one that has not."""
        process = self._process
        if process is None:
            return "it was never started"
        with suppress(TimeoutError):
            async with asyncio.timeout(_ENDING_SECONDS):
                await self.gone.wait()
        if process.returncode is None:
            return "it closed its output"
        await asyncio.wait(self._tasks, timeout=_ENDING_SECONDS)  # what it said may still come
        status = process.returncode
        how = f"it ended with status {status}"
        if status < 0:
            how = f"it was ended by {_signal_name(-status)}"
        lines = self._last_words.decode(errors="replace").strip().splitlines()
        return f"{how}; its last line was: {lines[-1][:200]}" if lines else how


_ENVIRONMENT = {
    **telemetry_off.VARIABLES,
    "LANG": "C.UTF-8",
    "PATH": "/usr/bin:/bin",
    # One thread: what they compute is small, and the gateway has few cores.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def _command(code: Path, memory_bytes: int) -> list[str]:
    worker = ["-I", "-B", "-m", "preprocess.model_code.worker"]
    return [sys.executable, *worker, str(code), str(memory_bytes)]


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _not_started(why: str) -> ModelCodeError:
    return ModelCodeError(Failure.NOT_STARTED, f"The version's code can't be started: {why}.")


def _build_crash_error(why: str) -> ModelCodeError:
    return ModelCodeError(Failure.CRASHED, f"The version's code has crashed: {why}.")
