"""Calls over gRPC for a load generator: one request at a time for each caller, as ``wire`` has it.

``loadgen.py`` uses it in place of ``wire.Connection``. Messages are made once and sent as bytes;
an answer is not decoded, so that the generator costs less than what it measures.
"""

import asyncio
from collections.abc import Callable, Sequence

import grpc
from tritonclient.grpc import service_pb2 as pb

_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_STATUSES = {
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
}


def message(endpoint: str, texts: Sequence[str]) -> bytes:
    """One request of these texts, encoded."""
    made = pb.ModelInferRequest(model_name=endpoint)
    tensor = made.inputs.add(name="TEXT", datatype="BYTES", shape=[len(texts)])
    tensor.contents.bytes_contents.extend(text.encode() for text in texts)
    encoded: bytes = made.SerializeToString()
    return encoded


class Channels:
    """A few connections that callers share, as gRPC clients do."""

    def __init__(self, address: str, count: int = 4) -> None:
        # Without an option of its own each, channels to one address would share one connection.
        self._channels = [
            grpc.aio.insecure_channel(address, options=[("headrace.channel", number)])
            for number in range(count)
        ]
        self._next = 0

    def caller(self, answered: Callable[["Caller", int], None], timeout_seconds: float) -> "Caller":
        """A caller on the next of the connections."""
        self._next += 1
        channel = self._channels[self._next % len(self._channels)]
        return Caller(channel, answered, timeout_seconds)

    async def close(self) -> None:
        """Ends all connections."""
        for channel in self._channels:
            await channel.close()


class Caller:
    """One request at a time.

    Args:
        channel: where to send.
        answered: called with the caller and the HTTP status that the answer's code stands for; 0
            for a call that got none.
        timeout_seconds: of a call, as its client sets it.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        answered: Callable[["Caller", int], None],
        timeout_seconds: float,
    ) -> None:
        self._call = channel.unary_unary(_METHOD)
        self._answered = answered
        self._timeout = timeout_seconds
        self._task: asyncio.Task[None] | None = None
        self.due = 0.0  # when the request on its way should have been sent
        self.index = 0

    @property
    def open(self) -> bool:
        """Whether a request can be sent: a channel connects by itself."""
        return True

    def send(self, payload: bytes, due: float, index: int) -> None:
        """Sends one message; the caller must be idle."""
        self.due, self.index = due, index
        self._task = asyncio.get_running_loop().create_task(self._ask(payload))

    async def _ask(self, payload: bytes) -> None:
        try:
            await self._call(payload, timeout=self._timeout)
        except grpc.aio.AioRpcError as error:
            self._answered(self, _STATUSES.get(error.code(), 0))
        else:
            self._answered(self, 200)
