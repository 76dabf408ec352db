"""Shadow alone, by pairs and by all requests: errors and norms of copies that are no sample.

The evidence is production's (``rollout.evidence``), one rollout after another. Requests are of two
kinds, of which one may be copied more often, fail more often and have vectors of another length.
Requests are independent and nobody's, and all kinds come at steady rates.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace

from contracts.rollout import Checks, ErrorRateCheck, OutputShiftCheck, RolloutSpec, Verdict
from contracts.windows import MICRO, WINDOW_SECONDS, EvidenceCounts, Sparse
from rollout.evidence import Evidence, Stage
from verdicts.findings import Finding, needed, share
from verdicts.whole import HISTORY

SEED = 24
_FAILED, _WELL = 502, 200
_NORMS = (8, 10, 16)  # buckets: of the one kind, of the other, and of vectors that a fault changes
_LONGEST = 300  # windows in which a verdict is waited for
WAYS = ("by pairs", "by all requests")

Check = Literal["errorRate", "outputShift"]
_NONE = dict.fromkeys(Checks.model_fields)


@dataclass(frozen=True)
class Kind:
    """One kind of requests.

    Attributes:
        requests: mean of a window.
        copied: share that is copied.
        errors: share that fails, at either version by chance.
        norm: index of ``_NORMS``, of its vectors.
    """

    requests: float = 200.0
    copied: float = 1.0
    errors: float = 0.005
    norm: int = 1


@dataclass(frozen=True)
class Copied:
    """A traffic, a version, and the check that judges it.

    Attributes:
        name: for people.
        kinds: of which the traffic is made.
        check: its name.
        fails: share of the copies that fail besides.
        moves: share of the copies whose vectors become longer.
    """

    name: str
    kinds: tuple[Kind, ...]
    check: Check
    fails: float = 0.0
    moves: float = 0.0

    @property
    def is_harmful(self) -> bool:
        """Whether the version is to be found."""
        return bool(self.fails or self.moves)


_FEW = (Kind(copied=0.1),)
_SELECTED = (Kind(160.0, 0.15, 0.002), Kind(40.0, 0.75, 0.05, norm=0))
EVERY = (
    Copied("errors, identical, every request copied, 0.5 % fail", (Kind(),), "errorRate"),
    Copied("errors, identical, a tenth copied, 0.5 % fail", _FEW, "errorRate"),
    Copied(
        "errors, identical, what is copied five times as often fails in 5 %, not 0.2 %",
        _SELECTED,
        "errorRate",
    ),
    Copied("errors, 2 points more, every request copied", (Kind(),), "errorRate", fails=0.02),
    Copied("errors, 2 points more, a tenth copied", _FEW, "errorRate", fails=0.02),
    Copied("errors, 5 points more, a tenth copied", _FEW, "errorRate", fails=0.05),
    Copied("errors, every copy fails, a tenth copied", _FEW, "errorRate", fails=1.0),
    Copied("norms, identical, a tenth copied", (Kind(160, 0.1), Kind(40, 0.1, norm=0)),
           "outputShift"),
    Copied("norms, identical, what is copied five times as often has shorter vectors", _SELECTED,
           "outputShift"),
    Copied("norms, a fifth of the vectors longer, a tenth copied",
           (Kind(160, 0.1), Kind(40, 0.1, norm=0)), "outputShift", moves=0.2),
)  # fmt: skip


def copies(rollouts: int, rows: str = "") -> list[Finding]:
    """How often identical versions fail in shadow, and how many copies a verdict takes.

    Of what has ``rows`` in its name.
    """
    found = []
    for number, world in enumerate(EVERY):
        if rows not in world.name:
            continue
        for way in WAYS:
            ended = [
                _walked(world, way, np.random.default_rng([SEED, number, one]))
                for one in range(rollouts)
            ]
            failed = np.array([verdict is Verdict.FAIL for verdict, _ in ended])
            waited_for = Verdict.FAIL if world.is_harmful else Verdict.PASS
            took = np.array([seen if verdict is waited_for else np.inf for verdict, seen in ended])
            target = None if world.is_harmful or way != WAYS[0] else 0.05
            found += [
                share(world.name, f"failed, {way}", failed, target),
                needed(world.name, f"copies until then, or until it passes, {way}", took),
            ]
    return found


def _walked(world: Copied, way: str, rng: np.random.Generator) -> tuple[Verdict, float]:
    """The verdict, and copies until then: until it fails, or passes where nothing is wrong."""
    asked: dict[Check, dict[str, Any]] = {
        "errorRate": {"error_rate": ErrorRateCheck()},
        "outputShift": {"output_shift": OutputShiftCheck()},
    }
    checks = Checks(**{**_NONE, "statistics": (), **asked[world.check]})
    # As one of the four checks that gate by default.
    evidence = Evidence.begin(checks, RolloutSpec().false_rollback / 4, stage=Stage.SHADOW)
    for _ in range(HISTORY):
        evidence = evidence.with_history(window(world, rng)[1])
    seen = 0.0
    for _ in range(_LONGEST):
        candidate, stable = window(world, rng)
        if way != WAYS[0]:
            candidate = of_all_requests(candidate)
        seen += candidate.requests
        evidence = evidence.after(candidate, stable, WINDOW_SECONDS)
        verdict = evidence.verdicts[world.check]
        if verdict is Verdict.FAIL or (verdict is Verdict.PASS and not world.is_harmful):
            return verdict, seen
    return evidence.verdicts[world.check], np.inf


def window(world: Copied, rng: np.random.Generator) -> tuple[EvidenceCounts, EvidenceCounts]:
    """A window of the copies and of stable."""
    stable, candidate = EvidenceCounts(), EvidenceCounts()
    for kind in world.kinds:
        requests = int(rng.poisson(kind.requests))
        errors = _part(rng, requests, kind.errors)
        stable.requests += requests
        stable.errors += errors
        _add(stable.norms, _NORMS[kind.norm], requests - errors)
        for original, count in ((_WELL, requests - errors), (_FAILED, errors)):
            copied = _part(rng, count, kind.copied)
            lost = _part(rng, copied, 1 - (1 - kind.errors) * (1 - world.fails))
            well = copied - lost
            moved = _part(rng, well, world.moves)
            candidate.requests += copied
            candidate.errors += lost
            of_copies = candidate.pair_statuses.setdefault(original, {})
            _add(of_copies, _FAILED, lost)
            _add(of_copies, _WELL, well)
            norms = {_NORMS[kind.norm]: well - moved, _NORMS[-1]: moved}
            for norm, answers in norms.items():
                _add(candidate.norms, norm, answers)
                if original == _WELL:
                    pairs = candidate.pair_norms.setdefault(_NORMS[kind.norm], {})
                    _add(pairs, norm, answers * MICRO)
    return candidate, stable


def of_all_requests(copies: EvidenceCounts) -> EvidenceCounts:
    """Copies of gateways that tell no pairs, and mirror nothing that failed."""
    of_answered = copies.pair_statuses[_WELL]
    return replace(
        copies,
        requests=sum(of_answered.values()),
        errors=of_answered.get(_FAILED, 0),
        pair_statuses={},
        pair_norms={},
    )


def _part(rng: np.random.Generator, count: int, share_of: float) -> int:
    return int(rng.binomial(count, share_of))


def _add(counts: Sparse, key: int, more: int) -> None:
    if more:
        counts[key] = counts.get(key, 0) + more
