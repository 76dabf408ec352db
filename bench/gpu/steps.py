"""One step of a run on a GPU, in a process of its own: ``python -P -m bench.gpu.steps STEP ...``.

``bench.gpu`` starts it and ends it when its time is over. What it finds is written as soon
as it is there.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.gpu import alone, caller, large, loads
from bench.gpu.device import Kind, watched
from bench.gpu.found import ENSEMBLE, LARGE, PACKED, PADDED, Like, Part
from bench.gpu.loads import BASE64, JSON, OF_ENSEMBLE, Offer, Target
from bench.gpu.site import PADDED_FP16, Setting, StepMissingError
from bench.gpu.unpacked import Place
from bench.peers import with_triton
from bench.peers.asking import MANY, begin, likeness_of
from bench.peers.model import PreparedModel
from headrace.stack import provision

ROOT = Path(__file__).resolve().parents[2]
_SETTLED_SECONDS = 2.5  # gateways read what loaders measured every second or two
_LOAD_SECONDS = 4.0  # that a load takes beside the measured time
_CALLS, _SMALL_CALLS = 2000, 20
_TAIL = 3000


def main(words: Sequence[str] | None = None) -> int:
    """Takes one step."""
    parser = argparse.ArgumentParser(prog="python -P -m bench.gpu.steps", description=__doc__)
    parser.add_argument("step", choices=list(STEPS))
    parser.add_argument("--device", choices=[each.value for each in Kind], required=True)
    parser.add_argument("--limit", type=float, required=True, help="seconds")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="of a load")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--without-events", dest="events", action="store_false")
    read = parser.parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    began, part = time.monotonic(), Part(step=read.step)
    scratch = Path(tempfile.mkdtemp(prefix="gpu-"))
    setting = Setting(
        Kind(read.device), read.small, read.seconds, read.rounds, began + read.limit, read.results,
        scratch, read.cache, read.events, lambda line: print(line, flush=True),
    )  # fmt: skip
    try:
        STEPS[read.step](part, setting)
    except StepMissingError as error:
        part.failed = str(error)
    except BaseException as error:
        part.failed = repr(error)[-_TAIL:]
        part.notes |= _logs(scratch)
        raise
    finally:
        part.took = time.monotonic() - began
        part.keep(read.results)
        shutil.rmtree(scratch, ignore_errors=True)
    return 0 if not part.failed else 1


def _headrace(part: Part, setting: Setting) -> None:
    """The packed engine behind gateways: likeness, one caller, all loads."""
    most = len(setting.layout().gateways)
    _serve(part, setting, PACKED, setting.packed(), loads.offers(most))


def _padded(part: Part, setting: Setting) -> None:
    """The same by a graph, for comparison."""
    most = len(setting.layout().gateways)
    few = [Offer(most, 1, JSON), Offer(most, MANY, JSON), Offer(1, 1, JSON), Offer(1, MANY, JSON)]
    _serve(part, setting, PADDED, setting.prepared(PADDED_FP16), list(dict.fromkeys(few)))


def _ensemble(part: Part, setting: Setting) -> None:
    """Triton by itself, by the padded graph, on the cores that Headrace has for all of it."""
    most = len(setting.layout().gateways)
    each = [Offer(most, 1, OF_ENSEMBLE), Offer(most, MANY, OF_ENSEMBLE)]
    _serve(part, setting, ENSEMBLE, setting.prepared(PADDED_FP16), each)


def _large(part: Part, setting: Setting) -> None:
    """A model of BERT-base's size with random weights: how busy the GPU is with texts."""
    prepared = large.make(setting.packed(), setting.scratch, setting)
    most = len(setting.layout().gateways)
    each = [Offer(most, MANY, BASE64), Offer(most, MANY, JSON)]
    part.alone += alone.measure(LARGE, prepared, setting, few=True)
    part.keep(setting.results)
    _serve(part, setting, LARGE, prepared, each, lone=False)


def _alone(part: Part, setting: Setting) -> None:
    """The packed engine in this process."""
    for found in alone.measure(PACKED, setting.packed(), setting):
        part.alone.append(found)
        part.keep(setting.results)
        setting.say(f"{found.mode}, {found.tokens:,} tokens: {found.milliseconds:.3f} ms")


def _tests(part: Part, setting: Setting) -> None:
    """``make test-gpu``."""
    place = Place.around()
    root = ROOT if place is None else place.source
    command = [sys.executable, "-P", "-m", "pytest", "tests/gpu", "-m", "gpu", "-q",
               "-p", "no:cacheprovider"]  # fmt: skip
    path = [] if place is not None else [str(provision.export_environment(setting.cache, print))]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False, timeout=setting.left,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )  # fmt: skip
    said = done.stdout + done.stderr
    setting.say(said[-_TAIL:])
    part.notes["said"] = said[-_TAIL:]
    if done.returncode != 0:
        part.failed = f"the tests ended with status {done.returncode}"


STEPS: Mapping[str, Callable[[Part, Setting], None]] = {
    "headrace": _headrace,
    "alone": _alone,
    "ensemble": _ensemble,
    "large": _large,
    "tests": _tests,
    "padded": _padded,
}


def _serve(
    part: Part,
    setting: Setting,
    engine: str,
    prepared: PreparedModel,
    each: Sequence[Offer],
    *,
    lone: bool = True,
) -> None:
    """Starts a server, compares its answers, asks it alone, then by all loads in rounds."""
    layout = setting.layout()
    ensemble = engine == ENSEMBLE
    peer = with_triton.ENSEMBLE if ensemble else with_triton.HEADRACE
    site = setting.site(part.step, prepared, layout, together=ensemble)
    os.sched_setaffinity(0, layout.load)
    part.notes |= {"cores": {"engine": list(layout.engine), "load": list(layout.load)}}
    began = time.monotonic()
    with watched(setting.kind) as busy, peer.start(site) as running:
        begin(peer, running)
        part.notes["started after, s"] = time.monotonic() - began
        setting.say(f"{engine}: answers after {time.monotonic() - began:.1f} s")
        if lone:
            like = likeness_of(peer, running, prepared)
            part.likeness.append(
                Like(engine=engine, mean_cosine=like.mean_cosine, least_cosine=like.least_cosine)
            )
        part.notes |= _logs(setting.scratch)
        part.keep(setting.results)
        time.sleep(_SETTLED_SECONDS)
        calls = _SMALL_CALLS if setting.small else _CALLS
        body = lambda text: peer.body([text])  # noqa: E731
        for found in caller.measure(engine, running, prepared, calls, body) if lone else ():
            part.callers.append(found)
            part.keep(setting.results)
            setting.say(f"{found.way}, {found.tokens} tokens: {found.p50:.2f} / {found.p99:.2f} ms")
        _offer(part, setting, Target(engine, running, layout, setting.load_seconds, busy), each)
        part.notes |= _logs(setting.scratch)


def _offer(part: Part, setting: Setting, target: Target, each: Sequence[Offer]) -> None:
    """All loads in rounds, so that a run that is cut off has each once before any twice."""
    callers = loads.SMALL_CALLERS if setting.small else loads.CALLERS
    for number in range(setting.rounds):
        for offer in each:
            if setting.left < setting.load_seconds + _LOAD_SECONDS:
                part.failed = f"no time left in round {number + 1}"
                return
            found = target.ask(offer, callers[offer.texts])
            part.add(found)
            part.keep(setting.results)
            one = found.rounds[-1]
            setting.say(
                f"{target.engine}, {offer.gateways} x {offer.texts} as {offer.form}: "
                f"{one.texts_per_second:,.0f} texts/s, p50 {one.p50:.1f}, p99 {one.p99:.1f}, "
                f"failed {one.failed}, GPU busy {one.gpu_busy}, with "
                f"texts {one.useful}, generators {one.generators_busy}"
            )


def _logs(scratch: Path) -> dict[str, str]:
    """The ends of what all programs said."""
    return {
        f"log of {file.parent.name}": file.read_text(encoding="utf-8", errors="replace")[-_TAIL:]
        for file in sorted(scratch.glob("*/*/log.txt"))
    }


if __name__ == "__main__":
    sys.exit(main())
