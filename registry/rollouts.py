"""What the registry's controller asks of the rollouts.

Called by ``controller.py`` in each pass, right after ``plan``, so that both are one write. What
``headrace/controller/rollouts.py`` puts behind the Protocol joins the rollout machine, the checks
and the statistics; services never import each other. Nothing here decides anything.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from contracts.endpoint import ModelEndpoint
from contracts.loading import LoaderReport
from contracts.model import ModelRef
from contracts.rollout import RolloutState


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a rollout needs to know of the registry and the Tritons.

    ``loaded`` is what every ready Triton holds, ``failures`` why a Triton refused a package for
    good, ``target`` the number of the version that the spec wants now; None where that is unknown.
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


def surroundings(loaders: Iterable[LoaderReport], target: str | None) -> Surroundings:
    """What the loaders' reports mean for a rollout.

    A Triton that is not ready gets no traffic, so that what it lacks is of no account; without any
    that is ready nothing counts as loaded.

    Args:
        loaders: those that gave a sign of life lately.
        target: version number that the spec wants, None where unknown.
    """
    reports = tuple(loaders)
    held = [frozenset(model.ref for model in report.loaded) for report in reports if report.ready]
    failures = {
        failure.ref: f"Triton refused it: {failure.reason}"
        for report in reports
        for failure in report.failed
        if failure.by_version
    }
    loaded = frozenset.intersection(*held) if held else frozenset()
    return Surroundings(loaded, failures, target)
