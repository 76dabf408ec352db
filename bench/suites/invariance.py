"""Whether a text's answer depends on what else is in its batch: it must not, int8 included.

Each text is asked once alone, with nothing else on the way, and then in ever new company: requests
of 1 to 64 texts, eight at once. The answers are compared. No figure here is a time.
"""

import asyncio
import random

import httpx

from bench import corpus
from bench.figures import Better, Report, Target
from bench.plan import Plan
from bench.stack import Stack, running_stack

LIMIT = Target(1e-3, Better.LESS)
TEXTS = 400
REQUESTS_AT_ONCE = 8


def run(plan: Plan) -> Report:
    """Measures and reports."""
    report = Report("invariance", f"{TEXTS} texts, each alone and in ever new company")
    random_ = random.Random(plan.seed)
    texts = random_.sample(corpus.replay(), TEXTS)
    worst: list[float] = []
    moved: list[float] = []
    rows: list[float] = []
    with running_stack(plan) as stack:
        alone = asyncio.run(_ask(stack, [[text] for text in texts], 1))
        for _ in range(plan.rounds):
            order = random_.sample(range(TEXTS), TEXTS)
            parts = _parts([texts[index] for index in order], random_)
            before = stack.gateway
            found = asyncio.run(_ask(stack, parts, REQUESTS_AT_ONCE))
            after = stack.gateway
            pairs = [(alone[index], answer) for index, answer in zip(order, found, strict=True)]
            worst.append(max(abs(a - b) for a, b in pairs))
            moved.append(float(sum((a > 0.5) != (b > 0.5) for a, b in pairs)))
            batches, held = (
                after.total(name) - before.total(name)
                for name in ("headrace_gateway_batches_total", "headrace_gateway_batch_rows_total")
            )
            rows.append(held / max(batches, 1))
    report.add("largest difference of a score", "probability", worst, LIMIT)
    distinct = float(len({round(score, 4) for score in alone}))
    report.add("distinct scores", "texts", [distinct], note="a constant answer would prove nothing")
    report.add("labels that changed", "texts", moved)
    report.add("rows a batch, in company", "rows", rows)
    return report


def _parts(texts: list[str], random_: random.Random) -> list[list[str]]:
    """Requests of 1 to 64 texts."""
    parts = []
    while texts:
        size = random_.choice((1, 2, 4, 8, 16, 32, 64))
        parts.append(texts[:size])
        texts = texts[size:]
    return parts


async def _ask(stack: Stack, requests: list[list[str]], at_once: int) -> list[float]:
    """The probability of ``positive`` for each text, in order."""
    gate = asyncio.Semaphore(at_once)
    url = f"http://127.0.0.1:{stack.ports['gateway-http']}{stack.path}"
    async with httpx.AsyncClient(timeout=30.0, trust_env=False) as client:

        async def ask(texts: list[str]) -> list[float]:
            body = {"inputs": texts, "parameters": {"top_k": None}}
            async with gate:
                answer = await client.post(url, json=body)
            answer.raise_for_status()
            return [
                next(float(each["score"]) for each in scores if each["label"] == "positive")
                for scores in answer.json()
            ]

        answers = await asyncio.gather(*(ask(texts) for texts in requests))
    return [score for scores in answers for score in scores]
