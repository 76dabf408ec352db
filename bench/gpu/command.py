"""``python -P -m bench gpu``: the engine alone, then Headrace and the Triton ensemble, on a GPU.

``make bench BENCH=gpu`` runs all of it and writes the tables of ``docs/performance.md`` and
``bench/results/gpu.json``. ``--device cpu`` takes the same steps on the CPU, to see that they work.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench import machine, studies
from bench.gpu import device, grid, paths
from bench.gpu.device import Kind, Layout
from bench.gpu.tables import Found, Results, tables
from bench.peers import environments, model
from bench.peers.entrants import ENSEMBLE, HEADRACE, subject
from bench.peers.findings import without_nan
from bench.peers.plan import PATIENT_SECONDS, Engine
from bench.peers.subjects import Site
from bench.plan import Plan
from contracts.endpoint import Precision

_PRECISIONS = {
    Kind.GPU: (Precision.FP32, Precision.FP16, Precision.INT8),
    Kind.CPU: (Precision.INT8,),
}


def main(words: Sequence[str]) -> int:
    """Reads the command line, measures, prints, writes."""
    options = _options(words)
    kind = Kind(options.device)
    gpu = device.gpu() if kind is Kind.GPU else None
    if kind is Kind.GPU and gpu is None:
        print(device.NO_GPU, file=sys.stderr)
        return 1
    described, cores = machine.describe(), sorted(os.sched_getaffinity(0))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    folder = options.keep or Path(tempfile.mkdtemp(prefix="gpu-"))
    seconds = 2.0 if options.small else options.seconds
    plan = Plan(folder.absolute(), options.cache.expanduser(), 1 if options.small else 3, seconds)
    chosen = options.precision or _PRECISIONS[kind]
    run = _Run(plan, kind, cores, small=options.small)
    try:
        found = [run.precision(Precision(each)) for each in chosen]
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    results = Results(described, gpu, found)
    made = tables(results)
    for name, text in made.items():
        print(f"\n{name}\n\n{text}")
    if options.json is not None:
        kept = without_nan({"device": kind, **asdict(results)})
        options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if options.document is not None:
        text = studies.written(options.document.read_text(encoding="utf-8"), made, "measured")
        options.document.write_text(text, encoding="utf-8")
    return 0


@dataclass
class _Run:
    plan: Plan
    kind: Kind
    cores: Sequence[int]
    small: bool

    def precision(self, precision: Precision) -> Found:
        """All steps with the model of one precision."""
        found = Found(precision)
        prepared = model.prepare(self.plan.cache, _say, precision)
        layouts = [
            each
            for count in (paths.GATEWAYS[:2] if self.small else paths.GATEWAYS)
            if (each := device.layout(self.cores, count, shared=self.small)) is not None
        ]
        os.sched_setaffinity(0, layouts[0].load)
        site = self._site(HEADRACE, prepared, layouts[0], f"{precision}-engine")
        interpreter = Path(sys.executable)
        if site.environment is not None:
            interpreter = site.environment / "bin" / "python"
        found.versions = device.runtime(interpreter, prepared.package, site.path, self.kind)
        _say(f"{precision}: the engine alone")
        batches = grid.grid(small=self.small)
        found.points, told = grid.measure(site, batches, self.plan.seconds / 5)
        found.versions |= told
        callers = paths.SMALL_CALLERS if self.small else paths.CALLERS
        for number in range(self.plan.rounds):
            for layout in layouts:
                for who in (HEADRACE, ENSEMBLE):
                    count = len(layout.gateways)
                    _say(f"{precision}, round {number + 1}: {who}, gateways: {count}")
                    name = f"{precision}-{number}-{count}-{who[:4]}"
                    site = self._site(who, prepared, layout, name)
                    judge = who not in found.likeness
                    new, like = paths.visit(who, site, layout, self.plan, callers, judge=judge)
                    found.add(new)
                    if like is not None:
                        found.likeness[who] = like
        return found

    def _site(self, who: str, prepared: model.Prepared, layout: Layout, name: str) -> Site:
        folder = self.plan.folder / name
        folder.mkdir(parents=True)
        lock = "gpu" if self.kind is Kind.GPU else subject(who).lock
        site = Site(
            folder=folder,
            cache=self.plan.cache,
            model=prepared,
            engine=Engine.REAL,
            cores=layout.engine,
            rest=layout.load,
            deadline_seconds=PATIENT_SECONDS,
            environment=None if lock is None else environments.ensure(lock, self.plan.cache, _say),
            path=environments.importable(self.plan.folder / "path"),
            gateways=layout.gateways,
            gpu=self.kind is Kind.GPU,
        )
        if who == HEADRACE:
            return site
        together = {*layout.engine, *(core for cores in layout.gateways for core in cores)}
        return replace(site, cores=sorted(together))


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m bench gpu", description=__doc__)
    parser.add_argument("--device", choices=[each.value for each in Kind], default=Kind.GPU.value)
    parser.add_argument("--small", action="store_true", help="a little, to see that it runs")
    known = [each.value for each in _PRECISIONS[Kind.GPU]]
    parser.add_argument("--precision", nargs="+", choices=known, help="only these")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time of a load")
    parser.add_argument("--keep", type=Path, help="folder for logs, kept")
    parser.add_argument("--json", type=Path, help="file to write the results to")
    parser.add_argument("--document", type=Path, help="markdown whose tables are written")
    cache = Path(os.environ.get("HEADRACE_CACHE", "~/.cache/headrace"))
    parser.add_argument("--cache", type=Path, default=cache, help="folder of downloads")
    options = parser.parse_args(words)
    if options.document is not None and (options.small or options.device == Kind.CPU):
        parser.error("the document has tables of whole runs on a GPU alone: leave out --document")
    return options


def _say(line: str) -> None:
    print(line, flush=True)
