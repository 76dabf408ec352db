"""Owns the tokenisers that have a process of their own: opens them when they are asked for.

However many callers ask for one, it is opened once. They wait in a bounded room, each until its own
deadline, and the event loop goes on: opening and closing cost it nothing. All together keep to a
bound of bytes, as each process measures its own; the longest unasked is closed for another.

One that can't be opened is tried again with back-off. Until it is open, its versions are as those
whose package can't be opened: they get no routes.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from contracts.backoff import Backoff
from contracts.manifest import TOKENIZER
from contracts.model import ModelRef
from gateway.admission.waiting_room import WaitingRoom
from gateway.errors import (
    RETRY_AFTER_SECONDS,
    GatewayError,
    InvalidInputError,
    ModelUnavailableError,
    OverloadedError,
    TooLargeError,
)
from gateway.packages import PackageError, ServedModel
from gateway.telemetry.metrics import ObservedMetric, Reading
from gateway.tokenising.bound import Bound, State
from gateway.tokenising.process import Processes, ProcessGoneError, TokeniserProcess
from preprocess.errors import InvalidTextError
from preprocess.tokeniser_process.messages import Answer, Open, Question, question_framed

log = logging.getLogger(__name__)

_AT_ONCE = 2  # that are being opened: it takes a core each
_MOST_TRIES = 3  # of a call whose tokeniser's process ends by itself
_MOST_CHARACTERS = 64 * 1024 * 1024  # in all processes or on their way to them
_PAUSES = Backoff(1.0, 30.0)
# Of a tokeniser's file, before it was opened once: what its process takes, as most of them do.
_ESTIMATE = 8
_LEAST_BYTES = 8 << 20
_STOPS = "this gateway is shutting down"


class OpeningMeter(Protocol):
    """Measures openings."""

    def tokeniser_opened(self, seconds: float) -> None:
        """One was opened, after so long; waiting for a turn and for memory is part of it."""


@dataclass(slots=True)
class _Failure:
    reason: str
    retry_at: float
    count: int


class _Opening:
    """One that is being opened, and how many wait for it.

    They ask before it may be closed for another: otherwise many that take turns in little room
    would be opened without an answer.
    """

    def __init__(self, task: "asyncio.Task[TokeniserProcess]") -> None:
        self.task = task
        self._waiting = 0
        self.asked = asyncio.Event()
        self.asked.set()

    def enter(self) -> None:
        """One more waits."""
        self._waiting += 1
        self.asked.clear()

    def leave(self) -> None:
        """One asks now, or waits no longer."""
        self._waiting -= 1
        if not self._waiting:
            self.asked.set()


class OnDemand:
    """The tokenisers of one process that are opened when they are asked for.

    Args:
        most_bytes: of memory that all together may take.
        spawner: starts their processes.
        meter: measures openings.
        prove: proves a package's files again and fetches what is damaged. It blocks.
    """

    def __init__(
        self,
        most_bytes: int,
        spawner: Processes,
        meter: OpeningMeter,
        prove: Callable[[ModelRef], object],
    ) -> None:
        self.room = WaitingRoom("a tokeniser to be opened")
        self._bound = Bound(most_bytes)
        self._spawner = spawner
        self._meter = meter
        self._prove = prove
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._open: dict[str, TokeniserProcess] = {}
        self._opening: dict[str, _Opening] = {}
        self._opened_as: dict[TokeniserProcess, _Opening] = {}
        self._closing: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, _Failure] = {}
        self._measured: dict[str, int] = {}  # of what is wanted, when it was last open
        self._kept: frozenset[str] = frozenset()  # are not closed for others
        self._any_apart = False  # of what is wanted
        self._ahead: asyncio.Task[None] | None = None  # starts what forks them
        self._without_room = 0  # groups that would have to be open together
        self._characters = 0
        self._ended = False
        self.on_change: Callable[[], None] = lambda: None
        self.openings = 0
        self.closings = 0
        self.failed = 0

    async def ask(
        self, model: ServedModel, question: Question, characters: int, deadline: float
    ) -> Answer:
        """The answer of a model's tokeniser, which is opened where it is not.

        Args:
            model: whose tokeniser is not in this process.
            question: for it.
            characters: of the question's texts.
            deadline: of the caller, by the event loop's clock.

        Raises:
            InvalidInputError: a text that is no Unicode text.
            TooLargeError: more characters than are ever tokenised at once.
            OverloadedError: too many wait.
            DeadlineExceededError: the deadline passed first.
            ModelUnavailableError: it can't be opened.
        """
        if characters > _MOST_CHARACTERS:
            raise TooLargeError(
                f"The rows of this request have {characters} characters together; at most "
                f"{_MOST_CHARACTERS} are tokenised at once."
            )
        if self._characters + characters > _MOST_CHARACTERS:
            raise OverloadedError(
                "Too many long texts are waiting.", retry_after_seconds=RETRY_AFTER_SECONDS
            )
        try:
            framed_question = question_framed(question)
        except InvalidTextError as error:
            raise InvalidInputError(f"{error}.") from error
        self._characters += characters
        try:
            return await self._asked(model, framed_question, characters, deadline)
        finally:
            self._characters -= characters

    async def _asked(
        self, model: ServedModel, framed_question: bytes, characters: int, deadline: float
    ) -> Answer:
        key = model.tokeniser_key
        for _ in range(_MOST_TRIES):
            process = self._open.get(key)
            if process is None:
                # A caller holds its texts: four bytes a character at most.
                process = await self._awaited(model, 4 * characters, deadline)
            try:
                answer = await process.ask(framed_question, characters, deadline)
            except ProcessGoneError:
                self._lost(key, process)
                continue
            if self._open.get(key) is process:
                self._close(self._bound.asked(key, answer.bytes, monotonic()))
            return answer
        raise _unavailable(model, "its process has ended again each time")

    @property
    def bytes(self) -> int:
        """Memory of all processes, as they measure it."""
        return self._bound.bytes

    def is_open(self, model: ServedModel) -> bool:
        """Whether a model's texts can be encoded at once."""
        return model.opened is not None or model.tokeniser_key in self._open

    def stays_open(self, model: ServedModel) -> bool:
        """The same, and no other one closes it."""
        if model.opened is not None:  # a model of tables has no tokeniser and no key
            return True
        key = model.tokeniser_key
        return key in self._open and key in self._kept

    def fails(self, model: ServedModel) -> bool:
        """Whether its tokeniser can't be opened."""
        return model.opened is None and model.tokeniser_key in self._failures

    def tend(
        self,
        wanted: Iterable[ServedModel],
        moved: Iterable[ServedModel] = (),
        compared: Iterable[Iterable[ServedModel]] = (),
    ) -> None:
        """Closes what nobody wants, opens what is needed, and tries again what failed.

        Args:
            wanted: all models that may be asked.
            moved: those of them that callers are moved to once they are open.
            compared: groups of them that have to be open together. Those for which there is room
                are opened, and stay.
        """
        if self._ended:
            return
        apart = {model.tokeniser_key: model for model in wanted if model.opened is None}
        self._any_apart = bool(apart)
        for key, process in list(self._open.items()):
            if process.is_gone:
                self._lost(key, process)
        self._close(key for key in list(self._open) if key not in apart)
        for key in self._failures.keys() - apart.keys():
            del self._failures[key]
        for key in self._measured.keys() - apart.keys():
            del self._measured[key]
        coming = self._sizes(moved)
        groups = [sizes for group in compared if (sizes := self._sizes(group))]
        self._kept = self._bound.need(coming, groups)
        self._without_room = len(coming.keys() - self._kept) + sum(
            not group.keys() <= self._kept for group in groups
        )
        self._close(self._bound.excess())
        now = monotonic()
        for key, model in apart.items():
            failure = self._failures.get(key)
            due = key in self._kept if failure is None else now >= failure.retry_at
            if due and key not in self._open and key not in self._opening:
                self._begin(model)

    def served(self) -> None:
        """The gateway answers callers now: what forks processes starts, if any will be needed.

        Not before, for it would take the processor from what the gateway is not ready without.
        """
        if self._any_apart and self._ahead is None and not self._ended:
            self._ahead = asyncio.create_task(self._started_ahead(), name="tokenisers")

    async def _started_ahead(self) -> None:
        try:
            await self._spawner.start()
        except PackageError as error:  # the first caller tries again
            log.warning("tokenisers can't be opened ahead", extra={"reason": str(error)})

    def notes(self) -> Iterable[str]:
        """What is wrong now, in sentences for operators."""
        for failure in self._failures.values():
            yield f"A tokeniser can't be opened: {failure.reason}"
        if self._without_room:
            yield (
                f"There is no memory for the tokenisers of {self._without_room} rollouts or new "
                "versions, which wait for others to end: give the gateway more "
                "(--tokeniser-megabytes; gateway.tokenisers.megabytes in the chart)"
            )

    def readings(self) -> Iterable[Reading]:
        """For the metrics."""
        yield Reading(ObservedMetric.TOKENISERS_OPEN, ("apart",), len(self._open))
        yield Reading(ObservedMetric.TOKENISER_BYTES, ("apart",), self.bytes)
        yield Reading(ObservedMetric.TOKENISERS_OPENED, (), self.openings)
        yield Reading(ObservedMetric.TOKENISERS_CLOSED, (), self.closings)
        yield Reading(ObservedMetric.TOKENISERS_FAILED, (), self.failed)
        yield Reading(ObservedMetric.TOKENISER_WAITING, (), self.room.callers)

    async def close(self) -> None:
        """Ends all processes, whatever they are at; who waits is told."""
        self._ended = True
        opening: list[asyncio.Task[Any]] = [each.task for each in self._opening.values()]
        if self._ahead is not None:
            opening.append(self._ahead)
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        ending = [process.close(at_once=True) for process in self._opened_as]
        self._close(list(self._open))
        await asyncio.gather(*ending, return_exceptions=True)
        await asyncio.gather(*self._closing.values(), return_exceptions=True)
        await self._spawner.close()

    async def _awaited(self, model: ServedModel, size: int, deadline: float) -> TokeniserProcess:
        failure = self._failures.get(model.tokeniser_key)
        if failure is not None and monotonic() < failure.retry_at:
            raise _unavailable(model, failure.reason)
        if self._ended:
            raise _unavailable(model, _STOPS)
        opening = self._opening.get(model.tokeniser_key) or self._begin(model)
        opening.enter()
        try:
            return await self.room.wait(opening.task, size, deadline)
        except PackageError as error:
            raise _unavailable(model, str(error)) from error
        except asyncio.CancelledError:
            if opening.task.cancelled():
                raise _unavailable(model, _STOPS) from None
            raise
        finally:
            opening.leave()  # and nothing is awaited before its caller asks

    def _begin(self, model: ServedModel) -> _Opening:
        key = model.tokeniser_key
        task = asyncio.create_task(self._opened(model, key), name="opening")
        task.add_done_callback(_looked_at)
        opening = self._opening[key] = _Opening(task)
        return opening

    async def _opened(self, model: ServedModel, key: str) -> TokeniserProcess:
        began = monotonic()
        try:
            async with self._turns:
                process = await self._process(model, key)
        except PackageError as error:
            self._note_failure(model, key, str(error))
            raise
        except Exception as error:
            log.exception("a bug: opening a tokeniser failed", extra={"model": model.name})
            self._note_failure(model, key, repr(error))
            raise PackageError(repr(error)) from error
        else:
            self.openings += 1
            self._failures.pop(key, None)
            self._open[key] = process
            self._opened_as[process] = self._opening[key]
            self._measured[key] = process.bytes
            seconds = monotonic() - began
            self._meter.tokeniser_opened(seconds)
            log.info(
                "tokeniser opened",
                extra={"model": model.name, "bytes": process.bytes, "seconds": round(seconds, 3)},
            )
            self._close(self._bound.opened(key, process.bytes, monotonic()))
            return process
        finally:
            del self._opening[key]
            if self._bound.state(key) is State.OPENING:
                self._bound.gone(key)
            self.on_change()

    async def _process(self, model: ServedModel, key: str) -> TokeniserProcess:
        manifest = model.manifest
        if key in self._failures:  # the file may be damaged
            await asyncio.get_running_loop().run_in_executor(None, self._prove, model.ref)
        closing = self._closing.get(key)
        if closing is not None:
            await asyncio.shield(closing)
        proof = manifest.files[TOKENIZER]
        self._close(self._bound.opening(key, self._estimate(model), monotonic()))
        # Their memory is free before any more is taken.
        await asyncio.gather(*map(asyncio.shield, self._closing.values()))
        message = Open(
            path=str(model.file),
            sha256=proof.sha256,
            task=manifest.task.value,
            spec=manifest.tokenizer.model_dump_json(),
        )
        return await TokeniserProcess.open(self._spawner, message)

    def _sizes(self, models: Iterable[ServedModel]) -> dict[str, int]:
        """Estimates of those that are not in this process, and of which none has failed."""
        return {
            model.tokeniser_key: self._estimate(model)
            for model in models
            if model.opened is None and model.tokeniser_key not in self._failures
        }

    def _estimate(self, model: ServedModel) -> int:
        of_file = _ESTIMATE * model.manifest.files[TOKENIZER].bytes
        return self._measured.get(model.tokeniser_key, max(_LEAST_BYTES, of_file))

    def _note_failure(self, model: ServedModel, key: str, reason: str) -> None:
        before = self._failures.get(key)
        count = 1 if before is None else before.count + 1
        pause = _PAUSES.after(count)
        self._failures[key] = _Failure(reason, monotonic() + pause, count)
        self.failed += 1
        log.warning(
            "tokeniser can't be opened",
            extra={"model": model.name, "reason": reason, "retry_seconds": pause},
        )

    def _lost(self, key: str, process: TokeniserProcess) -> None:
        """A process has ended by itself, or is closed already."""
        if self._open.get(key) is process:
            log.warning("the process of a tokeniser has ended", extra={"key": key})
            self._close([key])

    def _close(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            process = self._open.pop(key)
            self._bound.closing(key)
            self.closings += 1
            task = self._closing[key] = asyncio.create_task(self._closed(key, process))
            task.add_done_callback(_looked_at)

    async def _closed(self, key: str, process: TokeniserProcess) -> None:
        try:
            await self._opened_as[process].asked.wait()
            await process.close()
        finally:
            del self._opened_as[process]
            self._bound.gone(key)
            del self._closing[key]


def _looked_at(task: "asyncio.Task[object]") -> None:
    """Takes the error of a task that nobody may wait for any more."""
    if not task.cancelled():
        task.exception()


def _unavailable(model: ServedModel, reason: str) -> GatewayError:
    return ModelUnavailableError(
        f"The tokeniser of {model.name} can't be opened: {reason}.",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
