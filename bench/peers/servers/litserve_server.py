"""A LitServe server with batching: ``litserve_server.py PORT``.

After LitServe's pages "Batching" (``max_batch_size``, a short ``batch_timeout``) and "LitServer"
(``fast_queue`` for more than a hundred requests a second, ``timeout``, one worker a device, one API
server). ``batch_timeout=0`` would have the worker ask its queue without a pause.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import litserve

from bench.peers.servers.embedder import MOST_ROWS, Embedder, Vectors


class Embeddings(litserve.LitAPI):
    """One request is a list of texts, one call the lists of several."""

    def setup(self, device: str) -> None:
        """Opens the model in the worker."""
        del device
        self._embedder = Embedder.from_environment()

    def decode_request(self, request: dict[str, Any]) -> list[str]:
        """The texts of one request."""
        texts: list[str] = request["inputs"]
        return texts

    def batch(self, inputs: Sequence[list[str]]) -> Sequence[list[str]]:
        """Lists of texts stay lists."""
        return inputs

    def predict(self, inputs: Sequence[list[str]]) -> list[Vectors]:
        """The vectors of each request."""
        return self._embedder.embed_all(inputs)

    def unbatch(self, output: list[Vectors]) -> list[Vectors]:
        """One each."""
        return output

    def encode_response(self, output: Vectors) -> list[list[float]]:
        """As JSON takes it."""
        vectors: list[list[float]] = output.tolist()
        return vectors


if __name__ == "__main__":
    server = litserve.LitServer(
        Embeddings(max_batch_size=MOST_ROWS, batch_timeout=0.005),
        accelerator="cpu",
        workers_per_device=1,
        timeout=float(os.environ["PEERS_DEADLINE_SECONDS"]),
        fast_queue=True,
    )
    server.run(
        host="127.0.0.1", port=int(sys.argv[1]), num_api_servers=1, log_level="warning",
        generate_client_file=False, access_log=False,
    )  # fmt: skip
