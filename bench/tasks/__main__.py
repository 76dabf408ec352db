"""``python -P -m bench.tasks``: reranking and token classification beside other ways to serve them.

All get one int8 graph, the same texts, load generator and core. It takes about four minutes a task
once its parts are installed and the models made (minutes, once), prints, and writes the tables and
the picture of ``docs/performance.md`` and ``bench/results/tasks.json``.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import load, machine, studies
from bench.peers import environments
from bench.peers.model import Prepared
from bench.peers.plan import Engine
from bench.peers.subjects import Running, Site
from bench.tasks import heads, judging, models
from bench.tasks.reported import draw, tables
from bench.tasks.servers.compute import Computer
from bench.tasks.ways import RANKING, TOKENS, WAYS, Rows, Way
from contracts.tasks import Task

_PATIENT_SECONDS = 60.0
_QUERIES = 10
_JUDGED_QUERIES = 2
_JUDGED_TEXTS = 96
_MANY = 16


@dataclass(frozen=True)
class Ask:
    """One load: so many callers, each with so many rows a request."""

    rows: int
    callers: int

    @property
    def name(self) -> str:
        """As tables have it."""
        return f"{_counted(self.rows, 'row')}, {_counted(self.callers, 'caller')}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


ASKS = {
    RANKING: (Ask(models.DOCUMENTS, 1), Ask(models.DOCUMENTS, 4)),
    TOKENS: (Ask(1, 1), Ask(1, 16), Ask(_MANY, 2)),
}


@dataclass
class Results:
    """What a task came to: of each way and load, figures of each round; and its answers."""

    rounds: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    answers: dict[str, dict[str, float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


def main(words: Sequence[str] | None = None) -> int:
    """Reads the command line, measures, prints, writes."""
    options = _options(words)
    described = machine.describe()
    under_test, rest = machine.two_cores()
    cache = Path(options.cache).expanduser()
    kept = _read(options.json)
    prepared = {task: models.prepare(cache, say, task) for task in options.tasks}
    os.sched_setaffinity(0, [rest])
    # So that whatever was started is ended when this process is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for task in options.tasks:
        folder = Path(tempfile.mkdtemp(prefix="tasks-"))
        try:
            race = Race(options, prepared[task], task, folder, cache, under_test, rest)
            results = race.run()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        kept[task] = {
            "machine": described,
            "rounds": options.rounds,
            "seconds": options.seconds,
            "seed": options.seed,
            "package": prepared[task].manifest.ref().package,
            **asdict(results),
        }
    made = tables(kept)
    for name, text in made.items():
        print(f"\n{name}\n\n{text}")
    if options.json is not None:
        options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if options.document is not None:
        text = options.document.read_text(encoding="utf-8")
        options.document.write_text(studies.written(text, made, "measured"), encoding="utf-8")
        draw(kept, options.document.parent / "images" / "tasks.svg")
    return 0


@dataclass
class Race:
    """All rounds of one task."""

    options: argparse.Namespace
    prepared: Prepared
    task: Task
    folder: Path
    cache: Path
    under_test: int
    rest: int
    results: Results = field(default_factory=Results)

    def run(self) -> Results:
        """Visits each way in each round, in an order that the seed makes."""
        rng = random.Random(self.options.seed)
        for number in range(self.options.rounds):
            for way in rng.sample(WAYS, len(WAYS)):
                if way.name in self.results.failures:
                    continue
                say(f"{self.task}, round {number + 1}: {way.name}")
                try:
                    place = self.folder / f"{number}-{WAYS.index(way)}"
                    self._visit(way, place, judged=number == 0)
                except Exception as error:  # noqa: BLE001 - the others go on
                    self.results.failures[way.name] = " ".join(str(error).split())[-600:]
                    say(f"  {way.name} is out: {self.results.failures[way.name]}")
        return self.results

    def _visit(self, way: Way, folder: Path, *, judged: bool) -> None:
        folder.mkdir(parents=True)
        site = Site(
            folder=folder,
            cache=self.cache,
            model=self.prepared,
            engine=Engine.REAL,
            cores=[self.under_test],
            rest=[self.rest],
            deadline_seconds=_PATIENT_SECONDS,
            environment=None
            if way.lock is None
            else environments.ensure(way.lock, self.cache, say),
            path=environments.importable(self.folder / "path"),
        )
        with ExitStack() as stack:
            running = stack.enter_context(way.start(site, self.task))
            if judged:
                self._judge(way, running)
            for ask in ASKS[self.task]:
                self._measure(way, running, ask)

    def _judge(self, way: Way, running: Running) -> None:
        """Compares a way's answers with the graph's, run here a row at a time."""
        computer = Computer(self.prepared.package, rows=1)
        rows = _requests(self.task, models.DOCUMENTS if self.task is RANKING else _MANY)
        rows = rows[: _JUDGED_QUERIES if self.task is RANKING else _JUDGED_TEXTS // _MANY]
        known: list[Any] = []
        found: list[Any] = []
        for each in rows:
            answer = _post(running, json.dumps(way.bodies[self.task](each)))
            read = way.read[self.task](answer)
            if self.task is RANKING:
                known.append(computer.rank(each))  # type: ignore[arg-type]
                found.append(read)
            else:
                known += computer.entities(each)  # type: ignore[arg-type]
                found += read
        compare = judging.scores if self.task is RANKING else judging.entities
        judged = compare(known, found)
        self.results.answers[way.name] = asdict(judged)
        if not judged.right:
            raise ValueError(f"answers otherwise than the graph: {judged}")

    def _measure(self, way: Way, running: Running, ask: Ask) -> None:
        bodies = [
            json.dumps(way.bodies[self.task](rows)) for rows in _requests(self.task, ask.rows)
        ]
        result = load.offer(
            load.Load(
                host="127.0.0.1",
                port=running.port,
                path=running.path,
                bodies=bodies,
                callers=ask.callers,
                warm_up_seconds=self.options.warm_up_seconds,
                seconds=self.options.seconds,
                timeout_seconds=_PATIENT_SECONDS,
            ),
            [self.rest],
        )
        good = result.of(200)
        self.results.rounds.setdefault(way.name, {}).setdefault(ask.name, []).append(
            {
                # Of a closed load; few large requests end within the seconds that are measured.
                "rows_per_second": 1000 * ask.callers * ask.rows / good.latency.mean,
                "mean": good.latency.mean,
                "p50": good.latency.p50,
                "p99": good.latency.p99,
                "answered": good.count,
                "failed": result.offered - good.count,
            }
        )


def _requests(task: Task, rows: int) -> list[Rows]:
    """The rows of each request."""
    if task is RANKING:
        return [
            [(query, document) for document in documents]
            for query, documents in models.queries(_QUERIES)
        ]
    known = heads.texts()
    random.Random(7).shuffle(known)
    return [known[at : at + rows] for at in range(0, len(known) - rows + 1, rows)]


def _post(running: Running, body: str) -> Any:  # noqa: ANN401 - JSON
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=_PATIENT_SECONDS)
    try:
        connection.request("POST", running.path, body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        content = reply.read()
    finally:
        connection.close()
    if reply.status != 200:
        raise RuntimeError(f"answered {reply.status}: {content[:300]!r}")
    return json.loads(content)


def _read(path: Path | None) -> dict[str, Any]:
    if path is None or not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def say(words: str) -> None:
    """A line of progress."""
    print(words, flush=True)


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m bench.tasks", description=__doc__)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"{RANKING} or {TOKENS}")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of each, interleaved")
    parser.add_argument("--seconds", type=float, default=6.0, help="measured time of a load")
    parser.add_argument("--warm-up-seconds", type=float, default=1.5, help="time not measured")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", type=Path, help="file of results; the other task's are kept")
    parser.add_argument("--document", type=Path, help="markdown whose tables are written")
    parser.add_argument(
        "--cache",
        type=Path,
        default=os.environ.get("HEADRACE_CACHE", "~/.cache/headrace"),
        help="folder of downloads (HEADRACE_CACHE)",
    )
    options = parser.parse_args(words)
    for name in options.tasks:
        if name not in ASKS:
            parser.error(f"there is no {name} here: choose from {', '.join(ASKS)}")
    options.tasks = [Task(name) for name in options.tasks] or list(ASKS)
    return options


if __name__ == "__main__":
    raise SystemExit(main())
