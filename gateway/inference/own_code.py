"""Users' own code around the model: hooks that an operator has installed, and code of versions.

An installed hook belongs to an endpoint, runs in this process, and fails no request
(``observations``). The code that a version brings belongs to that version: it runs in a process of
its own for each endpoint, and its failure is the version's. Of a request, texts pass the hook, the
version's code and the model; answers pass the version's code and the hook.

The event loop never waits for a version's code, and of what comes back nothing is taken unchecked.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.calls import Call
from gateway.errors import ModelFailedError, too_late
from gateway.inference.attempt import Attempt
from gateway.inference.observations import Hooks
from gateway.packages import ServedModel
from gateway.routing.routes import EndpointRoutes, RoutingTable
from gateway.telemetry.metrics import ObservedMetric, Reading
from preprocess import edits
from preprocess.hooks import MOST_VALUES, Observed, State
from preprocess.model_code.messages import MOST_ADDED, MOST_GROWTH, Answers, Done, Task
from preprocess.model_code.process import CodeLimits, CodeProcess, Failure, ModelCodeError

# For so long a worker is kept that no route names: requests in flight may still need it.
_KEPT_SECONDS = 60.0
# What others pay for is bounded: names of statistics are in every window of the endpoint.
MOST_NAMES = 64  # of statistics, for each endpoint and version

Values = NDArray[np.float32]


class CodeMetrics(Protocol):
    """Counts calls of versions' code."""

    def code_called(self, endpoint: str, version: str, part: str, seconds: float) -> None:
        """One call of ``preprocess`` or ``postprocess`` that was answered."""

    def code_failed(self, endpoint: str, version: str, reason: str) -> None:
        """One call that failed, and why."""


@dataclass(slots=True)
class _RunningCode:
    endpoint: str
    model: ServedModel
    process: CodeProcess
    names: set[str] = field(default_factory=set)  # of the statistics that it has observed
    unwanted_since: float | None = None


class ModelCodes:
    """The processes that run the code of versions: one for each endpoint and package."""

    def __init__(self, folder: Path, limits: CodeLimits, metrics: CodeMetrics) -> None:
        self._folder = folder
        self._limits = limits
        self._metrics = metrics
        self._kept: dict[tuple[str, str], _RunningCode] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def keep(self, table: RoutingTable) -> None:
        """Starts the processes that a routing table needs, and ends those that none has needed."""
        now = monotonic()
        wanted = {
            (name, model.ref.package): model
            for name, routes in table.endpoints.items()
            for model in _models(routes)
            if model.code is not None
        }
        for key, model in wanted.items():
            kept = self._kept.get(key)
            if kept is None:
                self._kept[key] = self._started(key[0], model, model.code or b"")
            else:
                kept.unwanted_since = None
        for key in self._kept.keys() - wanted.keys():
            kept = self._kept[key]
            if kept.unwanted_since is None:
                kept.unwanted_since = now
            elif now - kept.unwanted_since >= _KEPT_SECONDS:
                task = asyncio.get_running_loop().create_task(self._kept.pop(key).process.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Ends all processes."""
        closing = [kept.process.close() for kept in self._kept.values()]
        self._kept.clear()
        await asyncio.gather(*closing, *self._closing)

    def notes(self) -> Iterator[str]:
        """What is wrong now, in sentences for operators."""
        for kept in self._kept.values():
            if problem := kept.process.problem:
                yield f"{kept.endpoint}, version {kept.model.ref.version}: {problem}"

    def readings(self) -> Iterable[Reading]:
        """For Prometheus."""
        # A version may have two packages, for a while.
        by_version: dict[tuple[str, str], list[CodeProcess]] = {}
        for kept in self._kept.values():
            labels = (kept.endpoint, kept.model.ref.version)
            by_version.setdefault(labels, []).append(kept.process)
        for labels, processes in by_version.items():
            running = min(each.running for each in processes)
            yield Reading(ObservedMetric.CODE_RUNNING, labels, float(running))
            yield Reading(
                ObservedMetric.CODE_STARTS, labels, sum(each.starts for each in processes)
            )
            yield Reading(
                ObservedMetric.CODE_WAITING, labels, sum(each.waiting for each in processes)
            )

    async def prepare(self, model: ServedModel, call: Call, deadline: float) -> Call:
        """The call with the texts that the version's ``preprocess`` makes of it.

        Args:
            model: of the version, which brings code.
            call: as it came to the version.
            deadline: until when to wait, by the event loop's clock.

        Raises:
            ModelFailedError: the code failed.
            DeadlineExceededError: the deadline passed.
        """
        seen = sum(map(len, (call.observed or {}).values()))
        task = Task(
            number=0,
            endpoint=call.endpoint,
            request_id=call.request_id,
            texts=call.texts,
            pairs=call.pairs,
            version=model.ref.version,
            labels=list(model.manifest.labels),
            left=MOST_VALUES - seen,
        )
        process = self._process(call.endpoint, model)
        if process.lacks("preprocess"):
            return msgspec.structs.replace(call, code_task=task)
        done = await self._call(process, model, "preprocess", task, deadline)
        second = None if done.pairs is None else len(done.pairs)
        if len(done.texts) != len(call.texts) or second != (call.pairs and len(call.pairs)):
            raise self._failed(call.endpoint, model, "it returned another number of texts")
        made = sum(map(len, done.texts)) + sum(map(len, done.pairs or ()))
        if made > MOST_GROWTH * call.characters() + MOST_ADDED:
            raise self._failed(
                call.endpoint, model, f"it made {made} characters of {call.characters()}"
            )
        observed = self._observed(model, task, call.observed, done)
        task = msgspec.structs.replace(task, data=done.data.copy())
        return msgspec.structs.replace(
            call, texts=done.texts, pairs=done.pairs, observed=observed, code_task=task
        )

    async def finish(
        self, attempt: Attempt, values: Values, deadline: float
    ) -> tuple[Values, Observed | None]:
        """The values of an answer as the version's ``postprocess`` leaves them; see ``prepare``.

        Returns:
            The values, and all that was observed of the request; None if that is in the call.
        """
        call, model = attempt.call, attempt.target.model
        task = call.code_task
        process = self._process(call.endpoint, model)
        if task is None or process.lacks("postprocess"):
            return values, None
        try:
            form = edits.form_of(model.head, model.manifest.labels, attempt.encoded)
        except edits.EditError as error:
            raise self._failed(call.endpoint, model, str(error)) from error
        seen = sum(map(len, (call.observed or {}).values()))
        task = msgspec.structs.replace(
            task,
            left=MOST_VALUES - seen,
            answers=Answers(form, values.astype("<f4").tobytes(), values.shape[1]),
        )
        done = await self._call(process, model, "postprocess", task, deadline)
        if done.values is not None:
            if len(done.values) != values.size * 4:
                raise self._failed(call.endpoint, model, "it returned another number of answers")
            changed = np.frombuffer(done.values, "<f4").reshape(values.shape)
            try:
                values = edits.checked(form, changed)
            except edits.EditError as error:
                raise self._failed(call.endpoint, model, str(error)) from error
        return values, self._observed(model, task, call.observed, done)

    def _started(self, endpoint: str, model: ServedModel, archive: bytes) -> _RunningCode:
        process = CodeProcess(
            archive,
            self._folder,
            self._limits,
            lambda failure: self._metrics.code_failed(endpoint, model.ref.version, failure),
            name=f"{endpoint} {model.name}",
        )
        process.start()
        return _RunningCode(endpoint, model, process)

    def _process(self, endpoint: str, model: ServedModel) -> CodeProcess:
        kept = self._kept.get((endpoint, model.ref.package))
        if kept is None:
            raise self._failed(endpoint, model, "it is not running")
        return kept.process

    async def _call(
        self, process: CodeProcess, model: ServedModel, part: str, task: Task, deadline: float
    ) -> Done:
        began = monotonic()
        version = model.ref.version
        try:
            done = await process.call(task, deadline)
        except ModelCodeError as error:
            # Those that end a worker are counted where that is told.
            if error.failure in (Failure.RAISED, Failure.PAUSED, Failure.QUEUE_FULL):
                self._metrics.code_failed(task.endpoint, version, error.failure)
            raise ModelFailedError(str(error)) from error
        except TimeoutError as error:
            raise too_late() from error
        self._metrics.code_called(task.endpoint, version, part, monotonic() - began)
        return done

    def _observed(
        self, model: ServedModel, task: Task, before: Observed | None, done: Done
    ) -> Observed | None:
        """All that was observed of a request so far, what the code has just observed included."""
        if not done.observed:
            return before
        kept = self._kept.get((task.endpoint, model.ref.package))
        if kept is not None:
            for name in done.observed:
                if len(kept.names) < MOST_NAMES:
                    kept.names.add(name)
            if not kept.names.issuperset(done.observed):
                raise self._failed(
                    task.endpoint, model, f"it observes more than {MOST_NAMES} statistics"
                )
        known = State(task.endpoint, task.request_id)
        try:
            known.observe_all(before or {})
            known.observe_all(done.observed)
        except ValueError as error:
            raise self._failed(task.endpoint, model, str(error)) from error
        return known.observed

    def _failed(self, endpoint: str, model: ServedModel, why: str) -> ModelFailedError:
        self._metrics.code_failed(endpoint, model.ref.version, Failure.RAISED)
        return ModelFailedError(f"The version's code failed: {why}.")


class OwnCode:
    """All of users' own code that a process runs."""

    def __init__(self, hooks: Hooks | None = None, codes: ModelCodes | None = None) -> None:
        self._hooks = hooks
        self._codes = codes

    def receive(self, call: Call) -> Call:
        """The call as the endpoint's hook leaves it."""
        return call if self._hooks is None else self._hooks.run(call)

    async def prepare(self, model: ServedModel, call: Call, deadline: float) -> Call:
        """The call as the version's code leaves it; raises as ``ModelCodes.prepare``."""
        if model.code is None or self._codes is None:
            return call
        return await self._codes.prepare(model, call, deadline)

    async def finish(self, attempt: Attempt, values: Values, deadline: float) -> Values:
        """The values of an answer as the version's code and then the hook leave them.

        What they observe is left in the attempt. Raises as ``ModelCodes.finish``.
        """
        model = attempt.target.model
        if model.code is not None and self._codes is not None:
            began = monotonic()
            values, attempt.observed = await self._codes.finish(attempt, values, deadline)
            attempt.tokenise += monotonic() - began
        if self._hooks is not None and attempt.call.hook_state is not None:
            values = self._hooks.finish(attempt, values)
        return values


def _models(routes: EndpointRoutes) -> Iterator[ServedModel]:
    """All versions that may answer an endpoint's requests."""
    for target in routes.targets:
        yield target.model
    if routes.shadow is not None:
        yield routes.shadow.target.model
    yield from routes.versions.values()
