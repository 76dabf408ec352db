"""What the registry's controller asks of the rollouts.

It is asked in each pass right after ``plan``, so that both are one write. What
``controller/rollouts.py`` puts behind the Protocol joins the rollout machine, the checks and the
statistics; services never import each other. Nothing here decides anything.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from contracts.endpoint import ModelEndpoint
from contracts.loading import Device, DeviceKind, FailureCause, LoaderReport
from contracts.model import ModelRef
from contracts.rollout import RolloutState
from registry.reconcile.blame import Verdicts, judge


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a rollout needs to know of the registry and the Tritons.

    ``loaded`` is what ready Tritons hold, ``failures`` which versions are at fault, and why,
    ``target`` the number of the version that the spec wants now; None if that is unknown.
    """

    loaded: frozenset[ModelRef] = frozenset()
    failures: Mapping[ModelRef, str] = field(default_factory=dict)
    target: str | None = None


class Rollouts(Protocol):
    """Takes versions from ``Loaded`` to all callers, or back.

    All calls but ``closed_through`` may block for a while.
    """

    def closed_through(self, endpoint: ModelEndpoint) -> float:
        """The latest end of windows that can be judged now, unix seconds; waits for nothing."""
        ...

    def advance(self, endpoint: ModelEndpoint, around: Surroundings, now: float) -> ModelEndpoint:
        """The endpoint with its next status, and without the commands that were answered."""
        ...

    def withdraw(self, endpoint: ModelEndpoint, now: float, reason: str) -> ModelEndpoint:
        """The endpoint with its rollout ended and all callers with stable, as small as can be."""
        ...

    def evidence(self, endpoint: ModelEndpoint, state: RolloutState) -> Mapping[str, bytes]:
        """Files that show what a rollout's verdict rests on, by their names."""
        ...


@dataclass(frozen=True, slots=True)
class HeldInPool:
    """What the Tritons of one pool hold.

    ``loaders`` gave a sign of life lately; ``revision`` is another number with every change that an
    endpoint may go by. Of each ready Triton ``ready`` has what it holds, and what it goes on to
    fail to load, but for those that are sick. ``everywhere`` is what all of these hold;
    ``verdicts``: who is at fault for what was not loaded. ``idle`` is what every one holds and has
    not been asked for in a long time, ``busy`` what any holds and was asked for. ``devices``: what
    they say that they compute on. ``absent``: loaders of the pool that are silent, or whose Triton
    is, and come back.
    """

    revision: int = 0
    loaders: tuple[LoaderReport, ...] = ()
    ready: tuple[tuple[frozenset[ModelRef], frozenset[ModelRef]], ...] = ()
    everywhere: frozenset[ModelRef] = frozenset()
    verdicts: Verdicts = field(default_factory=Verdicts)
    idle: frozenset[ModelRef] = frozenset()
    busy: frozenset[ModelRef] = frozenset()
    devices: frozenset[DeviceKind] = frozenset()
    absent: frozenset[str] = frozenset()

    def around(
        self, target: str | None, routed: AbstractSet[ModelRef] = frozenset()
    ) -> Surroundings:
        """What the reports mean for a rollout.

        A Triton that is not ready gets no traffic, so that what it lacks is of no account; without
        any that is ready nothing counts as loaded. Nor does a Triton that has yet to load what
        another serves already, or failed at it at first: gateways go to the other, and callers
        would change their arm whenever a Triton is added or restarted.
        """
        awaited = {
            ref
            for ref in routed - self.everywhere
            if any(ref in has for has, _ in self.ready)
            and all(ref in has or ref not in failed for has, failed in self.ready)
        }
        return Surroundings(self.everywhere | awaited, self.verdicts.at_fault, target)


_NONE_HELD = HeldInPool()


class HeldPackages:
    """What Tritons hold, by their loaders' reports: asked for each endpoint, made once a pass."""

    def __init__(self) -> None:
        self._pools: dict[str, HeldInPool] = {}
        self._revision = 0
        self._sets: dict[int, tuple[object, frozenset[ModelRef]]] = {}  # by id of what is held

    def take(
        self,
        loaders: tuple[LoaderReport, ...],
        absent: Mapping[str, frozenset[str]] = MappingProxyType({}),
    ) -> None:
        """Takes the reports of loaders that gave a sign of life lately, and who is absent."""
        self._sets = {id(report.loaded): self._set(report) for report in loaders}
        divided: dict[str, list[LoaderReport]] = {}
        for report in loaders:
            divided.setdefault(report.pool, []).append(report)
        self._pools = {
            pool: self._take(
                self._pools.get(pool, _NONE_HELD), tuple(reports), absent.get(pool, frozenset())
            )
            for pool, reports in divided.items()
        }

    @property
    def pools(self) -> tuple[str, ...]:
        """Names of the pools that have a Triton now, in order."""
        return tuple(sorted(self._pools))

    def list_damaged(self) -> frozenset[ModelRef]:
        """The packages that some loader found damaged in the store."""
        return frozenset(
            failure.ref
            for pool in self._pools.values()
            for report in pool.loaders
            for failure in report.failed
            if failure.cause is FailureCause.DAMAGED
        )

    def of(self, pool: str) -> HeldInPool:
        """What the Tritons of a pool hold; nothing if there are none."""
        return self._pools.get(pool, _NONE_HELD)

    def _take(
        self, before: HeldInPool, loaders: tuple[LoaderReport, ...], absent: frozenset[str]
    ) -> HeldInPool:
        if _timeless(before.loaders) == _timeless(loaders) and before.absent == absent:
            return replace(before, loaders=loaders)
        self._revision += 1
        verdicts = judge(loaders, absent)
        ready = tuple(
            (self._sets[id(report.loaded)][1], frozenset(f.ref for f in report.failed if f.lasts))
            for report in verdicts.deciding(loaders)
            if report.ready
        )
        held = [has for has, _ in ready]
        everywhere = frozenset.intersection(*held) if held else frozenset()
        busy, common = set[ModelRef](), None
        for report in loaders:
            has, idle = self._sets[id(report.loaded)][1], frozenset(report.idle)
            busy |= {ref for ref in has if ref.package not in idle}
            common = has if common is None else common & has
        idle_everywhere = frozenset(common or ()) - busy
        return HeldInPool(
            self._revision,
            loaders,
            ready,
            everywhere,
            verdicts,
            idle=idle_everywhere,
            busy=frozenset(busy),
            devices=frozenset(each.device.kind for each in loaders if each.device is not None),
            absent=absent,
        )

    def _set(self, report: LoaderReport) -> tuple[object, frozenset[ModelRef]]:
        """The packages that a report names; most reports name the same as before."""
        if (known := self._sets.get(id(report.loaded))) is not None:
            return known
        return report.loaded, frozenset(model.ref for model in report.loaded)


def _timeless(loaders: tuple[LoaderReport, ...]) -> list[LoaderReport]:
    return [
        report.model_copy(update={"at": 0.0, "device": _kind_of(report.device)})
        for report in loaders
    ]


def _kind_of(device: Device | None) -> Device | None:
    """A device without the figures that are others in each report."""
    return None if device is None else Device(kind=device.kind, fault=device.fault)
