"""What callers over gRPC leave behind in the process once they have gone: nothing."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import heap_server
import pytest
import tritonclient.grpc as triton
from raw_grpc import RawGrpc, prefixed
from tritonclient.grpc import service_pb2 as pb

pytestmark = pytest.mark.real  # starts processes

CALLS, CONNECTIONS = 10, 150
MESSAGE = prefixed(b"no message that anybody could read")


class Heap:
    """A process with a gRPC front, and what its heap holds."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.port = int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def catch_up(self) -> None:
        """Waits until the calls before have been looked at: more than 512 would be refused."""
        with triton.InferenceServerClient(f"127.0.0.1:{self.port}") as client:
            assert client.is_server_live()

    def bytes_now(self) -> int:
        """Once the calls that have reached it are over."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._line())


@contextmanager
def heap_of(*flags: str) -> Iterator[Heap]:
    support = str(Path(heap_server.__file__).parent)
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "heap_server", *flags],
        env={**os.environ, **heap_server.ENVIRONMENT, "PYTHONPATH": support},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield Heap(process)
        finally:
            process.kill()


def sent(raw: RawGrpc) -> None:
    while not (raw.has_sent and raw.most_calls):
        raw.pump(1.0)


def request() -> bytes:
    message = pb.ModelInferRequest(model_name="sentiment", id="x" * 2000)
    tensor = message.inputs.add(name="TEXT", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(b"a good film")
    return prefixed(message.SerializeToString())


def take_no_answer(raw: RawGrpc) -> None:
    calls = [raw.call(request()) for _ in range(CALLS)]
    while not raw.answered.issuperset(calls):
        raw.pump(1.0)


def hang_up_before_the_answer(raw: RawGrpc) -> None:
    for _ in range(CALLS):
        raw.call(MESSAGE)
    sent(raw)


def hang_up_within_a_message(raw: RawGrpc) -> None:
    for _ in range(CALLS):
        raw.call(MESSAGE[:-3], end=False)
    sent(raw)


def take_calls_back(raw: RawGrpc) -> None:
    calls = [raw.call(MESSAGE) for _ in range(CALLS)]
    sent(raw)
    for each in calls:
        raw.reset(each)
    sent(raw)


def attacked(attack: Callable[[RawGrpc], None], *flags: str) -> float:
    """The bytes that each call leaves behind."""
    with heap_of(*flags) as heap:
        attack_often(heap, attack)  # what the first ones leave is the server's own
        before = settled(heap)
        attack_often(heap, attack)
        left = (settled(heap) - before) / (CALLS * CONNECTIONS)
    print(f"{left:.0f} bytes a call")
    return left


def settled(heap: Heap) -> int:
    """The least that it holds while it is asked: gRPC's threads free later, and tell nobody."""
    found = []
    for _ in range(20):
        heap.catch_up()
        found.append(heap.bytes_now())
    return min(found)


def attack_often(heap: Heap, attack: Callable[[RawGrpc], None]) -> None:
    for number in range(1, CONNECTIONS + 1):
        raw = RawGrpc(heap.port, first_window=0)
        attack(raw)
        raw.close()
        if not number % 10:
            heap.catch_up()


ATTACKS = [hang_up_before_the_answer, hang_up_within_a_message, take_calls_back, take_no_answer]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_call_leaves_nothing_behind_whose_caller_has_gone(
    attack: Callable[[RawGrpc], None],
) -> None:
    assert attacked(attack) < 50


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_library_alone_keeps_what_such_calls_took(attack: Callable[[RawGrpc], None]) -> None:
    """Where this fails, grpcio frees its batches itself, and ``service/grpc_batches.py`` can go."""
    assert attacked(attack, "--as-the-library-has-it") > 80
