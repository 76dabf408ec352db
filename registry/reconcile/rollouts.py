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

    def evidence(self, endpoint: ModelEndpoint, state: RolloutState) -> Mapping[str, bytes]:
        """Files that show what a rollout's verdict rests on, by their names."""
        ...


def surroundings(
    loaders: Iterable[LoaderReport],
    target: str | None,
    routed: AbstractSet[ModelRef] = frozenset(),
) -> Surroundings:
    """What the loaders' reports mean for a rollout.

    A Triton that is not ready gets no traffic, so that what it lacks is of no account; without any
    that is ready nothing counts as loaded. Nor does a Triton that has yet to load what another
    serves already: gateways go to the other, and callers would change their arm for some seconds
    whenever a Triton is added.

    Args:
        loaders: those that gave a sign of life lately.
        target: version number that the spec wants, None where unknown.
        routed: packages that the endpoint's requests go to now.
    """
    reports = tuple(loaders)
    ready = [report for report in reports if report.ready]
    held = [frozenset(model.ref for model in report.loaded) for report in ready]
    awaited = [routed - {failure.ref for failure in report.failed} for report in ready]
    failures = {
        failure.ref: f"Triton refused it: {failure.reason}"
        for report in reports
        for failure in report.failed
        if failure.by_version
    }
    loaded = (
        ref
        for ref in frozenset[ModelRef]().union(*held)
        if all(ref in has or ref in waits for has, waits in zip(held, awaited, strict=True))
    )
    return Surroundings(frozenset(loaded), failures, target)
