"""Ranks, finds entities, sorts by callers' labels, answers, writes, and gives vectors.

    headrace up                               # in one terminal
    python examples/tasks/ask.py              # in another; a minute

It writes small models (``word_models.py``), registers them in the stack's MLflow with the standard
client, makes an endpoint of each, waits until they serve, and asks them: a query with documents by
Jina's and Cohere's route, and texts in the form of Hugging Face.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import mlflow
import numpy as np
from mlflow.tracking import MlflowClient
from rich.console import Console
from word_models import (
    TOPICS,
    WORDS,
    write_embedder,
    write_expander,
    write_finder,
    write_hybrid,
    write_ranker,
    write_reader,
    write_sorter,
    write_writer,
)

HEADRACE = str(Path(sys.executable).with_name("headrace"))
RANKER, FINDER, SORTER = "words-ranker", "words-finder", "words-sorter"
EXPANDER, HYBRID, READER = "words-expander", "words-hybrid", "words-reader"
WRITER = "words-writer"
EMBEDDER = "words-embedder"
MODELS: Final[dict[str, Callable[[Path], Path]]] = {
    RANKER: write_ranker,
    FINDER: write_finder,
    SORTER: write_sorter,
    EXPANDER: write_expander,
    HYBRID: write_hybrid,
    READER: write_reader,
    WRITER: write_writer,
    EMBEDDER: write_embedder,
}
# The tasks of models that could have another one: a model of entailment is a classifier, too.
TASKS: Final = {
    SORTER: "zero-shot-classification",
    EXPANDER: "sparse-embedding",
    HYBRID: "hybrid-embedding",
}
QUERY: Final = "Who wrote the first programme?"
DOCUMENTS: Final = (
    "The Thames is a river in London.",
    "Ada Lovelace wrote the first programme of a computer.",
    "Jane Austen wrote the novel Emma in Bath.",
    "The machine of Turing.",
)
TEXTS: Final = (
    "Jane Austen lived in Bath, and wrote about Emma.",
    "The train from London to New York is a novel.",
    "What is the name of it?",
)
# Forms in which vectors are asked for by OpenAI's route, in its words and Headrace's own.
FORMS: Final[dict[str, dict[str, Any]]] = {
    "float32": {},
    "3 dimensions": {"dimensions": 3},
    "int8": {"precision": "int8"},
    "bits": {"precision": "ubinary"},
    "prompt books": {"prompt_name": "books"},
}
WAIT_SECONDS = 300.0
POLL_SECONDS = 1.0

console = Console()


def main() -> int:
    """Registers the models, waits until they serve, asks them and prints what they answer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--home", help="the stack's home, as in headrace up")
    arguments = parser.parse_args()
    home = [] if arguments.home is None else ["--home", arguments.home]
    running = json.loads(command("status", "--json", *home))["stack"]
    if running is None:
        raise SystemExit("No stack is running. Start one with: headrace up")
    mlflow.set_tracking_uri(running["mlflow_url"])
    with tempfile.TemporaryDirectory() as folder:
        for name, write in MODELS.items():
            register(name, write(Path(folder) / name))
            serve(name, Path(folder), home)
    for name in MODELS:
        wait_for(name, home)
    with httpx.Client(base_url=running["gateway_url"], timeout=30) as client:
        for name, (_, show) in REQUESTS.items():
            path, body = request_of(name)
            show(client.post(path, json=body).raise_for_status().json())
        for form, more in FORMS.items():
            _, body = request_of(EMBEDDER)
            answer = client.post("/v1/embeddings", json={**body, **more})
            show_nearest(form, answer.raise_for_status().json())
    return 0


def request_of(name: str) -> tuple[str, dict[str, Any]]:
    """Path and body of the request to an endpoint."""
    path = {
        RANKER: "/v1/rerank",
        EXPANDER: f"/endpoints/{EXPANDER}/embed_sparse",
        WRITER: "/v1/completions",
        EMBEDDER: "/v1/embeddings",
    }
    make, _ = REQUESTS[name]
    return path.get(name, f"/endpoints/{name}"), make()


def rerank_request() -> dict[str, Any]:
    """A query with its documents, as Jina's and Cohere's clients send it."""
    return {"model": RANKER, "query": QUERY, "documents": list(DOCUMENTS), "return_documents": True}


def entities_request() -> dict[str, Any]:
    """Texts, in the form of Hugging Face."""
    return {"inputs": list(TEXTS), "parameters": {"aggregation_strategy": "simple"}}


def labels_request() -> dict[str, Any]:
    """Texts with labels that the model was not made for, in the form of Hugging Face."""
    labels = [words[0] for words in TOPICS]
    return {"inputs": list(TEXTS), "parameters": {"candidate_labels": labels, "multi_label": True}}


def weights_request() -> dict[str, Any]:
    """Texts, in the form of Text Embeddings Inference."""
    return {"inputs": list(TEXTS)}


def kinds_request() -> dict[str, Any]:
    """A text, and three kinds of vectors that are wanted of it, in the form of Hugging Face."""
    parameters = {"kinds": ["dense", "sparse", "tokens"], "normalize": True}
    return {"inputs": TEXTS[1], "parameters": parameters}


def answers_request() -> dict[str, Any]:
    """A question with its contexts, of which some have no answer, in the form of Hugging Face."""
    inputs = {"question": QUERY, "context": list(DOCUMENTS)}
    return {"inputs": inputs, "parameters": {"handle_impossible_answer": True}}


def text_request() -> dict[str, Any]:
    """A prompt, as OpenAI's client sends it; the likeliest word is taken each time."""
    return {"model": WRITER, "prompt": "Ada Lovelace", "max_tokens": 12, "temperature": 0}


def vectors_request() -> dict[str, Any]:
    """A text and the documents that may be near to it, as OpenAI's clients send them."""
    return {"model": EMBEDDER, "input": [TEXTS[1], *DOCUMENTS]}


def register(name: str, folder: Path) -> None:
    """Logs a model's folder into a run and registers it as a version."""
    with mlflow.start_run(run_name=name) as run:
        mlflow.log_artifacts(str(folder), "model")
    client = MlflowClient()
    if not client.search_registered_models(f"name = '{name}'"):
        client.create_registered_model(name)
    client.create_model_version(name, f"{run.info.artifact_uri}/model", run.info.run_id)


def serve(name: str, folder: Path, home: list[str]) -> None:
    """Makes an endpoint of a registered model; its files tell its task, if ``TASKS`` does not."""
    file = folder / f"{name}.yaml"
    file.write_text(
        "apiVersion: headrace.dev/v1alpha1\nkind: ModelEndpoint\n"
        f"metadata:\n  name: {name}\nspec:\n  model: {name}\n"
        + (f"  task: {TASKS[name]}\n" if name in TASKS else ""),
        encoding="utf-8",
    )
    command("apply", "-f", str(file), *home)


def wait_for(name: str, home: list[str]) -> None:
    """Waits until an endpoint has a version that serves."""
    began = time.monotonic()
    while True:
        (endpoint,) = json.loads(command("status", name, "--json", *home))["endpoints"]
        if endpoint["status"]["routes"]:
            return
        if time.monotonic() - began > WAIT_SECONDS:
            raise SystemExit(f"{name} serves no version yet: headrace status {name} says why.")
        time.sleep(POLL_SECONDS)


def show_ranking(answer: dict[str, Any]) -> None:
    """The documents, best first, with their scores."""
    console.print(f"[bold]{QUERY}[/bold]")
    for result in answer["results"]:
        console.print(f"{result['relevance_score']:8.3f}  {result['document']['text']}")


def show_entities(answer: list[list[dict[str, Any]]]) -> None:
    """Each text, and below it what was found in it."""
    for text, entities in zip(TEXTS, answer, strict=True):
        console.print(f"[bold]{text}[/bold]")
        for each in entities:
            place = f"{each['start']}-{each['end']}"
            console.print(
                f"{each['score']:8.3f}  {each['entity_group']:4} {place:6} {each['word']}"
            )


def show_labels(answer: list[list[dict[str, Any]]]) -> None:
    """Each text, and below it how well each label fits."""
    for text, labels in zip(TEXTS, answer, strict=True):
        console.print(f"[bold]{text}[/bold]")
        for each in labels:
            console.print(f"{each['score']:8.3f}  {each['label']}")


def show_weights(answer: list[list[dict[str, Any]]]) -> None:
    """Each text, and below it the words that it would be found by, the heaviest first."""
    for text, weights in zip(TEXTS, answer, strict=True):
        console.print(f"[bold]{text}[/bold]")
        for each in sorted(weights, key=lambda weight: -weight["value"]):
            console.print(f"{each['value']:8.3f}  {WORDS[each['index']]}")


def show_kinds(answer: dict[str, Any]) -> None:
    """How near the text is to each topic, the words in it, and how many tokens have vectors."""
    console.print(f"[bold]{TEXTS[1]}[/bold]")
    near = (f"{words[0]} {value:.3f}" for words, value in zip(TOPICS, answer["dense"], strict=True))
    console.print(f"   dense   {', '.join(near)}")
    console.print(f"   sparse  {' '.join(WORDS[each['index']] for each in answer['sparse'])}")
    console.print(f"   tokens  {len(answer['tokens'])} vectors")


def show_answers(answer: list[dict[str, Any]]) -> None:
    """The question, and what each document says to it."""
    console.print(f"[bold]{QUERY}[/bold]")
    for each in answer:
        place = f"{each['start']}-{each['end']}"
        console.print(f"{each['score']:8.3f}  {place:6} {each['answer'] or '(no answer)'}")


def show_text(answer: dict[str, Any]) -> None:
    """The prompt with what was written after it, why it ended, and its tokens."""
    (choice,), usage = answer["choices"], answer["usage"]
    console.print(f"[bold]Ada Lovelace[/bold]{choice['text']}")
    tokens = f"{usage['prompt_tokens']} + {usage['completion_tokens']} tokens"
    console.print(f"   {choice['finish_reason']}, {tokens}")


def show_nearest(form: str, answer: dict[str, Any]) -> None:
    """The document that is nearest to the text, and how large a vector of this form is."""
    first, *others = (np.array(each["embedding"], np.float32) for each in answer["data"])
    if form == "bits":
        bits, *sets = (np.unpackbits(each.astype(np.uint8)) for each in (first, *others))
        likeness = [float((bits == each).mean()) for each in sets]
    else:
        likeness = [
            float(first @ each / (np.linalg.norm(first) * np.linalg.norm(each))) for each in others
        ]
    best = likeness.index(max(likeness))
    size = len(first) * (4 if form in ("float32", "3 dimensions", "prompt books") else 1)
    console.print(f"   {form:13} {size:3} bytes  {max(likeness):6.3f}  {DOCUMENTS[best]}")


def command(*words: str) -> str:
    """What a command of Headrace's prints; ends this program where it fails."""
    done = subprocess.run([HEADRACE, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"headrace {' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


# Of each endpoint, in this order: what makes its request, and what shows the answer.
REQUESTS: Final[dict[str, tuple[Callable[[], dict[str, Any]], Callable[[Any], None]]]] = {
    RANKER: (rerank_request, show_ranking),
    FINDER: (entities_request, show_entities),
    SORTER: (labels_request, show_labels),
    EXPANDER: (weights_request, show_weights),
    HYBRID: (kinds_request, show_kinds),
    READER: (answers_request, show_answers),
    WRITER: (text_request, show_text),
    EMBEDDER: (vectors_request, lambda _: console.print(f"[bold]{TEXTS[1]}[/bold]")),
}


if __name__ == "__main__":
    sys.exit(main())
