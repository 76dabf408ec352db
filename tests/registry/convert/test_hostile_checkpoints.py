"""Random checkpoints: each is served as its own library answers, or refused.

A few of them by default. The soak takes an hour, or ``HEADRACE_SOAK_SECONDS``, and begins at
``HEADRACE_SOAK_SEED``.
"""

import json
import os
import random
import re
import shutil
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the export environment")

from checkpoint_changes import spoiled
from hostile_checkpoints import Outcome, judged, suitable
from soak_record import record
from tried_models import Tried

pytestmark = [pytest.mark.export, pytest.mark.filterwarnings("ignore")]

SECONDS = float(os.environ.get("HEADRACE_SOAK_SECONDS", "3600"))
SEED = int(os.environ.get("HEADRACE_SOAK_SEED", "0")) or random.SystemRandom().getrandbits(32)
FEW = 12
RECORDED_SECONDS = 600  # shorter runs are trials
Done = list[tuple[str, str]]


def one_of(chance: random.Random, tried: list[Tried], scratch: Path) -> tuple[str, Done, Outcome]:
    """A checkpoint from a seed of its own: what was done to it, and what became of it."""
    shutil.rmtree(scratch, ignore_errors=True)
    one = chance.choice(tried)
    done = spoiled(one, scratch / "v", chance)
    return one.slug, done, judged(one, scratch / "v", scratch / "work")


@pytest.mark.parametrize("seed", range(FEW))
def test_an_odd_checkpoint_is_answered_as_its_library_does_or_refused(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    slug, done, outcome = one_of(random.Random(seed), suitable(), tmp_path / "one")
    assert not outcome.wrong, (slug, done)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_no_checkpoint_of_an_hour_is_answered_otherwise_than_by_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    end, tried = time.monotonic() + SECONDS, suitable()
    outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    wrong: list[dict[str, object]] = []
    count = 0
    while time.monotonic() < end:
        seed = SEED + count
        count += 1
        slug, done, outcome = one_of(random.Random(seed), tried, tmp_path / "one")
        if outcome.wrong:
            found = {"seed": seed, "model": slug, "changes": done, "wrong": outcome.wrong[:300]}
            wrong.append(found)
            print(json.dumps(found), flush=True)
        for name, _ in done:
            outcomes[name][outcome.name] += 1
        if outcome.name == "refused":  # though the library answers
            changed = " + ".join(name for name, _ in done)
            reasons[f"{changed}: {re.sub('[0-9]+', 'N', outcome.reason[:160])}"] += 1
    figures = {
        "seconds": SECONDS,
        "seed": SEED,
        "checkpoints": count,
        "outcomes_by_change": {name: dict(each) for name, each in sorted(outcomes.items())},
        "refused_though_the_library_answers": dict(reasons.most_common(80)),
        "wrong_in_all": len(wrong),
        "wrong": wrong[:20],
    }
    if SECONDS >= RECORDED_SECONDS:
        record("hostile-checkpoints", figures)
    else:
        print(json.dumps(figures, indent=1))
    assert not wrong
