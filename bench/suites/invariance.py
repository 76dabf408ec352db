"""Whether a text's answer depends on what else is in its batch: it must not, int8 included.

Each text is asked once alone, with nothing else on the way, and then several times among 64 others
in ever new company; the answers are compared. No figure here is a time.
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
AT_ONCE = 64


def run(plan: Plan) -> Report:
    """Measures and reports."""
    report = Report("invariance", f"{TEXTS} texts alone, and among {AT_ONCE} at once")
    random_ = random.Random(plan.seed)
    texts = random_.sample(corpus.replay(), TEXTS)
    worst: list[float] = []
    moved: list[float] = []
    rows: list[float] = []
    with running_stack(plan) as stack:
        alone = asyncio.run(_ask(stack, texts, 1))
        for _ in range(plan.rounds):
            order = random_.sample(range(TEXTS), TEXTS)
            before = stack.gateway
            found = asyncio.run(_ask(stack, [texts[index] for index in order], AT_ONCE))
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
    report.add("labels that changed", "texts", moved)
    report.add("rows a batch, among others", "rows", rows)
    return report


async def _ask(stack: Stack, texts: list[str], at_once: int) -> list[float]:
    """The probability of ``positive`` for each text, in order."""
    gate = asyncio.Semaphore(at_once)
    url = f"http://127.0.0.1:{stack.ports['gateway-http']}{stack.path}"
    limits = httpx.Limits(max_connections=at_once)
    async with httpx.AsyncClient(timeout=30.0, limits=limits, trust_env=False) as client:

        async def ask(text: str) -> float:
            async with gate:
                answer = await client.post(url, json={"inputs": text})
            answer.raise_for_status()
            (best,) = answer.json()
            score = float(best["score"])
            return score if best["label"] == "positive" else 1 - score

        return list(await asyncio.gather(*(ask(text) for text in texts)))
