"""Talks to the process of one tokeniser, and to the one that forks them.

A process answers one question after another. What waits for it is bounded by characters, and
everybody waits until its own deadline. A process that does not answer in a long time is killed, and
its callers are told that it is gone.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Protocol

import msgspec

from gateway.errors import RETRY_AFTER_SECONDS, OverloadedError, too_late
from gateway.packages import PackageError
from preprocess.tokeniser_process.messages import LENGTH, Answer, Open, OpenReply, framed

log = logging.getLogger(__name__)

_MOST_CHARACTERS = 32 * 1024 * 1024  # in a process or on their way to it
_MOST_OWN_CHARACTERS = 1024 * 1024  # the same, of one with expressions of its author's
_OPENING_SECONDS = 60.0
_LONGEST_ANSWER_SECONDS = 60.0
_ENDING_SECONDS = 5.0
# Of the gateway's environment, what its processes get: no credentials. By the last one,
# ``headrace up`` knows what a killed gateway leaves.
_PASSED = frozenset(
    (
        "PATH",
        "LANG",
        "HOME",
        "USER",
        "PYTHONPATH",
        "PYTHONHOME",
        "LD_LIBRARY_PATH",
        "HEADRACE_STACK_SERVICE",
    )
)
# Their libraries' threads would not survive the fork, and would only compete.
_ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAYON_NUM_THREADS": "1",
}
_answers = msgspec.msgpack.Decoder(Answer)
_opened = msgspec.msgpack.Decoder(OpenReply)


class ProcessGoneError(Exception):
    """The process has ended, or is about to."""


class Processes(Protocol):
    """Starts processes of tokenisers."""

    async def start(self) -> None:
        """Makes ready for the first one, so that it need not wait; raises ``PackageError``."""

    async def connect(self) -> socket.socket:
        """A socket whose other end a new process answers on; raises ``PackageError``."""

    async def close(self) -> None:
        """Starts no more."""


class Spawner:
    """The process that forks a process for each tokeniser. The first one starts it, or ``start``.

    Args:
        environment: the gateway's; its processes get what they need of it.
        hidden: code that others wrote runs under the same user, and must not look into them.
    """

    def __init__(self, environment: Mapping[str, str], *, hidden: bool = False) -> None:
        self._arguments = ["hidden"] if hidden else []
        passed = {name: value for name, value in environment.items() if name in _PASSED}
        self._environment = {**passed, **_ONE_THREAD}
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Has it read all modules now, which takes a second of the processor.

        Raises:
            PackageError: it can't be started.
        """
        try:
            await self._started()
        except OSError as error:
            raise PackageError(f"no process can be started for tokenisers: {error!r}") from error

    async def connect(self) -> socket.socket:
        """A socket whose other end a new process answers on.

        Raises:
            PackageError: it can't be started.
        """
        try:
            try:
                return await self._connected()
            except ConnectionError:  # it has ended, and nobody was told yet
                return await self._connected()
        except OSError as error:
            raise PackageError(f"no process can be started for a tokeniser: {error!r}") from error

    async def _connected(self) -> socket.socket:
        control = await self._started()
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            try:
                socket.send_fds(control, [b"t"], [theirs.fileno()])
            except BaseException:
                ours.close()
                self._drop()
                raise
        return ours

    async def close(self) -> None:
        """Ends it. What it has forked goes on."""
        process, self._process = self._process, None
        self._drop()
        if process is not None:
            await _ended(process)

    async def _started(self) -> socket.socket:
        async with self._starting:
            process = self._process
            if self._control is None or process is None or process.returncode is not None:
                self._drop()
                self._process = None
                if process is not None:
                    await _ended(process)
                ours, theirs = socket.socketpair()
                try:
                    self._process = await asyncio.create_subprocess_exec(
                        sys.executable,
                        "-P",
                        "-m",
                        "preprocess.tokeniser_process.spawner",
                        *self._arguments,
                        stdin=theirs.fileno(),
                        stdout=asyncio.subprocess.DEVNULL,
                        env=self._environment,
                    )
                    ours.setblocking(False)
                    async with asyncio.timeout(_OPENING_SECONDS):
                        if not await asyncio.get_running_loop().sock_recv(ours, 1):
                            raise ConnectionResetError("it ended at once")
                except BaseException:
                    ours.close()
                    raise
                finally:
                    theirs.close()
                self._control = ours
            return self._control

    def _drop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Waits for a spawner whose socket is closed; kills one that does not end."""
    try:
        async with asyncio.timeout(_ENDING_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(_ENDING_SECONDS):
                await process.wait()


class TokeniserProcess:
    """One tokeniser in its process; ``open`` makes it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, opened: OpenReply
    ) -> None:
        self.bytes = opened.bytes
        self._reader = reader
        self._writer = writer
        self._pid = opened.pid
        self._most = _MOST_OWN_CHARACTERS if opened.own_expressions else _MOST_CHARACTERS
        self._characters = 0
        self._asked: deque[tuple[asyncio.Future[Answer], int, float]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_gone = False
        self._listener = asyncio.create_task(self._listen(), name="tokeniser")

    @classmethod
    async def open(cls, spawner: Processes, message: Open) -> "TokeniserProcess":
        """Opens a tokeniser.

        Raises:
            PackageError: it can't be opened now.
        """
        try:
            return await cls._opened(spawner, message)
        except ProcessGoneError:  # what forks them has ended, say
            try:
                return await cls._opened(spawner, message)
            except ProcessGoneError as error:
                raise PackageError(
                    f"the process of {message.path} ended as it opened it"
                ) from error

    @classmethod
    async def _opened(cls, spawner: Processes, message: Open) -> "TokeniserProcess":
        connection = await spawner.connect()
        try:
            reader, writer = await asyncio.open_unix_connection(sock=connection)
        except BaseException:
            connection.close()
            raise
        try:
            writer.write(framed(message))
            async with asyncio.timeout(_OPENING_SECONDS):
                opened = _opened.decode(await _frame(reader))
        except TimeoutError as error:
            writer.close()
            raise PackageError(f"{message.path} takes too long to open") from error
        except (OSError, asyncio.IncompleteReadError) as error:
            writer.close()
            raise ProcessGoneError from error
        except BaseException:
            writer.close()
            raise
        if opened.error:
            writer.close()
            raise PackageError(opened.error)
        return cls(reader, writer, opened)

    async def ask(self, framed_question: bytes, characters: int, deadline: float) -> Answer:
        """The answer to a question about texts of this many characters.

        Args:
            framed_question: as it is sent: each one in the queue was sent.
            characters: of its texts.
            deadline: by the event loop's clock.

        Raises:
            OverloadedError: too many characters wait for it already.
            DeadlineExceededError: the deadline passed first.
            ProcessGoneError: it has ended.
        """
        if self.is_gone or self._writer.is_closing():
            raise ProcessGoneError
        if self._characters and self._characters + characters > self._most:
            raise OverloadedError(
                "Too many long texts are waiting.", retry_after_seconds=RETRY_AFTER_SECONDS
            )
        now = monotonic()
        if self._asked and now - self._asked[0][2] > _LONGEST_ANSWER_SECONDS:
            log.warning("a tokeniser does not answer and is killed", extra={"pid": self._pid})
            self._kill()
            raise ProcessGoneError
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked.append((future, characters, now))
        self._characters += characters
        self._idle.clear()
        self._writer.write(framed_question)
        try:
            async with asyncio.timeout(max(0.0, deadline - now)):
                return await future
        except TimeoutError as late:
            raise too_late() from late

    async def close(self, *, at_once: bool = False) -> None:
        """Ends the process, after it has answered what was asked."""
        if not at_once:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_ANSWER_SECONDS):
                    await self._idle.wait()
        self.is_gone = True
        if not self._writer.is_closing():
            self._writer.write_eof()
        try:
            async with asyncio.timeout(_ENDING_SECONDS):
                await asyncio.shield(self._listener)
        except TimeoutError:
            self._kill()
            await self._listener

    def _kill(self) -> None:
        """Ends a process whose socket is open, so that its number is no other's yet."""
        if not self._listener.done():
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self.is_gone = True

    async def _listen(self) -> None:
        try:
            while True:
                answer = _answers.decode(await _frame(self._reader))
                future, characters, _ = self._asked.popleft()
                self._characters -= characters
                if self._asked:
                    following, size, _ = self._asked[0]
                    self._asked[0] = following, size, monotonic()  # it is done from now on
                else:
                    self._idle.set()
                self.bytes = answer.bytes
                if not future.done():
                    future.set_result(answer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        except Exception:
            log.exception("a bug: a tokeniser's answer can't be read", extra={"pid": self._pid})
            self._kill()
        finally:
            self.is_gone = True
            self._writer.close()
            while self._asked:
                future, _, _ = self._asked.popleft()
                if not future.done():
                    future.set_exception(ProcessGoneError())
                    future.exception()  # its caller may have left
            self._idle.set()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return await reader.readexactly(length)
