"""``python -P -m bench.peers``: races Headrace against other servers, prints, writes.

``make bench BENCH=peers`` runs all of it in under an hour, once the peers are
installed, and writes the tables and pictures of ``docs/performance.md`` and
``bench/results/peers.json``. All get the same model file, texts, load generator and cores: one for
all that a peer is made of, the other for the load.
"""

import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import compiled, machine, studies
from bench.peers import model, plots
from bench.peers.entrants import HEADRACE, SUBJECTS, entrants
from bench.peers.findings import Results
from bench.peers.plan import Engine, Entrant, Timing, expected_seconds, rounds
from bench.peers.race import Race
from bench.peers.tables import shares_table, tables
from bench.plan import Plan
from headrace.stack import install

_DISTRIBUTIONS = {"infinity": "infinity-emb", "ensemble": "onnxruntime"}


def main(words: Sequence[str] | None = None) -> int:
    """Reads the command line, races, prints, writes."""
    options = _options(words)
    base = Timing(options.warm_up_seconds, options.seconds)
    chosen = [
        each
        for each in entrants(tuple(options.peers), small=options.small, shares=options.shares)
        if options.engine is None or each.engine is Engine(options.engine)
    ]
    minutes = expected_seconds(chosen, options.rounds, base) / 60
    say(f"{len(chosen)} entrants, {options.rounds} rounds: about {minutes:.0f} minutes")
    described = machine.describe()
    under_test, rest = machine.two_cores()
    os.sched_setaffinity(0, [rest])
    folder = options.keep or Path(tempfile.mkdtemp(prefix="peers-"))
    folder.mkdir(parents=True, exist_ok=True)
    cache = Path(options.cache).expanduser()
    plan = Plan(
        folder=folder.absolute(),
        cache=cache,
        rounds=options.rounds,
        seconds=options.seconds,
        warm_up_seconds=options.warm_up_seconds,
        under_test=under_test,
        rest=rest,
        seed=options.seed,
    )
    # So that whatever was started is ended when this process is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    try:
        race = Race(plan, model.prepare(cache, say), say, _compiled(options, chosen, plan))
        results = race.run(rounds(chosen, options.rounds, options.seed))
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    kept = {
        "machine": described,
        "rounds": options.rounds,
        "seconds": options.seconds,
        "warm_up_seconds": options.warm_up_seconds,
        "seed": options.seed,
        "compiled": race.compiled is not None,
        "took_minutes": round((time.monotonic() - began) / 60, 1),
        "versions": versions(),
        "results": results.plain(),
    }
    _write(options, results, kept)
    return 0


def _compiled(options: argparse.Namespace, chosen: Sequence[Entrant], plan: Plan) -> Path | None:
    """Headrace as its images hold it; None for the source, or where it does not take part."""
    if options.source or all(each.subject != HEADRACE for each in chosen):
        return None
    say("Compiling Headrace's hot modules")
    folder = plan.folder / "compiled"
    shutil.rmtree(folder, ignore_errors=True)
    return compiled.build(folder)


def versions() -> dict[str, str]:
    """The version of each peer that has a lock."""
    found = {}
    for subject in SUBJECTS:
        if subject.lock is not None:
            text = install.lock_file(f"peers-{subject.lock}").read_text(encoding="utf-8")
            name = _DISTRIBUTIONS.get(subject.lock, subject.lock)
            match = re.search(rf"^{re.escape(name)}==(\S+)", text, re.MULTILINE)
            found[subject.name] = "" if match is None else match[1]
    return found


def _write(options: argparse.Namespace, results: Results, kept: dict[str, object]) -> None:
    made = shares_table(results) if options.shares else tables(results, versions())
    for name, text in made.items():
        print(f"\n{name}\n\n{text}")
    if options.json is not None:
        options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if options.document is not None:
        text = options.document.read_text(encoding="utf-8")
        options.document.write_text(studies.written(text, made, "measured"), encoding="utf-8")
    if options.document is not None and not options.shares:
        plots.draw(results, options.document.parent / "images")


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m bench.peers", description=__doc__)
    names = [each.name for each in SUBJECTS]
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"some of: {', '.join(names)}")
    parser.add_argument("--engine", choices=[each.value for each in Engine], help="only this one")
    parser.add_argument(
        "--small", action="store_true", help="a few loads of each, to see that it runs"
    )
    parser.add_argument(
        "--source", action="store_true", help="Headrace as its source, without compiled modules"
    )
    parser.add_argument(
        "--shares",
        action="store_true",
        help="only the loads of the goals, and the processor time a request by process; writes "
        "that table alone",
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each, interleaved")
    parser.add_argument("--seconds", type=float, default=1.8, help="least measured time of a load")
    parser.add_argument(
        "--warm-up-seconds", type=float, default=0.3, help="least time not measured"
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--keep", type=Path, help="folder for logs, kept where a peer failed")
    parser.add_argument("--json", type=Path, help="file to write the results to")
    parser.add_argument("--document", type=Path, help="markdown whose tables are written")
    parser.add_argument(
        "--cache",
        type=Path,
        default=os.environ.get("HEADRACE_CACHE", "~/.cache/headrace"),
        help="folder of downloads (HEADRACE_CACHE)",
    )
    options = parser.parse_args(words)
    for name in options.peers:
        if name not in names:
            parser.error(f"there is no peer {name}: choose from {', '.join(names)}")
    return options


def say(line: str) -> None:
    """Tells whoever watches."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
