"""A way to one real Triton's gRPC port that makes it sick: a proxy, told by a file what to do.

It speaks for a Triton that lives, says that it is ready, and does one thing wrongly. It passes
bytes on, and reads messages only of the calls that the sickness is about. Triton's HTTP port, which
only tells whether it is ready, is not in front of it.

    python -P -m sick_triton --listen 8001 --triton 18001 --state FOLDER
"""

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb

HOST = "127.0.0.1"
_SERVICE = "/inference.GRPCInferenceService/"
INFER, STREAM = f"{_SERVICE}ModelInfer", f"{_SERVICE}ModelStreamInfer"
LOAD = f"{_SERVICE}RepositoryModelLoad"
SLOWDOWN = 5.0
FITTING_ROWS = 2  # of a batch, in a Triton that is short of memory
_BIND_SECONDS = 0.2
_PDEATHSIG = 1
_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.so_reuseport", 0),  # a port that another process holds is taken
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),  # as Triton's own
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
)
_OWN_HEADERS = ("user-agent", "grpc-", ":")  # of a connection, not of a call
_REFUSALS = (
    "CUDA failure 214: uncorrectable ECC error encountered ; GPU=0",
    "CUDA failure 999: unknown error ; GPU=0",
    "cuDNN failure 1: CUDNN_STATUS_NOT_INITIALIZED",
    "[Errno 5] Input/output error",
    "[Errno 30] Read-only file system",
    "libcublas.so.12: cannot open shared object file: No such file or directory",
)
_FAILURE = "CUDA failure 719: unspecified launch failure ; GPU=0"
_FULL = "CUDA error: out of memory"


class Sickness(StrEnum):
    """What a Triton does wrongly."""

    REFUSES_LOADS = "refuses loads"
    FAILS = "fails inferences"
    NAN = "answers NaN"
    SLOW = "slow by five"
    NO_MEMORY = "out of memory"


class Ward:
    """What a proxy is told and what it tells, as files of a folder.

    ``told`` is written by whoever makes Triton sick, ``seen`` by the proxy.
    """

    def __init__(self, folder: Path) -> None:
        self._told, self._seen = folder / "told", folder / "seen.json"
        folder.mkdir(parents=True, exist_ok=True)

    def make_sick(self, sickness: Sickness) -> None:
        """From now on."""
        self._seen.unlink(missing_ok=True)
        _write(self._told, f"{time.time()} {sickness.value}")

    def make_well(self) -> None:
        """From now on."""
        self._told.unlink(missing_ok=True)

    def state(self) -> tuple[str, Sickness | None]:
        """What Triton suffers from now, and since when."""
        try:
            since, _, told = self._told.read_text(encoding="utf-8").partition(" ")
        except FileNotFoundError:
            return "", None
        return since, Sickness(told)

    def note(self, first: dict[str, float]) -> None:
        """The proxy's: what was spoilt since Triton fell sick."""
        _write(self._seen, json.dumps(first))

    def seen(self) -> dict[str, float]:
        """Method -> unix time of the first call that was spoilt since Triton fell sick."""
        try:
            return dict(json.loads(self._seen.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}


def _write(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


class SickTriton:
    """The proxy, in the running event loop.

    Args:
        ward: is looked at for each call.
        triton: ``host:port`` of the one that answers.
    """

    def __init__(self, ward: Ward, triton: str) -> None:
        self._ward = ward
        self._channel = grpc.aio.insecure_channel(triton, options=_OPTIONS)
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers((_Every(self),))
        self._random = random.Random(triton)
        self._since = ""
        self._first: dict[str, float] = {}  # as the ward's ``seen``

    async def start(self, port: int = 0) -> int:
        """Listens; returns the port; raises ``RuntimeError`` if it is taken."""
        bound: int = self._server.add_insecure_port(f"{HOST}:{port}")
        await self._server.start()
        return bound

    async def serve(self) -> None:
        """Until it is cancelled."""
        await self._server.wait_for_termination()

    async def close(self) -> None:
        """Ends all calls."""
        await self._server.stop(None)
        await self._channel.close()

    async def call(self, method: str, message: bytes, context: Any) -> bytes:
        """One unary call."""
        sickness = self._sickness()
        if sickness is not None and (words := self._refusal(sickness, method, message)):
            self._spoil(method)
            await context.abort(grpc.StatusCode.INTERNAL, words)
        began = time.monotonic()
        answer = await self._passed(method, message, context)
        if method != INFER:
            return answer
        if sickness is Sickness.NAN:
            self._spoil(method)
            return without_numbers(answer)
        if sickness is Sickness.SLOW:
            self._spoil(method)
            await asyncio.sleep((SLOWDOWN - 1) * (time.monotonic() - began))
        return answer

    async def stream(
        self, method: str, messages: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        """One call with many messages both ways."""
        if self._sickness() is Sickness.FAILS:
            self._spoil(method)
            await context.abort(grpc.StatusCode.INTERNAL, _FAILURE)
        call = self._channel.stream_stream(method)(messages, metadata=_passed_on(context))
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")

    async def _passed(self, method: str, message: bytes, context: Any) -> bytes:
        ask = self._channel.unary_unary(method)
        try:
            answer: bytes = await ask(
                message, timeout=context.time_remaining(), metadata=_passed_on(context)
            )
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
            raise
        return answer

    def _refusal(self, sickness: Sickness, method: str, message: bytes) -> str:
        """Words in which a call is refused; empty where Triton is asked."""
        if method == LOAD:
            if sickness is Sickness.REFUSES_LOADS:
                return self._random.choice(_REFUSALS)
            return _FULL if sickness is Sickness.NO_MEMORY else ""
        if method != INFER:
            return ""
        if sickness is Sickness.FAILS:
            return _FAILURE
        return _FULL if sickness is Sickness.NO_MEMORY and _rows(message) > FITTING_ROWS else ""

    def _sickness(self) -> Sickness | None:
        since, sickness = self._ward.state()
        if since != self._since:
            self._since, self._first = since, {}
        return sickness

    def _spoil(self, method: str) -> None:
        if method not in self._first:
            self._first[method] = time.time()
            self._ward.note(self._first)


class _Every(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Every method of every service, with messages as bytes."""

    def __init__(self, proxy: SickTriton) -> None:
        self._proxy = proxy

    def service(self, call: Any) -> Any:
        method: str = call.method
        if method == STREAM:
            return grpc.stream_stream_rpc_method_handler(partial(self._proxy.stream, method))
        return grpc.unary_unary_rpc_method_handler(partial(self._proxy.call, method))


def without_numbers(answer: bytes) -> bytes:
    """An answer to an inference with NaN in the place of every float."""
    response = pb.ModelInferResponse.FromString(answer)
    for number, output in enumerate(response.outputs):
        if output.datatype == "FP32":
            size = len(response.raw_output_contents[number]) // 4
            response.raw_output_contents[number] = np.full(size, np.nan, np.float32).tobytes()
    return bytes(response.SerializeToString())


def _rows(message: bytes) -> int:
    return max(int(each.shape[0]) for each in pb.ModelInferRequest.FromString(message).inputs)


def _passed_on(context: Any) -> tuple[tuple[str, str | bytes], ...]:
    return tuple(
        (key, value)
        for key, value in context.invocation_metadata() or ()
        if not key.startswith(_OWN_HEADERS)
    )


async def _run(arguments: argparse.Namespace) -> None:
    while True:  # the port may be held for a while by what strikes the stack
        proxy = SickTriton(Ward(arguments.state), f"{HOST}:{arguments.triton}")
        with contextlib.suppress(RuntimeError):
            await proxy.start(arguments.listen)
            break
        await proxy.close()
        await asyncio.sleep(_BIND_SECONDS)
    await proxy.serve()


def _die_with(parent: int) -> None:
    """Ends when Triton does, however that ends."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", type=int, required=True, help="the port that Triton would have")
    parser.add_argument("--triton", type=int, required=True, help="the port that Triton has")
    parser.add_argument("--state", type=Path, required=True, help="folder of the ward")
    parser.add_argument("--parent", type=int, required=True, help="ends with this process")
    arguments = parser.parse_args()
    _die_with(arguments.parent)
    asyncio.run(_run(arguments))


if __name__ == "__main__":
    main()
