"""``python -P -m bench.core``: microseconds of processor time a request, by part of the gateway.

With ``--document`` it writes the table of ``docs/performance.md``. With ``--beside FOLDER`` it
measures checkouts or builds beside each other, this one first: a process each, which finds its
modules in that folder first. They take turns every tenth of a second, so that all get their share
of what else the machine does. Use it before and after a change. With ``--compiled`` it builds
what the images hold, which needs a C compiler, and measures that beside the source. With ``--python
INTERPRETER``, of an environment that holds ``locks/dev.txt``, it measures this checkout on that
Python too, and with ``--compiled`` what that Python compiles.
"""

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import msgspec
import uvloop

from bench import compiled, documents, machine
from bench.core.parts import PARTS, REST, Sampler
from bench.core.subject import LOADS, WIDTH, Callers, Subject, warm_up

_CHUNKS = 16  # of a round
_WARM_UP_TURNS = 150


class Chunk(msgspec.Struct):
    """Some turns of one load in one process; seconds are processor time a request.

    ``turns`` has a figure a turn, ``loop`` the mean of the event loop's thread alone. ``parts`` are
    shares of that thread's time; empty where nothing was sampled. ``blocks``: of memory, held by a
    request while its batch is at the engine. ``collections``: of garbage, of the youngest
    generation, for 1,000 requests.
    """

    turns: list[float]
    loop: float
    blocks: float
    collections: float
    parts: dict[str, float]


Chunks = dict[str, Chunk]  # by load


@dataclass(frozen=True)
class CandidateFolder:
    """What a process runs: its modules are found in ``folder`` first."""

    name: str
    folder: Path | None = None
    python: Path = Path(sys.executable)


THIS = CandidateFolder("this")


class Worker:
    """A process that is measured, and measures itself when it is asked."""

    def __init__(
        self, candidate: CandidateFolder, *, seconds: float, echo: bool, sampled: bool
    ) -> None:
        words = ["--worker", "--seconds", str(seconds)]
        words += ["--echo"] * echo + ["--sampled"] * sampled
        environment = dict(os.environ)
        if candidate.folder is not None:
            environment["PYTHONPATH"] = str(candidate.folder.resolve())
        self._process = subprocess.Popen(
            [str(candidate.python), "-P", "-m", "bench.core", *words],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def chunk(self) -> Chunks:
        """Some turns of each load."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the pipes are missing")
        stdin.write("\n")
        stdin.flush()
        said = stdout.readline()
        if not said:
            raise RuntimeError("the measured process has ended; its words are above")
        return msgspec.json.decode(said, type=Chunks)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


async def _work(options: argparse.Namespace, triton: str | None) -> None:
    """Measures a chunk for each line of standard input, and prints it."""
    seconds, sampled = options.seconds, options.sampled
    with tempfile.TemporaryDirectory(prefix="bench-core-") as home:
        subject = Subject(Path(home), triton)
        await subject.start()
        everybody = [subject.callers(load) for load in LOADS]
        await warm_up(everybody, _WARM_UP_TURNS)
        while await asyncio.to_thread(sys.stdin.readline):
            chunks: Chunks = {}
            for load, callers in zip(LOADS, everybody, strict=True):
                blocks = await subject.blocks_a_request(callers, load)
                sampler = Sampler() if sampled else None
                chunks[load.name] = await _chunk(callers, load.callers, seconds, blocks, sampler)
            print(msgspec.json.encode(chunks).decode(), flush=True)
        for each in everybody:
            each.close()
        await subject.stop()


async def _chunk(
    callers: Callers, asked: int, seconds: float, blocks: float, sampler: Sampler | None
) -> Chunk:
    turns: list[float] = []
    spent = loop = 0.0
    before = gc.get_stats()[0]["collections"]
    while spent < seconds:
        cost = await callers.turn()
        turns.append(cost.seconds / asked)
        spent += cost.seconds
        loop += cost.loop_seconds
    requests = asked * len(turns)
    collections = gc.get_stats()[0]["collections"] - before
    # Turns of their own: the samples' timer makes the kernel count a process's time coarsely.
    parts = {} if sampler is None else await _sampled(callers, seconds, sampler)
    whole = sum(parts.values())
    return Chunk(
        turns=turns,
        loop=loop / requests,
        blocks=blocks,
        collections=1000 * collections / requests,
        parts={part: taken / whole for part, taken in parts.items()},
    )


async def _sampled(callers: Callers, seconds: float, sampler: Sampler) -> dict[str, float]:
    spent = 0.0
    sampler.open()
    try:
        while spent < seconds:
            spent += (await callers.turn(sampler)).loop_seconds
    finally:
        sampler.close()
    return sampler.seconds


@contextmanager
def _instant_triton() -> Iterator[str]:
    command = [sys.executable, "-P", "-m", "bench.core.instant_triton", str(WIDTH)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the pipes are missing")
        yield f"127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()


def _worker(options: argparse.Namespace) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with ExitStack() as stack:
        triton = None if options.echo else stack.enter_context(_instant_triton())
        uvloop.run(_work(options, triton))


def table(found: Sequence[Chunks]) -> str:
    """Microseconds a request by part, medians, in markdown."""
    loads = [[each[load.name] for each in found] for load in LOADS]
    lines = ["| microseconds a request | " + " | ".join(load.name for load in LOADS) + " |"]
    lines.append("|---" * (1 + len(LOADS)) + "|")

    def line(what: str, values: Sequence[float], digits: int = 1) -> None:
        lines.append(f"| {what} | " + " | ".join(f"{each:,.{digits}f}" for each in values) + " |")

    whole = [1e6 * median(turn for each in chunks for turn in each.turns) for chunks in loads]
    means = [[sum(each.turns) / len(each.turns) for each in chunks] for chunks in loads]
    # Of the mean, which all parts add up to, each part has the same share as of the median.
    loop = [
        all_ * median(each.loop / mean for each, mean in zip(chunks, own, strict=True))
        for all_, chunks, own in zip(whole, loads, means, strict=True)
    ]
    for part in (*PARTS, REST):
        shares = [
            sum(each.parts.get(part, 0.0) for each in chunks) / len(chunks) for chunks in loads
        ]
        line(part, [share * each for share, each in zip(shares, loop, strict=True)])
    line("other threads", [max(0.0, a - b) for a, b in zip(whole, loop, strict=True)])
    line("**all**", whole)
    line("**all, a text**", [each / load.texts for each, load in zip(whole, LOADS, strict=True)])
    line("blocks of memory held while the engine computes",
         [median(each.blocks for each in chunks) for chunks in loads], 0)  # fmt: skip
    line("collections of garbage, 1,000 requests",
         [median(each.collections for each in chunks) for chunks in loads])  # fmt: skip
    return "\n".join(lines)


def _by_part(options: argparse.Namespace) -> None:
    found: list[Chunks] = []
    for _ in range(options.rounds):
        with Worker(THIS, seconds=options.seconds, echo=options.echo, sampled=True) as worker:
            found += [worker.chunk() for _ in range(_CHUNKS)]
    made = table(found)
    print(made)
    if options.json is not None:
        kept = {"machine": machine.describe(), "chunks": msgspec.to_builtins(found)}
        options.json.write_text(json.dumps(kept) + "\n", encoding="utf-8")
    if options.document is not None:
        document = options.document.read_text(encoding="utf-8")
        written = documents.written(document, {"core": made}, "measured")
        options.document.write_text(written, encoding="utf-8")


def _compare(options: argparse.Namespace, candidates: Sequence[CandidateFolder]) -> None:
    """The candidates in turns, and their ratios to the first of one moment."""
    found: list[list[Chunks]] = [[] for _ in candidates]
    for _ in range(options.rounds):
        with ExitStack() as stack:
            workers = [
                stack.enter_context(
                    Worker(each, seconds=options.seconds, echo=options.echo, sampled=False)
                )
                for each in candidates
            ]
            for number in range(_CHUNKS):
                order = list(range(len(workers)))
                for at in order if number % 2 == 0 else reversed(order):
                    found[at].append(workers[at].chunk())
    for load in LOADS:
        first = candidates[0].name
        print(f"{load.name}: microseconds a request, median and tenth of turns; ratio to {first}")
        for candidate, chunks in zip(candidates, found, strict=True):
            turns = [1e6 * turn for each in chunks for turn in each[load.name].turns]
            low, middle, high = quantiles(
                [
                    median(own[load.name].turns) / median(here[load.name].turns)
                    for own, here in zip(chunks, found[0], strict=True)
                ],
                n=4,
            )
            tenth = quantiles(turns, n=10)[0]
            ratio = f"{middle:.3f}, quartiles {low:.3f} to {high:.3f}"
            print(f"  {candidate.name}: {median(turns):.1f}, {tenth:.1f}; {ratio}")


def candidates(
    beside: Sequence[Path], pythons: Sequence[Path], build: Callable[[Path], Path] | None = None
) -> list[CandidateFolder]:
    """This checkout, the folders, and this checkout on the other Pythons; with what each compiles.

    ``build`` compiles with an interpreter and gives the folder.
    """
    here = Path(sys.executable)
    made = [THIS, *(CandidateFolder(str(each), each) for each in beside)]
    if build is not None:
        made.append(CandidateFolder("compiled", build(here)))
    for python in pythons:
        made.append(CandidateFolder(str(python), compiled.ROOT, python))
        if build is not None:
            made.append(CandidateFolder(f"compiled, {python}", build(python), python))
    return made


def main() -> int:
    """Reads the command line, measures, prints, writes."""
    parser = argparse.ArgumentParser(prog="python -P -m bench.core", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=5, help="processes of each, one after the other")
    add("--seconds", type=float, default=0.1, help="of processor time, of a load in a chunk")
    add("--echo", action="store_true", help="an echo in the process in place of gRPC")
    add("--beside", type=Path, action="append", default=[], help="a checkout or build to compare")
    add("--compiled", action="store_true", help="compare with the compiled modules of the images")
    add("--python", type=Path, action="append", default=[], help="another Python to compare")
    add("--document", type=Path, help="markdown whose table is written")
    add("--json", type=Path, help="file of all rounds")
    add("--worker", action="store_true", help=argparse.SUPPRESS)
    add("--sampled", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _worker(options)
    elif options.beside or options.python or options.compiled:
        with tempfile.TemporaryDirectory(prefix="bench-core-") as folder:

            def build(python: Path) -> Path:
                return compiled.build(Path(tempfile.mkdtemp(dir=folder)) / "compiled", python)

            made = candidates(options.beside, options.python, build if options.compiled else None)
            _compare(options, made)
    else:
        _by_part(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
