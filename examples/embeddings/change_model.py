"""Changes the embedding model of three searches that people use all the time, and changes it back.

    headrace up --window-seconds 1                                         # in one terminal
    PYTHONPATH=.venv/vectors python examples/embeddings/change_model.py    # in another; minutes

It registers a model, indexes documents in three stores and searches them without a pause. Then it
registers a better model, waits until ``next`` is there, backfills, cuts over, moves one search
after the other to its new index, undoes it, and moves them back. What each search finds is compared
with an exact search over vectors that were made without the gateway.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import mlflow
import numpy as np
import onnx
from mlflow.models import ModelSignature
from mlflow.types import Schema, TensorSpec
from numpy.typing import NDArray
from pyarrow import parquet
from search import Embedder, Search, SpaceIndex, Vectors
from stores import STORES, Build, opened
from word_vectors import WIDTH, table_of, words_of, write_model

HEADRACE = str(Path(sys.executable).with_name("headrace"))
NAME = "documents"
TEXTS = Path(__file__).parents[1] / "sentiment" / "texts" / "replay.txt"
WAIT_SECONDS = 900.0
NEAREST = 10
QUERIES = 100
# A document that is nearer than the tenth, or no further than that by so much, is one of the
# nearest: packages round, and ties have no order.
ROUNDING = 2e-3
ENDPOINT = f"""
apiVersion: headrace.dev/v1alpha1
kind: ModelEndpoint
metadata: {{name: {NAME}}}
spec:
  model: {NAME}
  rollout:
    checks:
      errorRate: {{pass: {{absolute: 0.3, relative: 2}}}}
      latency: null
      outputShift: null
      drift: null
"""
_SIGNATURE = ModelSignature(
    inputs=Schema(
        [TensorSpec(np.dtype(np.int64), (-1, -1), name) for name in ("input_ids", "attention_mask")]
    ),
    outputs=Schema([TensorSpec(np.dtype(np.float32), (-1, -1, WIDTH), "last_hidden_state")]),
)

Command = Callable[..., str]
Answer = TypeVar("Answer")


def main() -> int:
    """Runs it on the stack of a home, and prints what was found as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--home", help="the stack's home, as in headrace up")
    parser.add_argument("--documents", type=int, default=10_000)
    arguments = parser.parse_args()
    home = [] if arguments.home is None else ["--home", arguments.home]

    def command(*words: str) -> str:
        line = [HEADRACE, *words, *home]
        return subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout

    running = json.loads(command("status", "-o", "json"))["stack"]
    if running is None:
        raise SystemExit("No stack is running. Start one with: headrace up")
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as stores:
        change = Change(
            running["gateway_url"],
            running["mlflow_url"],
            command,
            stores=stores,
            folder=Path(folder),
            count=arguments.documents,
        )
        with redirect_stdout(sys.stderr):  # of MLflow's client, which prints links
            found = change.run()
    print(json.dumps(found, indent=2))
    return 0


class Change:
    """The whole change, of searches that never stop."""

    def __init__(
        self,
        gateway_url: str,
        mlflow_url: str,
        command: Command,
        *,
        stores: Mapping[str, Build],
        folder: Path,
        count: int,
    ) -> None:
        self._gateway_url = gateway_url
        self._mlflow_url = mlflow_url
        self._command = command
        self._stores = stores
        self._folder = folder
        self._documents, self._queries = corpus(count)

    def run(self) -> dict[str, Any]:
        """What each part of it found: two recalls by store, of the same queries in every part."""
        began = time.monotonic()
        self._register(1)
        (self._folder / "endpoint.yaml").write_text(ENDPOINT)
        self._command("apply", "-f", str(self._folder / "endpoint.yaml"))
        texts = [query for query, _ in self._queries]
        with Embedder(self._gateway_url, NAME) as embedder:
            _, space = wait_for(lambda: embedder.embed(texts[:1], None))
            old, _ = self._index("old")
            exact = {space: Exact.of(self._documents, texts, version=1)}
            services = {store: Search(embedder, index) for store, index in old.items()}
            searches = Searches(services, self._queries, exact)
            with searches.running():
                parts = {"old": searches.cycle()}
                self._register(2)
                _, following = wait_for(lambda: embedder.embed(texts[:1], "next"))
                exact[following] = Exact.of(self._documents, texts, version=2)
                new, rate = self._index("new", "--space", "next")
                parts["both are there"] = searches.cycle()
                self._command("space", "cutover", NAME)
                parts["cut over"] = searches.cycle()
                for store in STORES:  # so that indexes of one endpoint are of several spaces
                    services[store].index = new[store]
                    parts[f"{store} has moved"] = searches.cycle()
                self._command("space", "undo", NAME)
                parts["undone"] = searches.cycle()
                for store in STORES:
                    services[store].index = old[store]
                parts["all moved back"] = searches.cycle()
        return {
            "documents": len(self._documents),
            "searches": searches.count,
            "seconds": round(time.monotonic() - began),
            "backfill_rows_a_second": rate,
            "spaces": [space, following],
            "recall_if_mixed": exact[space].recall_of_queries_of(exact[following]),
            "parts": parts,
        }

    def _register(self, version: int) -> None:
        """Registers one of the two models with MLflow's own client."""
        mlflow.set_tracking_uri(self._mlflow_url)
        mlflow.set_experiment(NAME)
        with tempfile.TemporaryDirectory() as name, mlflow.start_run():
            folder = write_model(Path(name), self._documents, version=version)
            mlflow.onnx.log_model(
                onnx.load(folder / "model.onnx"),
                name="model",
                registered_model_name=NAME,
                signature=_SIGNATURE,
                extra_files=[str(folder / file) for file in ("tokenizer.json", "config.json")],
                metadata={"task": "text-embedding"},
                pip_requirements=["onnx", "onnxruntime", "tokenizers"],
                save_as_external_data=False,
            )

    def _index(self, name: str, *flags: str) -> tuple[dict[str, SpaceIndex], float]:
        """Has Headrace make all documents' vectors; an index of each store, and rows a second."""
        source, target = self._folder / "texts.jsonl", self._folder / f"{name}.parquet"
        rows = [{"id": place, "text": text} for place, text in enumerate(self._documents)]
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        line = ("backfill", NAME, *flags, "--input", str(source), "--output", str(target), "--json")
        done = json.loads(self._command(*line))
        table = parquet.read_table(target)
        if table["id"].to_pylist() != list(range(len(rows))):
            raise AssertionError("a document is not there, or there twice")
        flat = table["vector"].combine_chunks().flatten().to_numpy()
        vectors = normalised(flat.reshape(len(rows), -1))
        space = done["space"]
        made = {
            store: SpaceIndex(space, build(space, vectors)) for store, build in self._stores.items()
        }
        return made, round(done["rows"] / done["seconds"], 1)


def corpus(count: int) -> tuple[list[str], list[tuple[str, int]]]:
    """Documents of 16 words of real texts, and queries: three words of one, and its place."""
    words = words_of(TEXTS.read_text(encoding="utf-8"))
    starts = np.linspace(0, len(words) - 16, count).astype(int).tolist()
    documents = [" ".join(words[start : start + 16]) for start in starts]
    random = np.random.default_rng(0)
    queries = [
        (" ".join(random.choice(documents[place].split(), 3, replace=False)), place)
        for place in random.permutation(count)[:QUERIES].tolist()
    ]
    return documents, queries


def normalised(vectors: Vectors) -> Vectors:
    """At length 1."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), np.float32)


def wait_for(ask: Callable[[], Answer]) -> Answer:
    """The answer, once the endpoint is there and has the space."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return ask()
        except httpx.HTTPStatusError as error:
            if error.response.status_code not in {404, 503} or time.monotonic() > deadline:
                raise
        time.sleep(1)


@dataclass(frozen=True)
class Exact:
    """An exact search in one space, whose vectors nobody served.

    Attributes:
        documents: ``[documents, d]``.
        queries: ``[queries, d]``.
        products: of each query with each document.
    """

    documents: Vectors
    queries: Vectors
    products: Vectors

    @classmethod
    def of(cls, documents: Sequence[str], queries: Sequence[str], *, version: int) -> "Exact":
        """By the words' vectors of a version."""
        words, table = table_of(documents, version=version)
        places = {word: place for place, word in enumerate(words)}

        def embed(texts: Sequence[str]) -> Vectors:
            rows = [[places[each] for each in words_of(t) if each in places] for t in texts]
            return normalised(np.stack([table[row].sum(axis=0) for row in rows]))

        made, asked = embed(documents), embed(queries)
        return cls(made, asked, asked @ made.T)

    def recall(self, query: int, found: Sequence[int]) -> float:
        """Share of the nearest documents of a query that are among those found."""
        products = self.products[query]
        tenth = np.partition(products, -NEAREST)[-NEAREST]
        nearest = [place for place in {*found} if products[place] >= tenth - ROUNDING]
        return min(len(nearest), NEAREST) / NEAREST

    def recall_of_queries_of(self, other: "Exact") -> float:
        """Mean recall of an index of this space that is asked with vectors of another one."""
        found: NDArray[np.int64] = np.argsort(-(other.queries @ self.documents.T), axis=1)
        recalls = [other.recall(at, row[:NEAREST].tolist()) for at, row in enumerate(found)]
        return round(float(np.mean(recalls)), 4)


class Searches:
    """Live searches, one after the other in all stores, from a thread of their own.

    Args:
        services: by store.
        queries: each with the place of the document that its words are from.
        exact: by space.

    Attributes:
        count: how many searches there were.
    """

    def __init__(
        self,
        services: Mapping[str, Search],
        queries: Sequence[tuple[str, int]],
        exact: Mapping[str, Exact],
    ) -> None:
        self.count = 0
        self._services = services
        self._queries = queries
        self._exact = exact
        # Of each turn, which asks all stores: by store the space and both recalls.
        self._turns: list[dict[str, tuple[str, float, bool]]] = []
        self._fault: BaseException | None = None
        self._done = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Searches until the end; raises what a search has raised."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join()
        self._check()

    def cycle(self) -> dict[str, dict[str, Any]]:
        """By store what the next searches found, with each query once.

        Those that are on their way while an index changes are of the index that they began with.
        """
        start = len(self._turns) + 1
        while len(self._turns) < start + len(self._queries):
            self._check()
            time.sleep(0.05)
        turns = self._turns[start : start + len(self._queries)]
        found = {}
        for store, service in self._services.items():
            spaces, exact, judged = zip(*(turn[store] for turn in turns), strict=True)
            if {*spaces} != {service.index.space}:
                raise AssertionError(f"{store} of {service.index.space} searched in {spaces}")
            found[store] = {
                "space": service.index.space,
                "recall": round(float(np.mean(exact)), 4),
                "documents_found": round(float(np.mean(judged)), 4),
            }
        return found

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            while not self._done.is_set():
                at = len(self._turns) % len(self._queries)
                self._turns.append({store: self._ask(store, at) for store in self._services})
        except Exception as fault:  # noqa: BLE001 - told to who waits
            self._fault = fault

    def _ask(self, store: str, at: int) -> tuple[str, float, bool]:
        query, place = self._queries[at]
        found, space = self._services[store].find(query, NEAREST)
        self.count += 1
        return space, self._exact[space].recall(at, found), place in found


if __name__ == "__main__":
    sys.exit(main())
