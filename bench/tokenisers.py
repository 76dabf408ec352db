"""``python -P -m bench.tokenisers``: memory of tokenisers, and what opening one costs all others.

All opened in one process, in threads, as gateways did it, against each opened in a process of its
own when it is asked for, within a bound. Prints a table, and writes ``tokenisers.json`` into
``bench/results``.
Each tokeniser is the one of a real model (MiniLM, 30,522 words) with a word of its own, so that no
two are equal; each has encoded the example's texts. The large ones are made: as many pieces or
merges as those of XLM-R, Llama 3 and RoBERTa have.
"""

import argparse
import asyncio
import gc
import hashlib
import itertools
import json
import multiprocessing
import os
import string
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import cast

import psutil
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from bench import corpus, machine
from contracts.manifest import PackageFile, TokenizerSpec
from contracts.tasks import Task
from gateway.packages import ServedModel
from gateway.telemetry.metrics import Metrics
from gateway.tokenising.on_demand import OnDemand
from gateway.tokenising.process import Spawner
from preprocess.tasks import HEADS
from preprocess.tokeniser_process.messages import Encode, Rows

MEBIBYTE = 1 << 20
COUNTS = (1, 50, 200)
BOUND = 256 * MEBIBYTE
SPEC = TokenizerSpec(max_tokens=256, pad_id=0, unk_id=100, vocabulary=30_522)
TICK_SECONDS = 0.001
STALL_SECONDS = 0.01
RESULTS = Path("bench/results/tokenisers.json")


def main() -> None:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(prog="python -P -m bench.tokenisers", description=__doc__)
    parser.add_argument("tokenizer", type=Path, help="tokenizer.json of the usual kind")
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="of tokenisers")
    arguments = parser.parse_args()
    usual: Path = arguments.tokenizer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    rows: list[dict[str, object]] = []
    kinds: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        folder = Path(scratch)
        for name, path in _kinds(usual, folder):
            for way, measure in (("thread", _in_thread), ("process", _in_process)):
                found = _apart(measure, [path])
                kinds.append({"kind": name, "way": way, "file": path.stat().st_size, **found})
                print(kinds[-1], flush=True)
        files = _files(usual.read_bytes(), folder, max(arguments.counts))
        for count in arguments.counts:
            for way, measure in (("all open", _here), ("on demand", _demand)):
                found = _apart(measure, files[:count])
                rows.append({"tokenisers": count, "way": way, **found})
                print(rows[-1], flush=True)
    report = {"machine": machine.describe(), "memory": rows, "opening": kinds}
    RESULTS.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _files(content: bytes, folder: Path, count: int) -> list[Path]:
    """Tokenisers of which no two are equal."""
    found = []
    for number in range(count):
        path = folder / f"{number}.json"
        path.write_bytes(content.replace(b'"[unused0]"', b'"[own%d]"' % number))
        found.append(path)
    return found


def _kinds(usual: Path, folder: Path) -> list[tuple[str, Path]]:
    letters = string.ascii_lowercase
    two = ["".join(pair) for pair in itertools.product(letters, repeat=2)]
    found = [("WordPiece, 30,522 words", usual)]
    for merges in (50_000, 128_000):
        vocabulary = {letter: at for at, letter in enumerate(letters)}
        pairs = [(each[0], each[1]) for each in two]
        joined = ((one, other) for one in two for other in two)
        pairs += itertools.islice(joined, merges - len(pairs))
        for one, other in pairs:
            vocabulary[one + other] = len(vocabulary)
        path = folder / f"bpe{merges}.json"
        Tokenizer(models.BPE(vocabulary, pairs)).save(str(path))
        found.append((f"BPE, {merges:,} merges", path))
    words = ("".join(each) for each in itertools.product(letters, repeat=5))
    scored = [("<unk>", 0.0), *((f"▁{word}", -1.0) for word in itertools.islice(words, 250_000))]
    unigram = Tokenizer(models.Unigram(scored, unk_id=0))
    unigram.normalizer = normalizers.NFKC()
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    path = folder / "unigram.json"
    unigram.save(str(path))
    found.append(("Unigram, 250,000 pieces", path))
    return found


def _apart(measure: "object", files: list[Path]) -> dict[str, float]:
    """What a measurement in a fresh process finds."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        found: dict[str, float] = pool.apply(measure, (files,))  # type: ignore[arg-type]
    return found


def _here(files: list[Path]) -> dict[str, float]:
    texts = corpus.replay()
    before = _memory()
    began = monotonic()
    kept = []
    for path in files:
        encoder = HEADS[Task.TEXT_CLASSIFICATION].encoder(path.read_bytes(), SPEC)
        encoder.encode(texts)
        kept.append(encoder)
    gc.collect()
    seconds = monotonic() - began
    return {"open": len(kept), "mebibytes": _grown(before), "seconds_each": seconds / len(files)}


def _demand(files: list[Path]) -> dict[str, float]:
    return asyncio.run(_asked(files))


async def _asked(files: list[Path]) -> dict[str, float]:
    texts = corpus.replay()
    before = _memory()
    owner = _owner(BOUND)
    began = monotonic()
    for path in files:
        answer = await owner.ask(_model(path), Encode(texts), 0, monotonic() + 600)
        if not isinstance(answer.said, Rows):
            raise TypeError(str(answer.said))
    seconds = monotonic() - began
    await asyncio.sleep(0)
    found = {
        "open": float(owner.openings - owner.closings),
        "mebibytes": _grown(before),
        "seconds_each": seconds / len(files),
    }
    await owner.close()
    return found


def _in_thread(files: list[Path]) -> dict[str, float]:
    return asyncio.run(_stalls_in_thread(files[0]))


def _in_process(files: list[Path]) -> dict[str, float]:
    return asyncio.run(_stalls_in_process(files[0]))


async def _stalls_in_thread(path: Path) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    content = path.read_bytes()  # noqa: ASYNC240 - nothing else runs yet
    encoder_of = HEADS[Task.TEXT_CLASSIFICATION].encoder
    with ThreadPoolExecutor(1) as threads:
        ticking = asyncio.create_task(_ticks(done := asyncio.Event()))
        await asyncio.sleep(0.1)
        began = monotonic()
        kept = [await loop.run_in_executor(threads, encoder_of, content, SPEC)]
        seconds = monotonic() - began
        kept.clear()
        await asyncio.sleep(0.1)
        done.set()
        stalls, longest = await ticking
    return {"seconds": seconds, "stalls": stalls, "longest_ms": 1000 * longest}


async def _stalls_in_process(path: Path) -> dict[str, float]:
    owner = _owner(1 << 34)
    small = _model(corpus.folder() / "model" / "tokenizer.json")
    await owner.ask(small, Encode(["a"]), 0, monotonic() + 600)  # what forks is there
    taken = owner.bytes
    ticking = asyncio.create_task(_ticks(done := asyncio.Event()))
    await asyncio.sleep(0.1)
    began = monotonic()
    model = _model(path)
    await owner.ask(model, Encode(["a"]), 0, monotonic() + 600)
    seconds = monotonic() - began
    mebibytes = (owner.bytes - taken) / MEBIBYTE
    owner.tend([small])
    await asyncio.sleep(0.1)
    done.set()
    stalls, longest = await ticking
    await owner.close()
    found = {"seconds": seconds, "stalls": stalls, "longest_ms": 1000 * longest}
    return found | {"mebibytes": mebibytes}


async def _ticks(done: asyncio.Event) -> tuple[int, float]:
    """How often the event loop was late by more than a hundredth of a second, and by how much."""
    stalls, longest, last = 0, 0.0, monotonic()
    while not done.is_set():
        await asyncio.sleep(TICK_SECONDS)
        now = monotonic()
        late, last = now - last - TICK_SECONDS, now
        stalls += late > STALL_SECONDS
        longest = max(longest, late)
    return stalls, longest


def _owner(most_bytes: int) -> OnDemand:
    return OnDemand(most_bytes, Spawner(os.environ), Metrics(), lambda _: None)


def _model(path: Path) -> ServedModel:
    content = path.read_bytes()
    proof = PackageFile(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
    manifest = SimpleNamespace(
        files={"tokenizer.json": proof}, task=Task.TEXT_CLASSIFICATION, tokenizer=SPEC
    )
    model = SimpleNamespace(
        manifest=manifest, tokeniser_key=proof.sha256, file=path, opened=None, name=path.name
    )
    return cast("ServedModel", model)


def _memory() -> int:
    """Of this process and all below it; what several share counts once (PSS)."""
    gc.collect()
    me = psutil.Process()
    return sum(each.memory_full_info().pss for each in (me, *me.children(recursive=True)))


def _grown(before: int) -> float:
    return (_memory() - before) / MEBIBYTE


if __name__ == "__main__":
    threading.current_thread().name = "bench"
    main()
