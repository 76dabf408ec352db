"""The example of embeddings: searches whose model is changed and changed back while they are asked.

Their stores are real ones: faiss, Qdrant's client in its local mode, and pgvector in a PostgreSQL.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from running_stack import RunningStack
from soak_record import record

pytestmark = [
    pytest.mark.real,
    pytest.mark.soak,
    pytest.mark.timeout(3600),  # two conversions, a rollout, two backfills and six indexes
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "embeddings"
STORES = {"faiss", "qdrant", "pgvector"}


@pytest.mark.parametrize("count", [2000, 10_000])
def test_no_search_meets_two_spaces_and_none_finds_less_than_before(
    stack: RunningStack, count: int
) -> None:
    path = f"{EXAMPLE}:{Path(sys.prefix) / 'vectors'}"
    done = subprocess.run(
        [sys.executable, EXAMPLE / "change_model.py", "--documents", str(count)],
        env={**stack.env, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,  # an answer of another space than an index has, or a fault, has ended it
    )
    found = json.loads(done.stdout)
    if count == 10_000:
        record("embedding-search", found)
    old, new = found["spaces"]
    parts = found["parts"]
    assert {store for part in parts.values() for store in part} == STORES
    spaces = [[part[store]["space"] for store in sorted(STORES)] for part in parts.values()]
    assert spaces == [  # of faiss, pgvector and qdrant
        [old] * 3,
        [old] * 3,
        [old] * 3,
        [new, old, old],
        [new, old, new],
        [new] * 3,
        [new] * 3,
        [old] * 3,
    ]
    assert found["recall_if_mixed"] < 0.1  # so that the recalls below say something
    for store in STORES:
        of_store = [part[store] for part in parts.values()]
        before = of_store[0]
        for each in of_store:
            # An index that is a graph finds nearly all.
            assert each["recall"] > max(0.98, before["recall"] - 0.005), (store, parts)
            if each["space"] == old:
                assert each == before, (store, parts)
            else:
                assert each["documents_found"] > before["documents_found"], (store, parts)
