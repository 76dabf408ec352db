"""Which part of a gateway the processor works for: samples of the running thread's stack.

A sample is taken whenever the process has used about a millisecond of processor time. It gives the
thread's processor time since the sample before it to the innermost function whose file belongs to a
part of the gateway; what a library does is its caller's. What uvloop does between two functions of
Python (reading and writing sockets, waiting) shows as the function that it calls next, which mostly
is the connection's. Compiled modules leave no frames, so only a pure build can be sampled.
"""

import signal
from collections import defaultdict
from collections.abc import Mapping
from time import thread_time
from types import CodeType, FrameType

_EVERY_SECONDS = 0.001  # of processor time

# Part -> files, by the end of their paths; a function's name may follow a colon.
PARTS: Mapping[str, tuple[str, ...]] = {
    "HTTP: connection, parser, answer": (
        "gateway/http/server.py", "gateway/http/body.py", "uvicorn/protocols/http/",
        "gateway/http/messages.py", "gateway/app.py:_send",
    ),
    "route, context, dialect": (
        "gateway/app.py", "gateway/http/router.py", "gateway/request_context.py",
        "gateway/dialects/", "fastapi/", "starlette/",
    ),
    "JSON": ("gateway/http/messages.py:encode", "gateway/http/messages.py:decode"),
    "admission and routing": (
        "gateway/admission/", "gateway/routing/", "gateway/inference/serving.py",
    ),
    "pipeline": ("gateway/inference/pipeline.py",),
    "tokeniser": ("gateway/inference/encoding.py", "preprocess/encoder.py", "preprocess/words.py"),
    "batcher": ("gateway/batching/", "preprocess/buckets.py", "gateway/engine/fleet.py"),
    "tensors and gRPC": (
        "preprocess/padding.py", "gateway/engine/triton.py", "gateway/engine/http2/",
        "bench/core/subject.py:infer", "grpc/",
    ),
    "decoding": ("preprocess/tasks/", "preprocess/scores.py", "gateway/packages.py"),
    "receipts": ("gateway/inference/receipts.py",),
    "events": (
        "gateway/events/", "contracts/events.py", "gateway/inference/attempt.py",
        "preprocess/observe.py",
    ),
    "metrics": ("gateway/telemetry/",),
}  # fmt: skip
REST = "event loop and rest"


def part_of(path: str, function: str) -> str | None:
    """The part that a function belongs to; None for one that is none's."""
    found, longest = None, 0
    for part, places in PARTS.items():
        for place in places:
            file, _, name = place.partition(":")
            fits = (path.endswith(file) if file.endswith(".py") else f"/{file}" in path) and (
                not name or name == function
            )
            if fits and len(place) > longest:
                found, longest = part, len(place)
    return found


class Sampler:
    """Samples the main thread between ``start`` and ``stop``, as often as it likes.

    ``seconds`` has the thread's processor time by part.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._parts: dict[CodeType, str | None] = {}
        self._counts = False
        self._last = 0.0

    def open(self) -> None:
        """Sets the timer. Call it in the main thread."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, _EVERY_SECONDS, _EVERY_SECONDS)

    def close(self) -> None:
        """Ends the timer."""
        signal.setitimer(signal.ITIMER_PROF, 0)

    def start(self) -> None:
        """Counts from now on."""
        self._last = thread_time()
        self._counts = True

    def stop(self) -> None:
        """Counts no more; what no sample has seen is dropped."""
        self._counts = False

    def _sample(self, number: int, frame: FrameType | None) -> None:
        del number
        if not self._counts:
            return
        now = thread_time()
        used, self._last = now - self._last, now
        self.seconds[self._part(frame)] += used

    def _part(self, frame: FrameType | None) -> str:
        while frame is not None:
            code = frame.f_code
            if code not in self._parts:
                self._parts[code] = part_of(code.co_filename, code.co_name)
            part = self._parts[code]
            if part is not None:
                return part
            frame = frame.f_back
        return REST
