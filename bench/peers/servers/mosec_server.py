"""A mosec server with dynamic batching: ``mosec_server.py --address A --port P --timeout MS``.

After mosec's pages "Dynamic Batching" (``max_batch_size`` with a short ``max_wait_time``) and
"Performance tuning" (a worker process a core; ``--capacity`` and ``--timeout`` as limits).
"""

from typing import Any

from mosec import Server, Worker

from bench.peers.servers.embedder import MOST_ROWS, Embedder


class Embeddings(Worker):
    """One request is a list of texts, one call the lists of several."""

    def __init__(self) -> None:
        super().__init__()
        self._embedder = Embedder.from_environment()

    def forward(self, data: list[dict[str, Any]]) -> list[list[list[float]]]:
        """The vectors of each request."""
        vectors = self._embedder.embed_all([each["inputs"] for each in data])
        return [each.tolist() for each in vectors]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Embeddings, num=1, max_batch_size=MOST_ROWS, max_wait_time=5)
    server.run()
