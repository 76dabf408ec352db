"""What a race found: figures of each round, the answers' likeness, and who failed and why. Pure."""

import math
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from bench.peers.plan import Engine, Entrant, Load


@dataclass(frozen=True)
class Round:
    """What one load of one visit came to.

    Attributes:
        per_second: requests answered with 200.
        in_time_per_second: those answered within the deadline.
        p50: milliseconds of those answered with 200, NaN where there were none.
        p99: likewise.
        offered_per_second: requests that were due.
        refused_per_second: answered with 408, 429, 503 or 504.
        failed: any other end, or none.
        generator_late_ms: how far the load generator was behind: small, or it was the limit.
        processor: microseconds of processor time an answered request, by what took it (see
            ``shares``); empty in results of earlier versions.
    """

    per_second: float
    in_time_per_second: float
    p50: float
    p99: float
    offered_per_second: float
    refused_per_second: float
    failed: int
    generator_late_ms: float
    processor: dict[str, float] = field(default_factory=dict)


@dataclass
class Finding:
    """One load of one peer on one engine, over the rounds."""

    subject: str
    engine: Engine
    load: Load
    rounds: list[Round] = field(default_factory=list)

    def values(self, name: str) -> list[float]:
        """A figure of each round; NaN where a round has none."""
        return [float(getattr(each, name)) for each in self.rounds]


@dataclass(frozen=True)
class Answers:
    """How like the fp32 original's a peer's vectors are; see ``comparison``."""

    subject: str
    mean_cosine: float
    least_cosine: float
    overlap: float


@dataclass(frozen=True)
class Failure:
    """A peer that could not be raced from a round on, and why."""

    subject: str
    engine: Engine
    round: int
    reason: str


@dataclass
class Results:
    """All that a race found. ``alone`` is the engine's rows a second by rows a run."""

    findings: list[Finding] = field(default_factory=list)
    answers: list[Answers] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    alone: dict[str, list[float]] = field(default_factory=dict)

    def add(self, entrant: Entrant, load: Load, found: Round) -> None:
        """Adds a round of a load."""
        finding = self.find(entrant.subject, entrant.engine, load)
        if finding is None:
            finding = Finding(entrant.subject, entrant.engine, load)
            self.findings.append(finding)
        finding.rounds.append(found)

    def find(self, subject: str, engine: Engine, load: Load) -> Finding | None:
        """The finding of a load, if there is one."""
        for each in self.findings:
            if (each.subject, each.engine, each.load) == (subject, engine, load):
                return each
        return None

    def plain(self) -> dict[str, Any]:
        """For JSON, which has no NaN."""
        plain: dict[str, Any] = without_nan(asdict(self))
        return plain


def read(plain: dict[str, Any]) -> Results:
    """What ``Results.plain`` made."""
    return Results(
        findings=[
            Finding(
                each["subject"],
                Engine(each["engine"]),
                Load(**each["load"]),
                [Round(**_with_nan(found)) for found in each["rounds"]],
            )
            for each in plain["findings"]
        ],
        answers=[Answers(**each) for each in plain["answers"]],
        failures=[
            Failure(**{**each, "engine": Engine(each["engine"])}) for each in plain["failures"]
        ],
        alone=plain["alone"],
    )


def middle(values: list[float]) -> float:
    """The median of what is known; NaN if nothing is."""
    known = [value for value in values if not math.isnan(value)]
    return median(known) if known else math.nan


def _with_nan(plain: dict[str, Any]) -> dict[str, Any]:
    return {name: math.nan if value is None else value for name, value in plain.items()}


def without_nan(value: Any) -> Any:  # noqa: ANN401 - JSON
    """The same for JSON, which has no NaN: None in its place."""
    if isinstance(value, dict):
        return {name: without_nan(each) for name, each in value.items()}
    if isinstance(value, list):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value
