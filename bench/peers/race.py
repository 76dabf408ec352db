"""Runs the rounds: starts each peer, checks its answers, asks it, ends it.

What goes wrong with a peer is a finding, and the others go on. Whoever answers with other vectors
than the original's is not measured.
"""

import http.client
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from bench import corpus, load, processes
from bench.peers import comparison, environments, model, shares
from bench.peers.entrants import subject
from bench.peers.findings import Answers, Failure, Results, Round
from bench.peers.plan import (
    ALONE_ROWS,
    DEADLINE_SECONDS,
    ENGINE_ALONE_TIMES,
    MANY,
    PACES,
    PATIENT_SECONDS,
    Engine,
    Entrant,
    Load,
    Timing,
    timing,
)
from bench.peers.subjects import Running, Site, Subject
from bench.plan import Plan

_BEGIN_SECONDS = 120.0
_LEAST_RATE = 0.1  # of an open load on a peer that answered nothing
_SINGLE = 16  # judged texts that are asked for one by one as well


@dataclass(frozen=True)
class _Visit:
    who: Subject
    engine: Engine


@dataclass
class Race:
    """One run over all rounds."""

    plan: Plan
    prepared: model.PreparedModel
    say: Callable[[str], None]
    compiled: Path | None = None  # Headrace with compiled modules; None for the source
    results: Results = field(default_factory=Results)
    _bodies: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    _barred: set[tuple[str, Engine]] = field(default_factory=set)

    def run(self, rounds: Sequence[Sequence[Entrant]]) -> Results:
        """Visits everybody in each round."""
        for number, entrants in enumerate(rounds):
            for entrant in entrants:
                self._attempt(entrant, number)
            if any(each.engine is Engine.REAL and not each.small for each in entrants):
                self._engine_alone(ALONE_ROWS if entrants[0].shares else (1,))
        return self.results

    def _attempt(self, entrant: Entrant, number: int) -> None:
        key = (entrant.subject, entrant.engine)
        if key in self._barred:
            return
        self.say(f"round {number + 1}: {entrant.subject}, {entrant.engine}")
        folder = self.plan.folder / f"{number}-{entrant.subject[:4].strip()}-{entrant.engine[:1]}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            self._visit(entrant, number, folder)
        except Exception as error:  # noqa: BLE001 - a peer may fail in any way, and the race goes on
            reason = " ".join(str(error).split())[-600:] or type(error).__name__
            self.results.failures.append(Failure(*key, number, reason))
            self._barred.add(key)
            self.say(f"  {entrant.subject} is out: {reason}")
        else:
            shutil.rmtree(folder, ignore_errors=True)

    def _visit(self, entrant: Entrant, number: int, folder: Path) -> None:
        """Starts, judges and asks a peer; what was found is kept though a later load fails."""
        who = subject(entrant.subject)
        order = random.Random(f"{self.plan.seed} {number} {who.name} {entrant.engine}")
        visited = _Visit(who, entrant.engine)
        peak = 0.0
        with ExitStack() as stack:
            running = self._start(stack, visited, folder / "p", PATIENT_SECONDS)
            if number == 0:
                self._judge(who, entrant.engine, running)
            for each in order.sample(entrant.closed, len(entrant.closed)):
                found = self._measure(visited, running, each)
                self.results.add(entrant, each, found)
                if each.texts == 1:
                    peak = max(peak, found.per_second)
            if entrant.open and who.deadline:
                if running.tell is not None:
                    running.tell(DEADLINE_SECONDS)
                else:
                    stack.close()
                    running = self._start(stack, visited, folder / "d", DEADLINE_SECONDS)
            for each in order.sample(entrant.open, len(entrant.open)):
                rate = max(peak * each.times, _LEAST_RATE)
                self.results.add(entrant, each, self._measure(visited, running, each, rate))
                if each.times > 1:
                    self._settle(who, running)

    def _start(self, stack: ExitStack, visited: "_Visit", folder: Path, deadline: float) -> Running:
        site = self._site(visited, folder, deadline)
        running = stack.enter_context(visited.who.start(site))
        begin(visited.who, running)
        return running

    def _site(self, visited: "_Visit", folder: Path, deadline: float) -> Site:
        who, cache = visited.who, self.plan.cache
        width = self.prepared.manifest.dimension or 0
        folder.mkdir(parents=True)
        return Site(
            folder=folder,
            cache=cache,
            model=self.prepared,
            engine=visited.engine,
            cores=[self.plan.under_test],
            rest=[self.plan.rest],
            deadline_seconds=deadline,
            environment=None
            if who.lock is None
            else environments.ensure(who.lock, cache, self.say),
            path=environments.importable(self.plan.folder / "path"),
            answer_bytes=len(msgspec.json.encode([[0.0] * width])),
            compiled=self.compiled,
        )

    def _measure(
        self, visited: "_Visit", running: Running, each: Load, rate: float | None = None
    ) -> Round:
        patience = PATIENT_SECONDS if rate is None else DEADLINE_SECONDS
        base = Timing(self.plan.warm_up_seconds, self.plan.seconds)
        told = timing(visited.engine, each, base)
        meter = shares.Meter(running)
        result = load.offer(
            load.Load(
                host="127.0.0.1",
                port=running.port,
                path=running.path,
                bodies=self._requests(visited.who, each.texts),
                callers=each.callers,
                rate=rate,
                warm_up_seconds=told.warm_up_seconds,
                seconds=told.seconds,
                timeout_seconds=patience,
                connections=PACES[visited.engine].connections,
                deadline_seconds=patience,
            ),
            [self.plan.rest],
        )
        good = result.of(200)
        refused = sum(each.count for each in result.outcomes if each.status in {408, 429, 503, 504})
        return Round(
            per_second=good.per_second,
            in_time_per_second=result.in_time / result.seconds,
            p50=good.latency.p50,
            p99=good.latency.p99,
            offered_per_second=result.offered / result.seconds,
            refused_per_second=refused / result.seconds,
            failed=result.offered - good.count - refused,
            generator_late_ms=result.send_late_p99_ms,
            processor=meter.a_request(result.answered),
        )

    def _requests(self, who: Subject, texts: int) -> list[str]:
        key = (who.name, texts)
        if key not in self._bodies:
            self._bodies[key] = requests(who, texts, self.plan.seed)
        return self._bodies[key]

    def _judge(self, who: Subject, engine: Engine, running: Running) -> None:
        """Compares a peer's vectors with the original's."""
        if not who.computes:
            return
        texts = model.judged_texts()
        if engine is Engine.SIMULATED:
            shape = ask(who, running, texts[:MANY]).shape
            if shape != (MANY, self.prepared.manifest.dimension):
                raise ValueError(f"answers {shape} for {MANY} texts")
            return
        likeness = likeness_of(who, running, self.prepared)
        self.results.answers.append(
            Answers(who.name, likeness.mean_cosine, likeness.least_cosine, likeness.overlap)
        )
        if not likeness.right:
            raise ValueError(f"answers with other vectors than the original's: {likeness}")

    def _settle(self, who: Subject, running: Running) -> None:
        """Waits until what an overload left in the peer is done."""
        _post(running, json.dumps(who.body(corpus.replay()[:1])))

    def _engine_alone(self, sizes: Sequence[int]) -> None:
        """ONNX Runtime with nothing around it, on the same core, by rows a run."""
        seconds = max(ENGINE_ALONE_TIMES, len(sizes)) * self.plan.seconds
        words = str(self.prepared.package), str(seconds), *map(str, sizes)
        command = processes.python("bench.rawengine", *words)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            os.sched_setaffinity(process.pid, [self.plan.under_test])
            try:
                said, _ = process.communicate()
            except BaseException:
                process.kill()
                raise
        for size, rate in json.loads(said)["rates"].items():
            self.results.alone.setdefault(size, []).append(rate)


def requests(who: Subject, texts: int, seed: int) -> list[str]:
    """Bodies of so many of the example's texts each, in an order that the seed makes."""
    replay = corpus.replay()
    random.Random(seed).shuffle(replay)
    return [
        json.dumps(who.body(replay[at : at + texts]))
        for at in range(0, len(replay) - texts + 1, texts)
    ]


def ask(who: Subject, running: Running, texts: Sequence[str]) -> comparison.Vectors:
    """One request's vectors."""
    status, content = _post(running, json.dumps(who.body(texts)))
    if status != 200:
        raise RuntimeError(f"answered {status}: {content[:300]!r}")
    return who.read(json.loads(content)) if who.computes else np.zeros((len(texts), 1))


def begin(who: Subject, running: Running) -> None:
    """Asks until the peer answers: some say that they are ready before their workers are."""
    ends = time.monotonic() + _BEGIN_SECONDS
    while True:
        try:
            ask(who, running, corpus.replay()[:1])
        except (OSError, RuntimeError):
            if time.monotonic() > ends:
                raise
            time.sleep(0.2)
        else:
            return


def likeness_of(
    who: Subject, running: Running, prepared: model.PreparedModel
) -> comparison.Likeness:
    """How like the original's a peer's vectors of the judged texts are."""
    texts = model.judged_texts()
    parts = [ask(who, running, texts[at : at + 1]) for at in range(_SINGLE)]
    parts += [ask(who, running, texts[at : at + MANY]) for at in range(_SINGLE, len(texts), MANY)]
    return comparison.compare(prepared.original, np.concatenate(parts))


def _post(running: Running, body: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENT_SECONDS)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", running.path, body, headers)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()
