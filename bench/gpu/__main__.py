"""``python -P -m bench.gpu``: Headrace on a GPU, in steps, the most telling first.

Each step is a process of its own with a time limit, and all of them have a budget: what a run had
found when it was cut off is kept in ``--results``, and a later run adds to it. ``make gpu-bundle``
brings all of it to a machine without a network. ``--device cpu --small`` takes the same steps on
the CPU, to see that they work. ``--from`` makes the tables of what another machine found.
"""

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import cast

import msgspec
import psutil

from bench import documents, machine
from bench.gpu import device, found
from bench.gpu.device import Kind
from bench.gpu.found import Part, Run
from bench.gpu.tables import tables
from bench.gpu.unpacked import Place
from headrace.stack import kafka

LIMITS = {  # seconds, in the order in which steps are taken
    "headrace": 250.0,
    "alone": 60.0,
    "ensemble": 55.0,
    "large": 100.0,
    "tests": 120.0,
    "padded": 75.0,
}
BUDGET = 570.0
WHOLE = "run.json"
_LEAST_SECONDS = 15.0
_ENDING_SECONDS = 20.0


def main(words: Sequence[str] | None = None) -> int:
    """Reads the command line, measures, prints, writes."""
    options = _options(words)
    kind = Kind(options.device)
    if options.measured is not None:
        run = msgspec.json.decode((options.measured / WHOLE).read_bytes(), type=Run)
    else:
        gpu = device.gpu() if kind is Kind.GPU else None
        if kind is Kind.GPU and gpu is None:
            print(device.NO_GPU, file=sys.stderr)
            return 1
        place = Place.around()
        described = {**machine.describe(), "gateways": _gateways()}
        run = Run(
            label=options.label,
            commit=cast("str", described["commit"]) if place is None else place.commit,
            machine=described,
            gpu=None if gpu is None else asdict(gpu),
        )
        _measure(run, options)
    results = found.read(options.json) if options.json is not None else found.Runs()
    results.put(run)
    made = tables(results.runs)
    for name, text in made.items():
        print(f"\n{name}\n\n{text}")
    if options.document is not None and run.gpu is None:
        print("The document has tables of GPUs only: nothing was written.", file=sys.stderr)
        return 1
    if options.json is not None:
        options.json.write_bytes(found.written(results))
    if options.document is not None:
        text = documents.written(options.document.read_text(encoding="utf-8"), made, "measured")
        options.document.write_text(text, encoding="utf-8")
    return 0


def _gateways() -> str:
    """How the gateways' Python is made: their speed depends on it."""
    spec = importlib.util.find_spec("gateway.batching.batcher")
    compiled = spec is not None and (spec.origin or "").endswith(".so")
    fast = "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS"))
    own, python = ("compiled" if compiled else "source"), ("with" if fast else "without")
    return f"{own}; Python built {python} optimisation"


def _measure(run: Run, options: argparse.Namespace) -> None:
    """Takes the steps, as long as the budget lasts; what is there is written after each."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a step is ended too
    began, folder = time.monotonic(), options.results
    folder.mkdir(parents=True, exist_ok=True)
    events = _has_kafka(options.cache) and options.events
    for step in options.steps:
        left = options.budget - (time.monotonic() - began)
        limit = min(LIMITS[step] * options.stretch, left - _ENDING_SECONDS)
        if limit < _LEAST_SECONDS:
            print(f"== {step}: no time left", flush=True)
            continue
        print(f"== {step}: at most {limit:.0f} s of {left:.0f}", flush=True)
        command = [
            sys.executable, "-P", "-m", "bench.gpu.steps", step, "--device", options.device,
            f"--limit={limit}", f"--results={folder}", f"--cache={options.cache}",
            f"--seconds={options.seconds}", f"--rounds={options.rounds}",
            *(["--small"] if options.small else []), *([] if events else ["--without-events"]),
        ]  # fmt: skip
        ended = bounded(command, limit)
        print(f"== {step}: {ended}", flush=True)
        run.parts = found.parts_of(folder)
        if not any(part.step == step for part in run.parts):
            run.parts.append(Part(step=step, failed=ended))
        (folder / WHOLE).write_bytes(found.written(run))


def bounded(command: Sequence[str], limit: float) -> str:
    """Runs a step; ends it, and all that it started, if it goes on for too long."""
    began = time.monotonic()
    with subprocess.Popen(command) as process:
        try:
            process.wait(limit)
        except BaseException as error:
            process.send_signal(signal.SIGTERM)  # it ends what it has started
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING_SECONDS)
            if process.poll() is None:
                below = psutil.Process(process.pid).children(recursive=True)
                for each in [process, *below]:
                    with suppress(psutil.NoSuchProcess):
                        each.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return f"was ended after {time.monotonic() - began:.0f} s"
    return f"exit status {process.returncode} after {time.monotonic() - began:.0f} s"


def _has_kafka(cache: Path) -> bool:
    """A bundle may have none; a checkout fetches it."""
    return Place.around() is None or (cache / f"kafka-{kafka.KAFKA_VERSION}.json").is_file()


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m bench.gpu", description=__doc__)
    add = parser.add_argument
    add("--device", choices=[each.value for each in Kind], default=Kind.GPU.value)
    add("--small", action="store_true", help="a little, to see that it runs")
    add("--results", type=Path, default=Path("build/gpu-results"), help="folder of what is found")
    add("--steps", nargs="+", choices=list(LIMITS), default=list(LIMITS), help="only these")
    add("--budget", type=float, default=BUDGET, help="seconds of all steps together")
    add("--stretch", type=float, default=1.0, help="by which each step's limit is multiplied")
    add("--rounds", type=int, default=3, help="of all loads")
    add("--seconds", type=float, default=2.0, help="measured time of a load")
    add("--without-events", dest="events", action="store_false", help="gateways send no events")
    add("--label", default="packed engine", help="names the column of the tables")
    add("--from", dest="measured", type=Path, help="folder of results; nothing is measured")
    add("--json", type=Path, help="file of all runs, to which this one is added")
    add("--document", type=Path, help="markdown whose tables are written")
    place = Place.around()
    usual = Path(os.environ.get("HEADRACE_CACHE", "~/.cache/headrace"))
    cache = usual if place is None else place.cache
    add("--cache", type=Path, default=cache, help="folder of downloads")
    options = parser.parse_args(words)
    options.cache = options.cache.expanduser().absolute()
    options.results = options.results.absolute()
    if options.small:
        options.rounds = 1
    if options.document is not None and (options.small or options.device == Kind.CPU):
        parser.error("the document has tables of whole runs on a GPU only: leave out --document")
    return options


if __name__ == "__main__":
    sys.exit(main())
