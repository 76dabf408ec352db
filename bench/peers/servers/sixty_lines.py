"""The least gateway: ``sixty_lines.py PORT TRITON MODEL PACKAGE INPUTS OUTPUT``.

Raw ASGI on uvicorn, ``tokenizers``, a list for each length, ``grpc.aio``. It has no admission, no
events, no metrics and no receipts: what is left is what Python, its HTTP server and gRPC cost.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import grpc
import msgspec
import numpy as np
import uvicorn
from tritonclient.grpc import service_pb2 as pb

from bench.peers.servers.embedder import MOST_ROWS, Rows

PORT, TRITON, MODEL, PACKAGE = int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4])
INPUTS = sys.argv[5].split(",")
OUTPUT, STEP, AHEAD = sys.argv[6], 16, 2

Waiting = tuple[list[int], "asyncio.Future[Any]"]


class Gateway:
    """Rows wait in a list for each length; the fullest list leaves while Triton has room."""

    def __init__(self) -> None:
        self._rows = Rows(PACKAGE)
        self._lists: dict[int, list[Waiting]] = {}
        self._ahead = 0
        self._tasks: set[asyncio.Task[None]] = set()
        channel = grpc.aio.insecure_channel(TRITON)
        self._infer = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )

    async def vectors(self, texts: list[str]) -> list[Any]:
        """A vector a text."""
        loop = asyncio.get_running_loop()
        futures = []
        for ids in self._rows.ids(texts):
            future = loop.create_future()
            self._lists.setdefault(-(-len(ids) // STEP) * STEP, []).append((ids, future))
            futures.append(future)
        self._send()
        return [await future for future in futures]

    def _send(self) -> None:
        while self._ahead < AHEAD and self._lists:
            length = max(self._lists, key=lambda each: len(self._lists[each]))
            waiting = self._lists.pop(length)
            if waiting[MOST_ROWS:]:
                self._lists[length] = waiting[MOST_ROWS:]
            self._ahead += 1
            task = asyncio.create_task(self._run(length, waiting[:MOST_ROWS]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, length: int, rows: list[Waiting]) -> None:
        arrays = np.zeros((2, len(rows), length), dtype=np.int64)
        for index, (ids, _) in enumerate(rows):
            arrays[0, index, : len(ids)] = ids
            arrays[1, index, : len(ids)] = 1
        request = pb.ModelInferRequest(model_name=MODEL)
        for name in INPUTS:
            request.inputs.add(name=name, datatype="INT64", shape=arrays[0].shape)
            known = {"input_ids": arrays[0], "attention_mask": arrays[1]}.get(name)
            request.raw_input_contents.append(
                (np.zeros_like(arrays[0]) if known is None else known).tobytes()
            )
        request.outputs.add(name=OUTPUT)
        try:
            answer = await self._infer(request)
            vectors = np.frombuffer(answer.raw_output_contents[0], np.float32)
            for (_, future), vector in zip(rows, vectors.reshape(len(rows), -1), strict=True):
                future.set_result(vector.tolist())
        except grpc.aio.AioRpcError as error:
            for _, future in rows:
                future.set_exception(RuntimeError(error.details()))
        self._ahead -= 1
        self._send()


gateway: Gateway | None = None


async def application(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
    """Answers ``{"inputs": [...]}`` with vectors, and a GET with an empty list."""
    global gateway  # noqa: PLW0603 - made in the loop that it serves
    gateway = gateway or Gateway()
    body = b""
    while (message := await receive()).get("more_body"):
        body += message["body"]
    body += message.get("body", b"")
    texts = msgspec.json.decode(body)["inputs"] if scope["method"] == "POST" else []
    answer = msgspec.json.encode(await gateway.vectors(texts))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    uvicorn.run(
        application, host="127.0.0.1", port=PORT, loop="uvloop", http="httptools",
        log_level="warning", access_log=False, lifespan="off", server_header=False,
    )  # fmt: skip
