"""Keeps a snapshot of MLflow that is fresh when MLflow answers, and has verdicts written to it.

It is a task of its own, so that an MLflow that hangs delays nobody. What can't be read stays as it
was last seen. What can't be written is written later, because ``write_back.py`` compares what
should be there with what is. It never decides a verdict.

MLflow is asked often while no webhook arrives, and seldom while each change that is found was told
by one. The first change that no webhook told has MLflow asked often again, until the next webhook.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from registry import metrics
from registry.errors import SourceRefusedError, SourceUnavailableError
from registry.mlflow.model_registry import (
    PAGE,
    MlflowSnapshot,
    ModelRegistry,
    RegisteredModel,
    RegisteredVersion,
)
from registry.mlflow.projection import Projection
from registry.mlflow.write_back import WriteBack

log = logging.getLogger(__name__)

_REREAD_SECONDS = 60.0  # also if nothing seems to have changed
# What a list lacks all of a sudden counts as gone once a list that is so much later lacks it too.
SECOND_LOOK_SECONDS = 30.0
# How long an empty list is not believed if models were listed before: something else than MLflow
# may have answered. It is longer than the alert on a missing MLflow takes to fire.
EMPTY_LIST_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class _VersionsSnapshot:
    """A model's versions as they were read, and what that reading was of."""

    changed: int  # of the model, as MLflow gave it before the versions were read
    at: float  # by our clock, seconds
    versions: tuple[RegisteredVersion, ...]
    created: int  # of the model, by MLflow's clock


class SourceWatch:
    """Reads MLflow, and lets the write-back write to it."""

    def __init__(
        self,
        source: ModelRegistry,
        write_back: WriteBack,
        *,
        poll_seconds: float,
        poll_with_webhooks_seconds: float = 0.0,
        workspace: str = "",
        changed: asyncio.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._write_back = write_back
        self._poll_seconds = poll_seconds
        self._seldom_seconds = max(poll_seconds, poll_with_webhooks_seconds)
        self._up = metrics.SOURCE_UP.labels(workspace)  # shown from now on
        self._round_at = metrics.SOURCE_ROUND.labels(workspace)
        self._listed = metrics.SOURCE_MODELS.labels(workspace)
        self._arrive = metrics.WEBHOOKS_ARRIVE.labels(workspace)
        self._of = f" of the workspace {workspace}" if workspace else ""
        self._changed = changed
        self._clock = clock
        self._woken = asyncio.Event()
        self._told: set[str] = set()  # models of which a webhook told, not read since
        self._asks_at = -math.inf  # MLflow, by our clock
        self._prompted = False  # the next reading was asked for, by a webhook or an endpoint
        self._webhooks_arrive = False
        self._followed: frozenset[str] = frozenset()
        self._knows_whom = False  # to follow
        self._wanted = Projection()
        self._readings: dict[str, _VersionsSnapshot] = {}
        self._models: dict[str, RegisteredModel] = {}
        self._list_at = 0.0  # all models, by our clock
        self._lost: dict[str, float] = {}  # models that lists lack, since when by our clock
        self._lost_names: dict[tuple[str, str, str], float] = {}  # the same of versions and aliases
        self._answers = True
        self.snapshot: MlflowSnapshot | None = None

    def wake(self) -> None:
        """Asks at once, and for all models: something may have changed."""
        self._list_at = 0.0
        self._prompt()

    def announce(self, model: str) -> None:
        """A webhook told of a change; asks MLflow for this model at once, or for all if empty.

        What the webhook says of the model is not believed.
        """
        self._webhooks_arrive = True
        self._arrive.set(1)
        if model and len(self._told) < PAGE:
            self._told.add(model)
            self._prompt()
        else:
            self.wake()

    def _prompt(self) -> None:
        self._prompted = True
        self._asks_at = -math.inf
        self._woken.set()

    def follow(self, models: Iterable[str], wanted: Projection) -> None:
        """Whose versions to read, and what MLflow should say, from now on."""
        followed = frozenset(models)
        if followed - self._followed:
            self.wake()
        self._followed = followed
        self._wanted = wanted
        self._knows_whom = True

    async def run(self) -> None:
        """Rounds without end; MLflow's absence is logged once and does not end them."""
        while True:
            self._woken.clear()
            await self.attempt()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_seconds):
                    await self._woken.wait()

    async def attempt(self) -> None:
        """One round; MLflow's absence is counted, and logged once."""
        try:
            await self.round()
        except SourceUnavailableError as error:
            self._up.set(0)
            if self._answers:
                log.warning("going on with what was last seen%s: %s", self._of, error)
            self._answers = False
        except Exception:  # a mistake of ours: it must end no loop, nor another workspace's
            self._up.set(0)
            log.exception("a round with MLflow%s failed", self._of)
        else:
            self._up.set(1)
            if not self._answers:
                log.info("MLflow answers again%s", self._of)
            self._answers = True

    async def round(self) -> None:
        """Reads once if it is time to, then writes what MLflow does not know yet.

        A model whose versions can't be read keeps those that were read last, and holds up no other.

        Raises:
            SourceUnavailableError: MLflow does not answer, or not for some model.
        """
        asks = self.snapshot is None or self._clock() >= self._asks_at
        failure = await self._look() if asks else None
        snapshot = self.snapshot or MlflowSnapshot()
        self.snapshot = await self._write_back.write(snapshot, self._wanted)
        for name, written in self.snapshot.versions.items():
            self._readings[name] = replace(self._readings[name], versions=written)
        if failure is not None:
            self._asks_at = -math.inf
            raise failure
        if asks:
            self._round_at.set_to_current_time()

    async def _look(self) -> SourceUnavailableError | None:
        """Reads models and versions, and shows them; why the versions of some could not be read."""
        prompted, self._prompted = self._prompted, False
        told, self._told = self._told, set()
        # Before the first question, so that a webhook during it has MLflow asked again.
        self._asks_at = self._clock() + self._seldom_seconds if self._webhooks_arrive else -math.inf
        try:
            models = self._models = await self._known_models(told)
        except SourceUnavailableError:
            self._prompted, self._asks_at = self._prompted or prompted, -math.inf
            self._told |= told
            raise
        if lost := (*self._lost.values(), *self._lost_names.values()):
            self._look_soon(self._clock() - max(lost))
        for name in told & self._readings.keys():
            self._readings[name] = replace(self._readings[name], at=-math.inf)
        followed = sorted(self._followed & models.keys())
        self._readings = {name: it for name, it in self._readings.items() if name in followed}
        failure: SourceUnavailableError | None = None
        for name in followed:
            try:
                await self._read(models[name])
            except SourceUnavailableError as error:
                failure = failure or error
        versions = {name: reading.versions for name, reading in self._readings.items()}
        snapshot = MlflowSnapshot(models, versions, self._doubted_models)
        told_of = prompted or self._prompted  # or a webhook that came meanwhile
        if self._webhooks_arrive and not told_of and _has_news(self.snapshot, snapshot):
            log.info("MLflow changed, and no webhook told of it: it is asked often again")
            self._webhooks_arrive, self._asks_at = False, -math.inf
            self._arrive.set(0)
        self._show(snapshot)
        return failure

    def _look_soon(self, lost_for: float) -> None:
        """Has all models listed again in time for a second look at what a list has just lost."""
        if lost_for < SECOND_LOOK_SECONDS:
            soon = self._clock() + SECOND_LOOK_SECONDS
            self._asks_at, self._list_at = min(self._asks_at, soon), min(self._list_at, soon)

    async def _known_models(self, told: Iterable[str]) -> dict[str, RegisteredModel]:
        """All models: listed, or as they were listed and with those that changed since.

        Models of which webhooks ``told`` are asked for by name, because a moved alias is no change
        of a model. A list of many pages is asked for once in that number of rounds, so that
        MLflow answers about two pages a round however many models it has. Up to one page, every
        round asks for all.
        """
        now = self._clock()
        if self._models and now < self._list_at:
            newest = max(model.changed for model in self._models.values())
            try:
                changed = await self._source.changed_models(newest)
            except SourceRefusedError as error:
                log.info("all models are listed instead: %s", error)
            else:
                # Such an answer says nothing of what lists lack.
                known = {n: it for n, it in self._models.items() if n not in self._lost}
                known |= {model.name: self._with_lost_aliases(model) for model in changed}
                for name in told:
                    model = await self._source.model(name)
                    known.pop(name, None)
                    if model is not None:
                        known[name] = self._with_lost_aliases(model)
                return self._confirm_list(known)
        listed = await self._source.models()
        models = self._confirm_list({it.name: self._with_lost_aliases(it) for it in listed})
        self._list_at = now + self._poll_seconds * (len(models) // PAGE)
        self._listed.set(len(models))
        return models

    def _confirm_list(self, listed: dict[str, RegisteredModel]) -> dict[str, RegisteredModel]:
        """The models of a list, and those that it lost and only one look has missed so far.

        Raises:
            SourceUnavailableError: it is empty, and was not before, or endpoints serve versions.
        """
        now = self._clock()
        missing = (self._models.keys() | self._followed) - listed.keys()
        self._lost = {name: self._lost.get(name, now) for name in missing}
        gone_for = {name: now - since for name, since in self._lost.items()}
        if not listed and not self._knows_whom:
            raise SourceUnavailableError(
                "MLflow lists no models, and whether endpoints serve any is not known yet"
            )
        expected = len(self._models) or len({tags.model for tags in self._wanted.tags})
        empty_for = math.inf if listed else min(gone_for.values(), default=math.inf)
        if expected and empty_for < EMPTY_LIST_SECONDS:
            raise SourceUnavailableError(
                f"MLflow lists no models, and there were {expected}: something else may have "
                "answered"
            )
        kept = {
            name: known
            for name, known in self._models.items()
            if name in gone_for and gone_for[name] < SECOND_LOOK_SECONDS
        }
        return listed | kept

    @property
    def _doubted_models(self) -> frozenset[str]:
        """Models that endpoints follow, that were never seen, and that only one look has missed."""
        now = self._clock()
        return frozenset(
            name
            for name, since in self._lost.items()
            if name not in self._models and now - since < SECOND_LOOK_SECONDS
        )

    async def _read(self, model: RegisteredModel) -> None:
        """Reads a model's versions if they may be others than those that were read last."""
        known = self._readings.get(model.name)
        if known is not None and known.created != model.created:
            known = None  # another model under its name: that one's versions are not lost
            del self._readings[model.name]
        as_known = known is not None and known.changed == model.changed
        if known is not None and as_known and self._clock() - known.at < _REREAD_SECONDS:
            return
        listed = await self._source.versions(model.name)
        versions = self._with_lost(model.name, listed)
        # One that lost something is asked for again at the next round.
        at = self._clock() if versions == listed else -math.inf
        self._readings[model.name] = _VersionsSnapshot(model.changed, at, versions, model.created)

    def _with_lost(
        self, model: str, listed: tuple[RegisteredVersion, ...]
    ) -> tuple[RegisteredVersion, ...]:
        """The versions of a list, and those that it lost and only one look has missed so far."""
        known, numbers = self._readings.get(model), {item.number for item in listed}
        before = {} if known is None else {item.number: item for item in known.versions}
        kept = [before[number] for number in self._list_doubted("version", model, before, numbers)]
        if not kept:
            return listed
        return tuple(sorted((*listed, *kept), key=lambda item: int(item.number), reverse=True))

    def _with_lost_aliases(self, model: RegisteredModel) -> RegisteredModel:
        """The model as it was read, and the aliases that only one look has missed so far."""
        known = self._models.get(model.name)
        before = known.aliases if known is not None and known.created == model.created else {}
        if before.keys() <= model.aliases.keys() and not self._lost_names:
            return model
        doubted = self._list_doubted("alias", model.name, before, model.aliases)
        return replace(model, aliases={**{it: before[it] for it in doubted}, **model.aliases})

    def _list_doubted(
        self, kind: str, model: str, before: Iterable[str], listed: Container[str]
    ) -> list[str]:
        """What was there before, and only one look has missed so far."""
        now, lost = self._clock(), self._lost_names
        missing = {(kind, model, name) for name in before if name not in listed}
        others = {key: since for key, since in lost.items() if key[:2] != (kind, model)}
        self._lost_names = others | {key: lost.get(key, now) for key in missing}
        return [key[2] for key in missing if now - lost.get(key, now) < SECOND_LOOK_SECONDS]

    def _show(self, snapshot: MlflowSnapshot) -> None:
        if snapshot != self.snapshot:
            self.snapshot = snapshot
            self._changed.set()


def _has_news(before: MlflowSnapshot | None, now: MlflowSnapshot) -> bool:
    """Whether something is new of which MLflow sends webhooks: a model, a version, an alias."""
    if before is None:
        return False
    for name, model in now.models.items():
        known = before.models.get(name)
        if known is None or known.aliases != model.aliases:
            return True
    for name, versions in now.versions.items():
        seen = before.versions.get(name)
        if seen is None:  # followed since
            continue
        if {item.identity for item in versions} - {item.identity for item in seen}:
            return True
    return False
