"""A program: the memory that each of the worst bodies takes, each line its name, MiB and status.

``python -P -m memory_of_bodies MIB`` with ``tests/support`` on the path. All are asked in one
process, without sockets, so that nobody else's copies of a body are counted.
"""

import asyncio
import ctypes
import gc
import json
import logging
import sys
from pathlib import Path
from typing import Any

import grpc
from front_fakes import Behind, client_of
from worst_bodies import GRPC, WORST, WorstBody, endpoints

from gateway.dialects.grpc_answers import Answers
from gateway.dialects.grpc_messages import MessageReader
from gateway.dialects.oip_grpc import OpenInferenceGrpc
from gateway.http.untaken import untaken_of

_ME = Path("/proc/self")
_RESET_PEAK = "5"  # see proc(5), clear_refs


class MemoryCall:
    """A call of gRPC that has one message, and keeps how it ended."""

    def __init__(self, message: bytes) -> None:
        self._messages = [message]
        self.code = grpc.StatusCode.OK

    async def read(self) -> Any:
        """The message."""
        return self._messages.pop()

    def invocation_metadata(self) -> tuple[()]:
        """None."""
        return ()

    def time_remaining(self) -> None:
        """There is no limit."""

    def peer(self) -> str:
        """None of TCP's."""
        return "unix:"

    async def send_initial_metadata(self, metadata: object) -> None:
        """Sends nothing."""

    def set_trailing_metadata(self, metadata: object) -> None:
        """Sends nothing."""

    def set_details(self, details: str) -> None:
        """Keeps nothing."""

    def set_code(self, code: grpc.StatusCode) -> None:
        """Keeps it."""
        self.code = code


class Asking:
    """Both fronts over fakes."""

    def __init__(self, behind: Behind | None = None) -> None:
        self.behind = behind or Behind(endpoints())
        self.behind.predictor.keep_calls = False
        service, limits = OpenInferenceGrpc(self.behind.front, "0"), self.behind.limits
        answers = Answers(untaken_of(limits), lambda _host, _port: None)
        self._handlers = service.handlers(MessageReader(limits, service.held), answers)

    async def ask(self, worst: WorstBody, body: bytes) -> str:
        """Asks, and says how that ended."""
        if worst.path == GRPC:
            return await self._call(body)
        async with client_of(self.behind) as client:
            answer = await client.post(worst.path, content=body, headers=worst.headers)
        return str(answer.status_code)

    async def _call(self, message: bytes) -> str:
        details: Any = type("Details", (), {"method": "/inference.GRPCInferenceService/ModelInfer"})
        handler = self._handlers.service(details)
        call = MemoryCall(message)
        assert handler is not None
        await handler.stream_unary(None, call)
        return str(call.code.name)


def _mebibytes(name: str) -> float:
    for line in (_ME / "status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise LookupError(name)


def _settle() -> float:
    """Gives back what can be, and says what is in use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    (_ME / "clear_refs").write_text(_RESET_PEAK)
    return _mebibytes("VmRSS")


async def main(mebibytes: float) -> None:
    """Asks them all."""
    logging.disable(logging.CRITICAL)
    asking = Asking()
    for worst in WORST:
        await asking.ask(worst, worst.make(1000))
    for worst in WORST:
        body = worst.make(int(mebibytes * 1024 * 1024))
        before = _settle()
        status = await asking.ask(worst, body)
        print(json.dumps([worst.name, _mebibytes("VmHWM") - before, status]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
