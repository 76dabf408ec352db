"""Every dialect of every gateway gives a text the same answer, whatever else is in its batch."""

import itertools
from collections import Counter
from collections.abc import Sequence

import httpx
import numpy as np
import pytest
from running_stack import EXAMPLE_ENDPOINT, RunningStack
from traffic import OIP_GRPC, Reply, Traffic, Way

from headrace.stack.state import GatewayRecord

pytestmark = pytest.mark.real

AGREE = 1e-3  # what rounding to JSON and another batch may change
DIALECTS = ("huggingface", "kserve_v1", "oip_http", OIP_GRPC)


def together(gateway: GatewayRecord, texts: list[str]) -> list[tuple[str, float]]:
    """The best label of each text and its score, of one request."""
    url = f"{gateway.url}/endpoints/{EXAMPLE_ENDPOINT}"
    answer = httpx.post(url, json={"inputs": texts}, timeout=60)
    answer.raise_for_status()
    best = [row[0] if isinstance(row, list) else row for row in answer.json()]
    return [(row["label"], row["score"]) for row in best]


def test_all_dialects_give_the_same_labels_and_scores_at_every_gateway(
    stack: RunningStack, texts: list[str]
) -> None:
    some = texts[:40]
    expected = dict(zip(some, together(stack.gateways[0], some), strict=True))
    ways = [Way(gateway, EXAMPLE_ENDPOINT, name, some)
            for gateway in stack.gateways for name in DIALECTS]  # fmt: skip

    def whole(replies: Sequence[Reply]) -> bool:
        given = Counter((reply.gateway, reply.dialect) for reply in replies)
        return all(given[way.gateway.name, way.dialect] >= len(some) for way in ways)

    with Traffic(ways, some, callers=len(ways)) as load:
        replies = load.until("every way has asked every text", 180, whole)
    for reply in replies:
        label, score = expected[reply.text]
        assert (reply.status, reply.label) == (200, label), reply
        assert reply.score == pytest.approx(score, abs=AGREE), reply


def test_a_texts_answer_does_not_depend_on_what_else_is_in_its_batch(
    stack: RunningStack, texts: list[str]
) -> None:
    some = sorted(texts, key=len)[:: len(texts) // 40][:40]
    # In turn at each gateway, and so at each Triton.
    gateways = itertools.cycle(stack.gateways)
    alone = [together(next(gateways), [text])[0][1] for text in some]
    scores = [score for _, score in together(stack.gateways[0], some)]
    np.testing.assert_allclose(alone, scores, atol=AGREE)
