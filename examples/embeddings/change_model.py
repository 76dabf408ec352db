"""Changes the embedding model of a search that people use all the time, and changes it back.

    headrace up --window-seconds 1            # in one terminal
    python examples/embeddings/change_model.py         # in another; some minutes

It registers a model, indexes documents and searches without a pause. Then it registers a better
model, waits until ``next`` is there, indexes again, cuts over, and undoes it. It counts how many
searches find the document that their words are from.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import mlflow
import numpy as np
import onnx
from mlflow.models import ModelSignature
from mlflow.types import Schema, TensorSpec
from search import Embedder, Search
from word_vectors import WIDTH, words_of, write_model

HEADRACE = str(Path(sys.executable).with_name("headrace"))
NAME = "documents"
TEXTS = Path(__file__).parents[1] / "sentiment" / "texts" / "replay.txt"
WAIT_SECONDS = 900.0
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
    """Runs it on the stack of a home."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--home", help="the stack's home, as in headrace up")
    parser.add_argument("--documents", type=int, default=10_000)
    arguments = parser.parse_args()
    home = [] if arguments.home is None else ["--home", arguments.home]

    def command(*words: str) -> str:
        return subprocess.run(
            [HEADRACE, *words, *home], check=True, capture_output=True, text=True
        ).stdout

    running = json.loads(command("status", "-o", "json"))["stack"]
    if running is None:
        raise SystemExit("No stack is running. Start one with: headrace up")
    change_model(running["gateway_url"], running["mlflow_url"], command, arguments.documents)
    return 0


def change_model(
    gateway_url: str, mlflow_url: str, command: Command, count: int
) -> dict[str, float]:
    """The whole change; recall@10 of each part of it, all searches of which went well."""
    documents, queries = corpus(count)
    register(mlflow_url, documents, version=1)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(ENDPOINT)
        file.flush()
        command("apply", "-f", file.name)
    recalls: dict[str, float] = {}
    with Embedder(gateway_url, NAME) as embedder:
        old = wait_for(lambda: embedder.index(documents))
        search = Search(embedder, old)
        with Searches(search, queries).running() as searches:
            recalls["old"] = searches.recall(old.space)
            register(mlflow_url, documents, version=2)
            wait_for(lambda: embedder.embed(["is it there?"], "next"))
            new = embedder.index(documents, "next")
            recalls["while both are there"] = searches.recall(old.space)
            command("space", "cutover", NAME)
            recalls["cut over, old index"] = searches.recall(old.space)
            search.index = new
            recalls["cut over, new index"] = searches.recall(new.space)
            command("space", "undo", NAME)
            recalls["undone, new index"] = searches.recall(new.space)
            search.index = old
            recalls["undone, old index"] = searches.recall(old.space)
    for part, recall in recalls.items():
        print(f"{part:22} {recall:6.1%}")
    return recalls


def corpus(count: int) -> tuple[list[str], list[tuple[str, int]]]:
    """Documents of 16 words of real texts, and queries: three words of one, and its place."""
    words = words_of(TEXTS.read_text(encoding="utf-8"))
    starts = np.linspace(0, len(words) - 16, count).astype(int).tolist()
    documents = [" ".join(words[start : start + 16]) for start in starts]
    random = np.random.default_rng(0)
    queries = [
        (" ".join(random.choice(documents[place].split(), 3, replace=False)), place)
        for place in random.permutation(count)[:500].tolist()
    ]
    return documents, queries


def register(mlflow_url: str, texts: Sequence[str], *, version: int) -> None:
    """Registers one of the two models with MLflow's own client."""
    mlflow.set_tracking_uri(mlflow_url)
    mlflow.set_experiment(NAME)
    with tempfile.TemporaryDirectory() as name, mlflow.start_run():
        folder = write_model(Path(name), texts, version=version)
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


class Searches:
    """Live searches, one after the other, from a thread of their own."""

    def __init__(self, search: Search, queries: Sequence[tuple[str, int]]) -> None:
        self._search = search
        self._queries = queries
        self._found: list[tuple[str, bool]] = []  # space, and whether the document was found
        self._fault: BaseException | None = None
        self._done = threading.Event()

    @contextmanager
    def running(self) -> Iterator["Searches"]:
        """Searches until the end; raises what a search has raised."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self._done.set()
            thread.join()
        self._check()

    def recall(self, space: str, count: int = 200) -> float:
        """recall@10 of the next searches, all of which have to be of this space.

        One that is on its way while the index changes is of the index that it began with.
        """
        start = len(self._found) + 1
        while len(self._found) < start + count:
            self._check()
            time.sleep(0.05)
        newest = self._found[start : start + count]
        if {of for of, _ in newest} != {space}:
            raise AssertionError(f"searches of other spaces than {space}: {newest}")
        return sum(is_found for _, is_found in newest) / count

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        at = 0
        while not self._done.is_set():
            query, place = self._queries[at % len(self._queries)]
            at += 1
            try:
                found, space = self._search.find(query)
            except Exception as fault:  # noqa: BLE001 - told to who waits
                self._fault = fault
                return
            self._found.append((space, place in found))


if __name__ == "__main__":
    sys.exit(main())
