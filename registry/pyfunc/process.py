"""Asks the process that runs a version's pyfunc, and keeps what that process does to itself.

One batch at a time, each with a time limit, after which the process is killed. One that was killed
or has ended is restarted by a later call: at once if it had run well, else after a pause that
doubles. Nobody waits longer than the time limit of one call, whatever the process does.

This file is copied beside Triton's model (``registry/loading/placement.py``), where Headrace is not
installed: it needs only the standard library and numpy. It starts no thread, because a process
that is to end with its parent ends with the thread that started it.
"""

import json
import os
import select
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

LENGTH = struct.Struct("<I")
MOST_ANSWER_BYTES = 64 << 20
_LONGEST_HEADER = 100_000
_LONGEST_REASON = 1_000  # characters
_LAST_WORDS = 2_000  # bytes of what the code prints that are kept
_CHUNK = 1 << 16
_MOST_CHUNKS = 64  # that a process which has ended may have left


class PyfuncError(Exception):
    """The version's code failed, or can't be asked; the message is a sentence.

    ``killed``: its process was, as the kernel does it where memory does not suffice.
    """

    killed = False


class NotClosedOffError(PyfuncError):
    """This machine can't close the process off, and the operator asks for it."""


@dataclass(frozen=True)
class PyfuncLimits:
    """What the pyfunc of one version may take.

    Attributes:
        call_seconds: of one batch.
        megabytes: address space of the process, Python and its libraries included.
        closed_off: whether it runs only if the kernel closes files and other processes off.
        start_seconds: to start, and to open the model.
        steady_seconds: a process that ran for so long is restarted at once when it fails.
        first_pause_seconds: before another start of one that did not.
        longest_pause_seconds: which the pause doubles up to.
    """

    call_seconds: float = 2.0
    megabytes: int = 2048
    closed_off: bool = True
    start_seconds: float = 100.0
    steady_seconds: float = 10.0
    first_pause_seconds: float = 1.0
    longest_pause_seconds: float = 60.0


@dataclass(frozen=True)
class PyfuncAnswers:
    """What the code answered to a batch.

    ``numbers`` are float64 ``[rows, n]``; None if it answered ``texts``, one a row.
    """

    numbers: NDArray[np.float64] | None
    texts: tuple[str, ...] = ()

    def values(self, labels: Sequence[str], width: int) -> NDArray[np.float32]:
        """As the engine's output: float32 ``[rows, width]``.

        With labels, a text or a single number a row names one of them, which gets all the
        probability; of as many numbers as there are labels each is a probability.

        Raises:
            PyfuncError: there are more or fewer numbers, texts without labels, or other labels.
        """
        numbers = self.numbers
        if numbers is not None and numbers.shape[1] == width and (width > 1 or not labels):
            with np.errstate(over="ignore"):
                return numbers.astype(np.float32)
        if not labels or (numbers is not None and numbers.shape[1] != 1):
            found = "texts" if numbers is None else f"{numbers.shape[1]} numbers a row"
            raise PyfuncError(f"The version's code answered {found}, and {width} are known of it.")
        texts = self.texts if numbers is None else [label_of(each) for each in numbers[:, 0]]
        places = {label: at for at, label in enumerate(labels)}
        made = np.zeros((len(texts), width), np.float32)
        for row, text in enumerate(texts):
            if text not in places:
                raise PyfuncError(
                    f"The version's code answered {text[:40]!r}, which is none of its labels."
                )
            made[row, places[text]] = 1.0
        return made


def label_of(number: float) -> str:
    """The label that a number stands for.

    >>> label_of(1.0), label_of(0.5)
    ('1', '0.5')
    """
    return str(int(number)) if float(number).is_integer() else str(float(number))


class PyfuncProcess:
    """The pyfunc of one version.

    Args:
        command: starts the worker.
        told: what the worker is told: ``model``, ``site``, ``sandbox``, ``memory_bytes``,
            ``categories`` and ``example``, as ``worker`` says.
        limits: what it may take.
        threads: CPU threads that numeric libraries may use.
        ended: is told why, in a sentence, each time that the process was ended or has ended itself.
        clock: seconds.
    """

    def __init__(
        self,
        command: Sequence[str],
        told: Mapping[str, Any],
        limits: PyfuncLimits,
        *,
        threads: int = 1,
        ended: Callable[[str], None] = lambda _why: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = tuple(command)
        self._told = json.dumps(told).encode()
        self._limits = limits
        self._threads = threads
        self._ended = ended
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._hello: dict[str, Any] = {}
        self._last_words = b""
        self._spawned_at = 0.0
        self._ready_at: float | None = None  # None while the model is not open
        self._paused_until = 0.0
        self._pauses = 0
        self._why = ""
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """Of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    @property
    def hello(self) -> Mapping[str, Any]:
        """What the process said of itself once the model was open."""
        return self._hello

    def start(self) -> None:
        """Starts the process and waits until the model is open; raises ``PyfuncError``."""
        self._spawn()
        self._open(self._spawned_at + self._limits.start_seconds)

    def answers(self, numbers: NDArray[np.float64], seconds: float | None = None) -> PyfuncAnswers:
        """What the code answers to rows, float64 ``[rows, features]``.

        Args:
            numbers: the rows; of a category its place among the known ones.
            seconds: for this call, in place of the usual limit.

        Raises:
            PyfuncError: it failed, is away, or took too long.
        """
        limit = self._limits.call_seconds if seconds is None else seconds
        deadline = self._clock() + limit
        if self._ready_at is None:
            self._start_anew(deadline)
        rows = np.ascontiguousarray(numbers, "<f8")
        try:
            self._write_frame(json.dumps({"rows": len(rows)}).encode(), deadline)
            self._write_frame(rows.tobytes(), deadline)
            header = _object(self._read_frame(_LONGEST_HEADER, deadline))
            if "error" not in header:
                body = self._read_frame(MOST_ANSWER_BYTES, deadline)
                return _answers_of(header, body, len(rows))
        except TimeoutError:
            why = f"The version's code took more than {limit:g} s and was stopped."
            raise self._fail(why) from None
        except (EOFError, OSError) as error:
            raise self._fail(f"The version's code has crashed: {self._explain_end()}.") from error
        except ValueError as error:
            raise self._fail("The version's code has crashed: it wrote no answer.") from error
        sentence = f"The version's code failed: {_reason(header)}."
        raise self._fail(sentence) if header.get("memory") else PyfuncError(sentence)

    def close(self) -> None:
        """Ends the process, if it is there."""
        process, self._process, self._ready_at = self._process, None, None
        if process is None:
            return
        with suppress(OSError):
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    # One process, from its start to its end

    def _start_anew(self, deadline: float) -> None:
        """Has a process that takes calls; raises ``PyfuncError`` if there is none in time."""
        now = self._clock()
        if self._process is None:
            if now < self._paused_until:
                left = self._paused_until - now
                raise PyfuncError(f"{self._why} It is started again in {left:.1f} s.")
            self._spawn()
        latest = self._spawned_at + self._limits.start_seconds
        if deadline >= latest or self._can_read(deadline):
            self._open(latest)
            return
        raise PyfuncError("The version's code is being started.")

    def _spawn(self) -> None:
        self.close()
        self.starts += 1
        self._spawned_at, self._last_words = self._clock(), b""
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(self._threads),
                cwd="/",
                bufsize=0,
                start_new_session=True,
            )
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                os.set_blocking(_number(stream), False)
            self._write_frame(self._told, self._spawned_at + self._limits.start_seconds)
        except (OSError, EOFError) as error:
            raise self._fail(f"The version's code can't be started: {error}.") from error

    def _open(self, latest: float) -> None:
        what, limits = "The version's code can't be started", self._limits
        try:
            hello = _object(self._read_frame(_LONGEST_HEADER, latest))
        except TimeoutError as error:
            raise self._fail(f"{what}: it took more than {limits.start_seconds:g} s.") from error
        except (EOFError, OSError) as error:
            raise self._fail(f"{what}: {self._explain_end()}.") from error
        except ValueError as error:
            raise self._fail(f"{what}: it wrote what is no answer.") from error
        if "error" in hello:
            raise self._fail(f"{what}: {_reason(hello)}.")
        if limits.closed_off and not (hello.get("files_closed") and hello.get("calls_refused")):
            why = (
                f"{what}: this kernel has no Landlock or no seccomp to close it off with, and the "
                "operator asks for both."
            )
            self._fail(why)
            raise NotClosedOffError(why)
        self._hello, self._ready_at = hello, self._clock()

    def _fail(self, why: str) -> PyfuncError:
        """Ends the process, and says when there may be another; returns what to raise."""
        limits, now = self._limits, self._clock()
        steady = self._ready_at is not None and now - self._ready_at >= limits.steady_seconds
        self._pauses = 0 if steady else self._pauses + 1
        pause = 0.0
        if self._pauses:
            doubled = limits.first_pause_seconds * 2.0 ** min(self._pauses - 1, 16)
            pause = min(limits.longest_pause_seconds, doubled)
        error = PyfuncError(why)
        ended = self._process is not None and self._process.returncode
        error.killed = ended == -signal.SIGKILL
        self.close()
        self._paused_until, self._why = now + pause, why
        self._ended(why)
        return error

    def _explain_end(self) -> str:
        process = self._process
        if process is None:
            return "it was never started"
        try:
            status = process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        for _ in range(_MOST_CHUNKS):
            if not self._listen():
                break
        how = f"it ended with status {status}"
        if status < 0:
            with suppress(ValueError):
                how = f"it was ended by {signal.Signals(-status).name}"
        lines = self._last_words.decode(errors="replace").strip().splitlines()
        return f"{how}; its last line was: {lines[-1][:200]}" if lines else how

    # Bytes, within a deadline

    def _write_frame(self, body: bytes, deadline: float) -> None:
        process = self._process
        if process is None:
            raise EOFError
        target, left = _number(process.stdin), memoryview(LENGTH.pack(len(body)) + body)
        while left:
            try:
                left = left[os.write(target, left[:_CHUNK]) :]
            except BlockingIOError:
                self._wait(target, select.POLLOUT, deadline)

    def _read_frame(self, most: int, deadline: float) -> bytes:
        (length,) = LENGTH.unpack(self._read(LENGTH.size, deadline))
        if length > most:
            raise ValueError(f"{length} bytes")
        return self._read(length, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        process = self._process
        if process is None:
            raise EOFError
        source, found = _number(process.stdout), bytearray()
        while len(found) < size:
            try:
                part = os.read(source, min(size - len(found), _CHUNK))
            except BlockingIOError:
                self._wait(source, select.POLLIN, deadline)
                continue
            if not part:
                raise EOFError
            found += part
        return bytes(found)

    def _can_read(self, deadline: float) -> bool:
        process = self._process
        if process is None:
            return False
        try:
            self._wait(_number(process.stdout), select.POLLIN, deadline)
        except TimeoutError:
            return False
        return True

    def _wait(self, descriptor: int, what: int, deadline: float) -> None:
        """Waits for a descriptor, and takes meanwhile what the code prints.

        Raises:
            TimeoutError: the deadline passed.
        """
        process = self._process
        if process is None:
            raise EOFError
        poll = select.poll()
        poll.register(descriptor, what)
        poll.register(_number(process.stderr), select.POLLIN)
        while True:
            left = deadline - self._clock()
            if left <= 0:
                raise TimeoutError
            ready = dict(poll.poll(left * 1000))
            if descriptor in ready:
                return
            if ready and not self._listen():
                poll.unregister(_number(process.stderr))  # closed, and would be ready for ever

    def _listen(self) -> bool:
        """Keeps the end of what the code prints; returns whether it may print more."""
        process = self._process
        if process is None:
            return False
        try:
            words = os.read(_number(process.stderr), _CHUNK)
        except BlockingIOError:
            return True
        self._last_words = (self._last_words + words)[-_LAST_WORDS:]
        return bool(words)


def _answers_of(header: Mapping[str, Any], body: bytes, rows: int) -> PyfuncAnswers:
    """Checks what a process answered; raises ``ValueError`` for what is no answer to ``rows``."""
    if header.get("texts"):
        texts = json.loads(body)
        if len(texts) != rows or not all(isinstance(text, str) for text in texts):
            raise ValueError("texts")
        return PyfuncAnswers(None, tuple(texts))
    numbers = np.frombuffer(body, "<f8")
    if numbers.size == 0 or numbers.size % rows:
        raise ValueError("numbers")
    return PyfuncAnswers(numbers.reshape(rows, -1))


def _object(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _reason(header: Mapping[str, Any]) -> str:
    return str(header.get("error"))[:_LONGEST_REASON]


def _number(stream: IO[bytes] | None) -> int:
    assert stream is not None  # noqa: S101 - each was asked for
    return stream.fileno()


def _environment(threads: int) -> dict[str, str]:
    return {
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        # contracts/telemetry_off.py, which is not beside this file in a Triton.
        "DO_NOT_TRACK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "ORT_DISABLE_TELEMETRY": "1",
        **{f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")},
    }
