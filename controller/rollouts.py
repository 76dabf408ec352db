"""Joins the rollout machine, its judge and the statistics into what the registry asks for.

It gathers what the machine must see and hands on what it says; it decides nothing and keeps
nothing. Both calls may block, and are made in a thread.

What people ask waits as commands in an endpoint's annotations. A command stays until
``status.commands`` holds its answer; both change in one write, so that a controller that is killed
forgets none and answers none twice.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from pydantic import ValidationError

from contracts.endpoint import EndpointStatus, ModelEndpoint, Phase, rollout_spec
from contracts.endpoint_record import summary
from contracts.model import ModelRef
from contracts.profile import ReferenceProfile
from contracts.rollout import COMMAND_BY_PREFIX, COMMAND_PREFIX, Command, RolloutState
from contracts.windows import ON_THE_WAY_SECONDS, EndpointWindow
from measures.counting import CountingStatus
from registry.packages.store import PackageStore, StoreError, StoreUnavailableError
from registry.reconcile.rollouts import Surroundings
from rollout import machine, report, status_size
from rollout.context import Judge, Observation

log = logging.getLogger(__name__)

_RETRY_SECONDS = 60.0  # of a package store that failed
_MOST_PROFILES = 4096  # two a rollout: more than go on at once; versions come and go for ever


class Statistics(Protocol):
    """What knows the windows; ``stats.reading.reader.WindowsReader`` does."""

    def windows(
        self, endpoint: str, after: float, *, lateness_seconds: float | None = None
    ) -> tuple[EndpointWindow, ...] | None:
        """Closed windows, oldest first; None while they can't be known."""
        ...

    def closed_through(self, endpoint: str, lateness_seconds: float) -> float:
        """The latest end of its closed windows, unix seconds; waits for nothing."""
        ...

    def counting(self) -> CountingStatus:
        """Whether all that gateways published is in the windows."""
        ...


class JoinedRollouts:
    """``registry.reconcile.rollouts.Rollouts`` on the machine."""

    def __init__(self, judge: Judge, statistics: Statistics) -> None:
        self._judge = judge
        self._statistics = statistics

    def closed_through(self, endpoint: ModelEndpoint) -> float:
        """The latest end of windows that can be judged now, unix seconds; waits for nothing."""
        return self._statistics.closed_through(endpoint.name, _lateness_seconds(endpoint))

    def advance(self, endpoint: ModelEndpoint, around: Surroundings, now: float) -> ModelEndpoint:
        """The endpoint with its next status, and without the commands that were answered."""
        observed = Observation(
            loaded=around.loaded,
            failures=around.failures,
            target=around.target,
            windows=self._windows(endpoint),
            counting=self._statistics.counting(),
            commands=waiting_commands(endpoint.metadata.annotations),
        )
        spec, before = endpoint.rollout_spec, endpoint.status
        spec_of = partial(rollout_spec, endpoint.spec)
        status = machine.advance(spec, before, observed, now, self._judge, spec_of=spec_of)
        if status != before:
            status = self._fit_status(endpoint.name, status, now)
            _refuse_unreadable(status)
        return drop_answered_commands(endpoint.model_copy(update={"status": status}))

    def withdraw(self, endpoint: ModelEndpoint, now: float, reason: str) -> ModelEndpoint:
        """The endpoint with its rollout ended and all callers with stable, as small as can be.

        It is a summary of itself, so that no record need be written before it.
        """
        status = status_size.withdraw(endpoint.status, now, reason)
        status = summary(status.model_copy(update={"notes": ()}))
        return endpoint.model_copy(update={"status": status})

    def _fit_status(self, name: str, status: EndpointStatus, now: float) -> EndpointStatus:
        found = status_size.fit_status(status, status_size.MOST_BYTES)
        if found is None:
            bytes_ = status_size.size(status)
            reason = (
                f"its evidence needs a record of {bytes_} bytes, and {status_size.MOST_BYTES} are "
                "stored: compare fewer statistics (spec.rollout.checks.statistics)"
            )
            log.warning("%s: the rollout ends: %s", name, reason)
            return status_size.withdraw(status, now, reason)
        if found is not status:
            log.info("%s: older evidence left the record, to keep it storable", name)
        return found

    def evidence(self, endpoint: ModelEndpoint, state: RolloutState) -> Mapping[str, bytes]:
        """The report for people, and all that it shows as JSON."""
        document = report.document(endpoint, state)
        return {
            "evidence.json": json.dumps(document, indent=1, allow_nan=False).encode(),
            "report.html": report.page(endpoint, state).encode(),
        }

    def _windows(self, endpoint: ModelEndpoint) -> tuple[EndpointWindow, ...] | None:
        """What is known, if a rollout is on or may begin, or a space is kept; else unread."""
        status = endpoint.status
        waits = status.candidate is not None and status.candidate.phase is Phase.LOADED
        if status.rollout is None and not waits and not status.kept:
            return ()
        lateness = _lateness_seconds(endpoint)
        return self._statistics.windows(endpoint.name, 0.0, lateness_seconds=lateness)


def _lateness_seconds(endpoint: ModelEndpoint) -> float:
    """How long after a window's end its last event may be in Kafka."""
    return endpoint.spec.limits.timeout_seconds + ON_THE_WAY_SECONDS


def _refuse_unreadable(status: EndpointStatus) -> None:
    """A status is stored as JSON, and one that can't be read back would lose the endpoint."""
    EndpointStatus.model_validate_json(status.model_dump_json(by_alias=True))


def waiting_commands(annotations: Mapping[str, str]) -> tuple[Command, ...]:
    """The commands in an endpoint's annotations, oldest first; what is none is left out."""
    found = [command for key in annotations if (command := _read_command(key, annotations))]
    return tuple(sorted(found, key=lambda command: (command.at, command.id)))


def drop_answered_commands(endpoint: ModelEndpoint) -> ModelEndpoint:
    """Drops the commands that were answered, and what can't be read as a command."""
    answered = {outcome.id for outcome in endpoint.status.commands}
    annotations = endpoint.metadata.annotations
    kept = {}
    for key, text in annotations.items():
        if key.startswith(COMMAND_BY_PREFIX):
            continue
        if not key.startswith(COMMAND_PREFIX):
            kept[key] = text
            continue
        command = _read_command(key, annotations)
        if command is None:
            log.warning("%s: the annotation %s is no command: %s", endpoint.name, key, text)
        elif command.id not in answered:
            kept[key] = text
            by = f"{COMMAND_BY_PREFIX}{command.id}"
            kept.update({by: annotations[by]} if by in annotations else {})
    if kept == annotations:
        return endpoint
    metadata = endpoint.metadata.model_copy(update={"annotations": kept})
    return endpoint.model_copy(update={"metadata": metadata})


def _read_command(key: str, annotations: Mapping[str, str]) -> Command | None:
    """The command; its id is the key's end, and its user the one noted beside it, if one is."""
    if not key.startswith(COMMAND_PREFIX):
        return None
    try:
        command = Command.model_validate_json(annotations[key])
    except ValidationError:
        return None
    name = key.removeprefix(COMMAND_PREFIX)
    by = annotations.get(f"{COMMAND_BY_PREFIX}{name}", command.by)
    return command.model_copy(update={"id": name, "by": by})


class PackageProfiles:
    """Reference profiles out of the packages' manifests, each read once.

    After a failure the store is not asked for a minute: one that hangs holds up the pass.
    """

    def __init__(
        self,
        store: PackageStore,
        clock: Callable[[], float] = time.monotonic,
        most: int = _MOST_PROFILES,
    ) -> None:
        self._most = most
        self._store = store
        self._clock = clock
        self._known: dict[str, ReferenceProfile | None] = {}
        self._retry_at = -math.inf

    def __call__(self, ref: ModelRef) -> ReferenceProfile | None:
        """The profile; None if the package has none, or can't be read now."""
        known = self._known  # threads share it
        if ref.package not in known:
            if self._clock() < self._retry_at:
                return None
            try:
                profile = self._store.manifest(ref.package).profile
            except StoreError as error:
                log.warning("the profile of version %s can't be read: %s", ref.version, error)
                if isinstance(error, StoreUnavailableError):
                    self._retry_at = self._clock() + _RETRY_SECONDS
                return None
            if len(known) >= self._most:
                known = self._known = {}  # those that are asked for are read again
            known[ref.package] = profile
        return known[ref.package]
