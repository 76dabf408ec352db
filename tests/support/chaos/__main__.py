"""``python -P -m chaos --seconds 7200 --seed 1``: runs chaos, and says what it found.

Exit status 1 on a violation. The record is written in any case; logs are kept beside the home.
"""

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import sick_parts
from counting_check import CountingCheck
from own_ports import own_ports
from real_object_store import BUCKET, ObjectStore, found, make_bucket_at
from rolling_stack import register
from running_stack import RunningStack, running_stack
from sick_triton import Ward
from soak_record import record, written_to
from traffic import OIP_GRPC, Traffic, Way

from chaos.embedder import ENDPOINT as EMBEDDING
from chaos.embedder import TEXTS, register_embedder
from chaos.invariants import DEADLINE_SECONDS, VECTORS, Invariants
from chaos.oracle import Oracle, texts
from chaos.rollouts import (
    ENDPOINT,
    FIRST,
    FIRST_VERSION,
    MAX_TOKENS,
    MODEL,
    SECOND,
    Rollouts,
    endpoint_of,
)
from chaos.run import BeyondHelpError, Run, Wish, order
from chaos.schedule import SICK, Kind
from chaos.world import GATEWAYS, TRITONS, World, own_disk, recounted, wait_until
from contracts.model import DEFAULT_POOL
from headrace.stack import triton
from headrace.stack.settings import Ports, number_name

TEXT_COUNT = 240
POOLS = (DEFAULT_POOL, DEFAULT_POOL, "second")  # of the Tritons, of which one is sick at a time
DEFAULT_CACHE = Path.home() / ".cache" / "headrace"
DIALECTS = ("huggingface", "kserve_v1", "oip_http", OIP_GRPC)
PATIENCE_SECONDS = 45.0  # of the client, for a gateway that says nothing at all


def main() -> int:
    """Runs and reports; the exit status."""
    arguments = _arguments()
    work = Path(arguments.work or tempfile.mkdtemp(prefix="headrace-chaos-"))
    work.mkdir(parents=True, exist_ok=True)
    _say(f"in {work}")
    with ExitStack() as stack:
        run = _begun(stack, arguments, work)
        try:
            run.run()
        except KeyboardInterrupt:
            _say("interrupted")
        except BeyondHelpError:
            _say("the stack does not come back: the run ends here")
        _end(run)
        figures = run.figures()
    name = "sick-tritons" if arguments.sick else "chaos"
    path = written_to(arguments.out, name, figures) if arguments.out else record(name, figures)
    violations = run.invariants.violations
    _say(f"{run.faults()} faults, {len(violations)} violations; the record is {path}")
    for each in violations:
        _say(f"  at {each.at:.0f} s: {each.what}")
    if violations:
        return 1
    shutil.rmtree(work, ignore_errors=True)
    return 0


def _begun(stack: ExitStack, arguments: argparse.Namespace, work: Path) -> Run:
    """Everything that a run needs, up and answering."""
    began = time.monotonic()
    disk = stack.enter_context(own_disk(work))
    store = stack.enter_context(_store(work))
    flags = ["--window-seconds=1", "--no-example"]
    environment: dict[str, str] = {}
    if store is not None:
        flags.append(f"--package-store=s3://{BUCKET}/packages")
        environment = store.environment
    home = (disk or work) / "home"
    wards: dict[str, Ward] = {}
    if arguments.sick:
        cache = Path(os.environ.get("HEADRACE_CACHE") or DEFAULT_CACHE)
        services = [number_name("triton", number, "-") for number in range(1, len(POOLS) + 1)]
        real = dict(zip(services, own_ports(len(POOLS)), strict=True))
        wards = sick_parts.made(triton.prepare(cache, _say), work / "parts", real)
        flags += [f"--parts={work / 'parts'}", *(f"--pool={pool}" for pool in POOLS)]
    running = stack.enter_context(
        running_stack(
            home,
            *flags,
            gateways=GATEWAYS,
            tritons=len(POOLS) if arguments.sick else TRITONS,
            environment=environment,
            output=work / "up.out",
        )
    )
    endpoints = {MODEL: ENDPOINT}
    if arguments.sick:
        endpoints[SECOND] = endpoint_of(SECOND, POOLS[-1])
    for name, endpoint in endpoints.items():
        running.apply(endpoint)  # before its first version, which is then served as it says at once
        assert register(running, FIRST, model=name) == FIRST_VERSION
    register_embedder(running.mlflow)
    for name in (*endpoints, EMBEDDING):
        running.until_answers(name, 300)
    world = _world(running, disk, store, wards)
    whole = wait_until(lambda: not world.not_whole(), 300)
    assert whole, world.not_whole()
    some = texts(TEXT_COUNT)
    oracle = Oracle([text for text, _ in some], MAX_TOKENS)
    rollouts = {}
    for name in endpoints:
        chance = order(arguments.seed, "rollouts" if name == MODEL else f"rollouts of {name}")
        rollouts[name] = Rollouts(running, chance, name, arguments.sick, {FIRST_VERSION: FIRST})
        stack.enter_context(rollouts[name])
    ways = [
        *(Way(each, of, name) for each in world.gateways for of in endpoints for name in DIALECTS),
        *(Way(each, EMBEDDING, VECTORS, TEXTS) for each in world.gateways),
    ]
    callers = stack.enter_context(
        Traffic(
            ways,
            [text for text, _ in some],
            callers=len(ways),
            pause_seconds=arguments.pause,
            headers={"x-request-timeout": f"{DEADLINE_SECONDS:g}"},
            timeout_seconds=PATIENCE_SECONDS,
            truths={text: label for text, label in some if label is not None},
        )
    )
    invariants = Invariants(world, oracle, rollouts, began, arguments.grace)
    wish = Wish(
        arguments.seconds,
        arguments.seed,
        arguments.within,
        arguments.give_up,
        work / "kept",
        tuple(arguments.kinds or (SICK if arguments.sick else Kind)),
    )
    return Run(world, callers, invariants, CountingCheck(running.kafka, running.stats), wish, _say)


def _end(run: Run) -> None:
    """Peace: all is as before, and the counts agree."""
    run.invariants.judge(run.callers.take())
    every = run.invariants.rollouts.values()
    for each in every:
        each.begin_no_more()
    for each in every:
        each.finish() if each.strict else each.stop()
    run.invariants.judge(run.callers.take())
    run.callers.rest()
    run.invariants.end()
    # What callers asked last is counted some seconds later. If it never is, the recount says so.
    with contextlib.suppress(AssertionError):
        run.counted.until_counted(run.wish.whole_within_seconds)
    if said := recounted(run.world, run.logs_lost_at):
        run.invariants.violated("the recount does not agree", [said])


@contextmanager
def _store(work: Path) -> Iterator[ObjectStore | None]:
    """An S3 server for packages; None where none was built (``make object-store``)."""
    program = found(Path(os.environ.get("HEADRACE_CACHE") or DEFAULT_CACHE))
    if program is None:
        yield None
        return
    server = ObjectStore(program, work)
    server.start()
    make_bucket_at(server.environment)
    try:
        yield server
    finally:
        server.stop()


def _world(
    running: RunningStack, disk: Path | None, store: ObjectStore | None, wards: Mapping[str, Ward]
) -> World:
    told = running.record()
    assert told is not None
    ports = {"mlflow": running.ports["mlflow"], "kafka": running.ports["kafka"]}
    ports["stats"] = running.ports["stats"]
    given = Ports(**{name.replace("-", "_"): port for name, port in running.ports.items()})
    numbers = given.with_replicas(GATEWAYS, len(told.tritons))
    http: dict[str, str] = {}
    for number, each in enumerate(told.tritons, 1):
        ports[each.name] = int(each.grpc.rpartition(":")[2])
        http[each.name] = f"http://127.0.0.1:{numbers[number_name('triton_http', number)]}"
    for gateway in told.gateways:
        ports[gateway.name] = int(gateway.url.rpartition(":")[2])
    return World(
        stack=running,
        services=frozenset(told.services),
        gateways=told.gateways,
        tritons=http,
        ports=ports,
        disk=disk,
        store=None if store is None else (lambda: store.pid),
        wards=wards,
        pools={each.name: each.pool for each in told.tritons},
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=7200, help="of faults")
    parser.add_argument("--seed", type=int, default=1, help="of the schedule")
    parser.add_argument("--within", type=float, default=60, help="seconds to be whole again")
    parser.add_argument("--give-up", type=float, default=180, help="seconds to wait for that")
    parser.add_argument("--grace", type=float, default=5, help="seconds beyond a deadline")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds, of each caller")
    parser.add_argument(
        "--sick",
        action="store_true",
        help="three Tritons of two pools, one of them sick at a time; every version is judged",
    )
    parser.add_argument("--kinds", nargs="*", type=Kind, help="of faults; default: all")
    parser.add_argument("--work", help="an empty folder to work in")
    parser.add_argument("--out", type=Path, help="the record; default: in docs/soak")
    arguments = parser.parse_args()
    if arguments.out is not None and (arguments.out.is_dir() or not arguments.out.parent.is_dir()):
        parser.error(f"--out {arguments.out} is no file in a folder")  # before hours, not after
    return arguments


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
