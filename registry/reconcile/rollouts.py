"""What the registry's controller asks of the rollouts.

It is asked in each pass right after ``plan``, so that both are one write. What
``controller/rollouts.py`` puts behind the Protocol joins the rollout machine, the checks and the
statistics; services never import each other. Nothing here decides anything.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol

from contracts.endpoint import ModelEndpoint
from contracts.loading import LoaderReport
from contracts.model import ModelRef
from contracts.rollout import RolloutState


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a rollout needs to know of the registry and the Tritons.

    ``loaded`` is what ready Tritons hold, ``failures`` why a Triton refused a package for good,
    ``target`` the number of the version that the spec wants now; None where that is unknown.
    """

    loaded: frozenset[ModelRef] = frozenset()
    failures: Mapping[ModelRef, str] = field(default_factory=dict)
    target: str | None = None


class Rollouts(Protocol):
    """Takes versions from ``Loaded`` to all callers, or back. Both calls may block for a while."""

    def advance(self, endpoint: ModelEndpoint, around: Surroundings, now: float) -> ModelEndpoint:
        """The endpoint with its next status, and without the commands that were answered."""
        ...

    def withdrawn(self, endpoint: ModelEndpoint, now: float, reason: str) -> ModelEndpoint:
        """The endpoint with its rollout ended and all callers with stable, as small as can be."""
        ...

    def evidence(self, endpoint: ModelEndpoint, state: RolloutState) -> Mapping[str, bytes]:
        """Files that show what a rollout's verdict rests on, by their names."""
        ...


class HeldPackages:
    """What Tritons hold, by their loaders' reports: asked for each endpoint, made once a pass.

    ``revision`` is another number with every change that an endpoint may go by.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.loaders: tuple[LoaderReport, ...] = ()
        self._sets: dict[int, tuple[object, frozenset[ModelRef]]] = {}  # by id of what is held
        self._ready: tuple[tuple[frozenset[ModelRef], frozenset[ModelRef]], ...] = ()
        self._everywhere: frozenset[ModelRef] = frozenset()
        self._failures: Mapping[ModelRef, str] = {}

    def take(self, loaders: tuple[LoaderReport, ...]) -> None:
        """Takes the reports of loaders that gave a sign of life lately."""
        before = tuple(report.model_copy(update={"at": 0.0}) for report in self.loaders)
        if before != tuple(report.model_copy(update={"at": 0.0}) for report in loaders):
            self.revision += 1
            self._read(loaders)
        self.loaders = loaders

    def _read(self, loaders: tuple[LoaderReport, ...]) -> None:
        sets = {id(report.loaded): self._set(report) for report in loaders}
        self._sets = sets
        self._ready = tuple(
            (sets[id(report.loaded)][1], frozenset(failure.ref for failure in report.failed))
            for report in loaders
            if report.ready
        )
        held = [has for has, _ in self._ready]
        self._everywhere = frozenset.intersection(*held) if held else frozenset()
        self._failures = {
            failure.ref: f"Triton refused it: {failure.reason}"
            for report in loaders
            for failure in report.failed
            if failure.by_version
        }

    def _set(self, report: LoaderReport) -> tuple[object, frozenset[ModelRef]]:
        """The packages that a report names; most reports name the same as before."""
        if (known := self._sets.get(id(report.loaded))) is not None:
            return known
        return report.loaded, frozenset(model.ref for model in report.loaded)

    def around(
        self, target: str | None, routed: AbstractSet[ModelRef] = frozenset()
    ) -> Surroundings:
        """What the reports mean for a rollout.

        A Triton that is not ready gets no traffic, so that what it lacks is of no account; without
        any that is ready nothing counts as loaded. Nor does a Triton that has yet to load what
        another serves already: gateways go to the other, and callers would change their arm for
        some seconds whenever a Triton is added.

        Args:
            target: version number that the spec wants, None where unknown.
            routed: packages that the endpoint's requests go to now.
        """
        awaited = {
            ref
            for ref in routed - self._everywhere
            if any(ref in has for has, _ in self._ready)
            and all(ref in has or ref not in failed for has, failed in self._ready)
        }
        return Surroundings(self._everywhere | awaited, self._failures, target)


def surroundings(
    loaders: Iterable[LoaderReport],
    target: str | None,
    routed: AbstractSet[ModelRef] = frozenset(),
) -> Surroundings:
    """What loaders' reports mean for one endpoint's rollout; see ``HeldPackages.around``."""
    held = HeldPackages()
    held.take(tuple(loaders))
    return held.around(target, routed)
