"""Versions that claim stable's vector space: how often ``sameSpace`` refuses one, and after what.

Texts lie around topics in a space of few dimensions within a wider one, as those of real models do.
Neighbours and verdicts are the gateway's and the controller's own, window by window; a vector of
another precision is off in a direction of its own, one of a fine-tuned version by one map for all
texts. A version on the line has nine texts in ten alike.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.rollout import Checks, RolloutSpec, SameSpaceCheck, Verdict
from contracts.windows import NEAREST, SPACE_EDGES, EvidenceCounts
from gateway.mirroring.nearest import NearestTexts
from preprocess.vectors import unit
from rollout.checks.same_space import SameSpace
from rollout.evidence import Evidence
from verdicts.findings import Finding, needed, share

Vectors = NDArray[np.float32]

WIDTH, OWN, TOPICS = 128, 24, 40
TEXTS = 16  # of a window's copied requests, together
MOST = 640  # texts, then shadow is over
CHECK = SameSpaceCheck()
_CHECKS = Checks(same_space=CHECK)
ALPHA = Evidence.begin(_CHECKS, RolloutSpec().false_rollback).alpha


@dataclass(frozen=True)
class Claim:
    """A version that claims the space.

    Attributes:
        name: the row.
        off: of each text's vector, in a direction of its own, times its length.
        tuned: of all vectors, by one map.
        lies: share of texts whose vector is another text's.
        texts: of a request, which are of one topic.
        passes: at most this share may pass; None: at most ``REFUSED`` may be refused.
    """

    name: str
    off: float = 0.0
    tuned: float = 0.0
    lies: float = 0.0
    texts: int = 1
    passes: float | None = None


CLAIMS = (
    Claim("int8 (cosine 0.995)", off=0.1),
    Claim("4 bits (cosine 0.97)", off=0.25),
    Claim("int8, 8 like texts a request", off=0.1, texts=8),
    Claim("on the line", lies=0.1, passes=0.05),
    Claim("on the line, 8 like texts a request", lies=0.1, texts=8, passes=0.05),
    Claim("fine-tuned a little (cosine 0.93)", tuned=0.4, passes=0.05),
    Claim("fine-tuned (cosine 0.8)", tuned=0.75, passes=0.05),
    Claim("another model", lies=1.0, passes=0.05),
)


def tested(rollouts: int) -> list[Finding]:
    """How so many rollouts of each claim end in shadow."""
    found = []
    for number, claim in enumerate(CLAIMS):
        ended = [_end(claim, np.random.default_rng((36, number, at))) for at in range(rollouts)]
        passed, failed = (
            np.array([verdict is each for verdict, _ in ended])
            for each in (Verdict.PASS, Verdict.FAIL)
        )
        wanted = passed if claim.passes is None else failed
        took = [at if is_so else np.inf for (_, at), is_so in zip(ended, wanted, strict=True)]
        found += [
            share(claim.name, "passed", passed, claim.passes),
            share(claim.name, "refused", failed, 0.05 if claim.passes is None else None),
            needed(claim.name, "texts until then", np.array(took, np.float64)),
        ]
    return found


def _end(claim: Claim, rng: np.random.Generator) -> tuple[Verdict, int]:
    """The verdict, and the texts until it was there."""
    draw = _texts(rng)
    turn = rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) / np.sqrt(WIDTH)
    earlier, state = NearestTexts(), SameSpace.begin()
    for asked in range(TEXTS, MOST + 1, TEXTS):
        counts: dict[int, int] = {}
        ours = draw(TEXTS // claim.texts, claim.texts)
        noise = unit(rng.normal(size=ours.shape).astype(np.float32))
        theirs = unit(ours + claim.off * noise + claim.tuned * (ours @ turn))
        others = rng.random(len(ours)) < claim.lies
        theirs[others] = draw(len(ours), 1)[others]
        cosines = np.sum(ours * theirs, axis=1).tolist()
        shared = earlier.count_shared(("1", "2"), ours, theirs)
        for cosine, count in zip(cosines, shared, strict=False):
            at = bisect_left(SPACE_EDGES, (1 - cosine) / 2) * (NEAREST + 1) + count
            counts[at] = counts.get(at, 0) + 1
        window = EvidenceCounts(requests=TEXTS // claim.texts, pair_nearness=counts)
        state = state.after_window(window, CHECK, ALPHA)
        if state.verdict is not Verdict.UNKNOWN:
            return state.verdict, asked
    return Verdict.UNKNOWN, MOST


def _texts(rng: np.random.Generator) -> Callable[[int, int], Vectors]:
    """Draws vectors of length 1, ``[requests * texts, WIDTH]``, each request's of one topic."""
    basis = np.linalg.qr(rng.normal(size=(WIDTH, OWN)))[0].T
    topics = rng.normal(size=(TOPICS, OWN))

    def draw(requests: int, texts: int) -> Vectors:
        chosen = topics[np.repeat(rng.integers(TOPICS, size=requests), texts)]
        inner = chosen + rng.normal(size=chosen.shape)
        return unit((inner @ basis).astype(np.float32))

    return draw
