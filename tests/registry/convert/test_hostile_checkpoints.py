"""Random checkpoints: each is served as its own library answers, or refused.

``HEADRACE_SOAK_SECONDS`` says how long: an hour if nothing is said.
"""

import json
import os
import random
import re
import shutil
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the export environment")

from hostile_checkpoints import UndefinedError, by_headrace, by_library, spoiled, suitable
from soak_record import record

from registry.convert.errors import ConversionError

pytestmark = [
    pytest.mark.soak, pytest.mark.export, pytest.mark.timeout(7200),
    pytest.mark.filterwarnings("ignore"),
]  # fmt: skip

SECONDS = float(os.environ.get("HEADRACE_SOAK_SECONDS", "3600"))
SEED = int(os.environ.get("HEADRACE_SOAK_SEED", "0")) or random.SystemRandom().getrandbits(32)
DIFFERENCE = 2e-4  # in float32
HALF_DIFFERENCE = 2e-2  # where the library computes in the half precision of the files
# Words of a library, or of Python, that tell nobody what to do.
MISLEADING = re.compile(r"above report|Traceback|KeyError|NoneType|object has no attribute")


def test_a_checkpoint_is_answered_as_its_library_does_or_refused(tmp_path: Path) -> None:
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    chance, end = random.Random(SEED), time.monotonic() + SECONDS
    outcomes: dict[str, Counter[str]] = {}
    reasons: Counter[str] = Counter()
    wrong: list[dict[str, object]] = []
    tried = suitable()
    while time.monotonic() < end:
        shutil.rmtree(tmp_path / "one", ignore_errors=True)
        folder, one = tmp_path / "one" / "v", chance.choice(tried)
        done = spoiled(one, folder, chance)
        said: dict[str, object] = {"model": one.slug, "changes": done}
        try:
            library = by_library(one, folder)
        except UndefinedError as error:
            library, said["library"] = None, str(error)[:200]
        try:
            ours = by_headrace(folder, tmp_path / "one" / "work")
        except ConversionError as error:
            outcome = "refused" if library is not None else "refused, as by its library"
            reason = str(error)[:160]
            reasons[
                f"{' + '.join(name for name, _ in done)}: {re.sub(r'[0-9]+', 'N', reason)}"
            ] += 1
            if MISLEADING.search(str(error)):
                wrong.append({**said, "misleads": str(error)[:300]})
        except Exception as error:  # noqa: BLE001 - a conversion must not end by any other
            outcome = "failed"
            wrong.append({**said, "failed": f"{type(error).__name__}: {error}"[:300]})
        else:
            outcome = "served"
            if library is None:
                wrong.append({**said, "served": "and its library has no answer"})
            else:
                half = "half" in str(done) or "float16" in str(done)
                least = HALF_DIFFERENCE if half else DIFFERENCE
                if ours.shape != library.shape:
                    wrong.append({**said, "shapes": [ours.shape, library.shape]})
                elif not np.allclose(ours, library, atol=least, rtol=least):
                    rows = np.abs(ours - library).max(axis=1).round(4).tolist()
                    wrong.append({**said, "differences": rows})
        for name, _ in done:
            outcomes.setdefault(name, Counter())[outcome] += 1
    figures = {
        "seconds": SECONDS,
        "seed": SEED,
        "checkpoints": sum(reasons.values()) + sum(each["served"] for each in outcomes.values()),
        "outcomes_by_change": {name: dict(each) for name, each in sorted(outcomes.items())},
        "reasons": dict(reasons.most_common()),
        "wrong": wrong[:20],
        "wrong_in_all": len(wrong),
    }
    if SECONDS >= 600:
        record("hostile-checkpoints", figures)
    else:
        print(json.dumps(figures, indent=1))
    assert not wrong
