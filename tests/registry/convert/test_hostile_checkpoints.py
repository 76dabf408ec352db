"""Random checkpoints: each is served as its own library answers, or refused.

``HEADRACE_SOAK_SECONDS`` says how long: an hour if nothing is said.
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

from hostile_checkpoints import judged, spoiled, suitable
from soak_record import record

pytestmark = [
    pytest.mark.soak, pytest.mark.export, pytest.mark.timeout(7200),
    pytest.mark.filterwarnings("ignore"),
]  # fmt: skip

SECONDS = float(os.environ.get("HEADRACE_SOAK_SECONDS", "3600"))
SEED = int(os.environ.get("HEADRACE_SOAK_SEED", "0")) or random.SystemRandom().getrandbits(32)


def test_a_checkpoint_is_answered_as_its_library_does_or_refused(tmp_path: Path) -> None:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    chance, end, tried = random.Random(SEED), time.monotonic() + SECONDS, suitable()
    outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    wrong: list[dict[str, object]] = []
    count = 0
    while time.monotonic() < end:
        count += 1
        shutil.rmtree(tmp_path / "one", ignore_errors=True)
        folder, one = tmp_path / "one" / "v", chance.choice(tried)
        done = spoiled(one, folder, chance)
        outcome = judged(one, folder, tmp_path / "one" / "work")
        if outcome.wrong:
            wrong.append({"model": one.slug, "changes": done, "wrong": outcome.wrong[:300]})
        for name, _ in done:
            outcomes[name][outcome.name] += 1
        if outcome.reason:
            changed = " + ".join(name for name, _ in done)
            reasons[f"{changed}: {re.sub('[0-9]+', 'N', outcome.reason[:160])}"] += 1
    figures = {
        "seconds": SECONDS,
        "seed": SEED,
        "checkpoints": count,
        "outcomes_by_change": {name: dict(each) for name, each in sorted(outcomes.items())},
        "reasons": dict(reasons.most_common(60)),
        "wrong_in_all": len(wrong),
        "wrong": wrong[:20],
    }
    if SECONDS >= 600:
        record("hostile-checkpoints", figures)
    else:
        print(json.dumps(figures, indent=1))
    assert not wrong
