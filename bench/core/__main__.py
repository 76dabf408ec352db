"""``python -P -m bench.core``: microseconds of processor time a request, by part of the gateway.

With ``--document`` it writes the table of ``docs/performance.md``. With ``--beside FOLDER`` it
measures checkouts or builds beside each other, this one first, in rounds that alternate: a process
each, which finds its modules in that folder first. Use it before and after a change.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import msgspec
import uvloop

from bench import machine, studies
from bench.core.parts import PARTS, REST, Sampler
from bench.core.subject import LOADS, WIDTH, Callers, Subject, warm_up

_CHUNKS = 16  # of a round; loads take turns
_WARM_UP_TURNS = 150


class Round(msgspec.Struct):
    """One process's figures of one load; seconds are processor time a request.

    ``seconds`` is the median over chunks of a round, ``least`` the least of them; ``loop`` is the
    event loop's thread alone. ``parts`` are shares of that thread's time; empty where nothing was
    sampled. ``blocks``: of memory, held by a request while its batch is at the engine.
    """

    seconds: float
    least: float
    loop: float
    blocks: float
    collections: float  # of garbage, of the youngest generation, for 1,000 requests
    parts: dict[str, float]


Rounds = dict[str, Round]  # by load


async def _measure(seconds: float, triton: str | None, *, sampled: bool) -> Rounds:
    """A round of every load in this process, each of so many seconds of processor time."""
    with tempfile.TemporaryDirectory(prefix="bench-core-") as home:
        subject = Subject(Path(home), triton)
        await subject.start()
        everybody = [subject.callers(load) for load in LOADS]
        await warm_up(everybody, _WARM_UP_TURNS)
        blocks = [
            median([await subject.blocks_a_request(callers, load) for _ in range(9)])
            for callers, load in zip(everybody, LOADS, strict=True)
        ]
        found: list[list[tuple[float, float]]] = [[] for _ in LOADS]
        collections = [0] * len(LOADS)
        turns = [0] * len(LOADS)
        for _ in range(_CHUNKS):
            for at, (load, callers) in enumerate(zip(LOADS, everybody, strict=True)):
                spent = loop = 0.0
                count = 0
                before = gc.get_stats()[0]["collections"]
                while spent < seconds / _CHUNKS:
                    cost = await callers.turn()
                    spent, loop, count = spent + cost.seconds, loop + cost.loop_seconds, count + 1
                collections[at] += gc.get_stats()[0]["collections"] - before
                turns[at] += count
                requests = count * load.callers
                found[at].append((spent / requests, loop / requests))
        parts = [await _sampled(callers, seconds) if sampled else {} for callers in everybody]
        for each in everybody:
            each.close()
        await subject.stop()
    return {
        load.name: Round(
            seconds=median(whole for whole, _ in chunks),
            least=min(whole for whole, _ in chunks),
            loop=median(loop for _, loop in chunks),
            blocks=held,
            collections=1000 * collected / (load.callers * count),
            parts=shares,
        )
        for load, chunks, held, collected, count, shares in zip(
            LOADS, found, blocks, collections, turns, parts, strict=True
        )
    }


async def _sampled(callers: Callers, seconds: float) -> dict[str, float]:
    sampler = Sampler()
    sampler.open()
    try:
        spent = 0.0
        while spent < 2 * seconds:
            spent += (await callers.turn(sampler)).seconds
    finally:
        sampler.close()
    whole = sum(sampler.seconds.values())
    return {part: taken / whole for part, taken in sampler.seconds.items()}


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


def _once(options: argparse.Namespace) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if options.echo:
        found = uvloop.run(_measure(options.seconds, None, sampled=options.sampled))
    else:
        with _instant_triton() as triton:
            found = uvloop.run(_measure(options.seconds, triton, sampled=options.sampled))
    print(msgspec.json.encode(found).decode())


def _round(options: argparse.Namespace, folder: Path | None, *, sampled: bool) -> Rounds:
    """A round in a process of its own, with the modules of a folder before all others."""
    words = ["--once", "--seconds", str(options.seconds)]
    words += ["--echo"] * options.echo + ["--sampled"] * sampled
    environment = dict(os.environ)
    if folder is not None:
        environment["PYTHONPATH"] = str(folder.resolve())
    done = subprocess.run(
        [sys.executable, "-P", "-m", "bench.core", *words],
        env=environment, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return msgspec.json.decode(done.stdout, type=Rounds)


def table(rounds: Sequence[Rounds]) -> str:
    """Microseconds a request by part, medians of the rounds, in markdown."""
    names = [load.name for load in LOADS]
    lines = ["| microseconds a request | " + " | ".join(names) + " |", "|---" * 4 + "|"]

    def line(what: str, values: Sequence[float], digits: int = 1) -> None:
        lines.append(f"| {what} | " + " | ".join(f"{each:,.{digits}f}" for each in values) + " |")

    for part in (*PARTS, REST):
        line(part, [
            1e6 * median(each[name].parts.get(part, 0.0) * each[name].loop for each in rounds)
            for name in names
        ])  # fmt: skip
    line("gRPC's own thread", [
        1e6 * median(each[name].seconds - each[name].loop for each in rounds) for name in names
    ])  # fmt: skip
    whole = [1e6 * median(each[name].seconds for each in rounds) for name in names]
    line("**all**", whole)
    line("**all, a text**", [each / load.texts for each, load in zip(whole, LOADS, strict=True)])
    line("blocks of memory held while the engine computes",
         [median(each[name].blocks for each in rounds) for name in names], 0)  # fmt: skip
    line("collections of garbage, 1,000 requests",
         [median(each[name].collections for each in rounds) for name in names])  # fmt: skip
    return "\n".join(lines)


def _compare(options: argparse.Namespace) -> None:
    """Alternating rounds of this checkout and of the folders, and their ratios within a round."""
    folders: list[Path | None] = [None, *options.beside]
    found: list[list[Rounds]] = [[] for _ in folders]
    for number in range(options.rounds):
        order = list(range(len(folders)))
        for at in order if number % 2 == 0 else reversed(order):
            found[at].append(_round(options, folders[at], sampled=False))
    for load in LOADS:
        print(f"{load.name}:")
        for folder, rounds in zip(folders, found, strict=True):
            medians = [each[load.name].seconds for each in rounds]
            leasts = [each[load.name].least for each in rounds]
            ratios = sorted(
                own[load.name].seconds / here[load.name].seconds
                for own, here in zip(rounds, found[0], strict=True)
            )
            print(
                f"  {folder or 'this'}: {1e6 * median(medians):.1f} us a request, least "
                f"{1e6 * min(leasts):.1f}; to this {median(ratios):.3f} "
                f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
            )


def main() -> int:
    """Reads the command line, measures, prints, writes."""
    parser = argparse.ArgumentParser(prog="python -P -m bench.core", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=5)
    add("--seconds", type=float, default=1.0, help="of processor time, of a load in a round")
    add("--echo", action="store_true", help="an echo in the process in place of gRPC")
    add("--beside", type=Path, action="append", default=[], help="a checkout or build to compare")
    add("--document", type=Path, help="markdown whose table is written")
    add("--json", type=Path, help="file of all rounds")
    add("--once", action="store_true", help=argparse.SUPPRESS)
    add("--sampled", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        _once(options)
        return 0
    if options.beside:
        _compare(options)
        return 0
    rounds = [_round(options, None, sampled=True) for _ in range(options.rounds)]
    made = table(rounds)
    print(made)
    if options.json is not None:
        kept = {"machine": machine.describe(), "rounds": msgspec.to_builtins(rounds)}
        options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if options.document is not None:
        document = options.document.read_text(encoding="utf-8")
        written = studies.written(document, {"core": made})
        options.document.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
