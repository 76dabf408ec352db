"""The ways to serve the two tasks that are compared: how each is started, asked and read."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from bench.peers import with_triton
from bench.peers.started import started
from bench.peers.subjects import Running, Site
from bench.processes import free_port
from contracts.tasks import Task

HEADRACE = "Headrace"
RANKING, TOKENS = Task.TEXT_RANKING, Task.TOKEN_CLASSIFICATION
Pair = tuple[str, str]  # a query and a document
Rows = Sequence[Pair] | Sequence[str]
Body = Callable[[Any], object]


@dataclass(frozen=True)
class Way:
    """A way to serve.

    Attributes:
        name: as tables have it.
        tuned: what it was set to.
        lock: of its environment, ``locks/peers-<lock>.txt``; Headrace has none.
        start: starts it for a task.
        bodies: of each task, what makes a request of its rows.
        read: of each task, its rows' scores or entities out of an answer.
    """

    name: str
    tuned: str
    lock: str | None
    start: Callable[[Site, Task], AbstractContextManager[Running]]
    bodies: dict[Task, Body]
    read: dict[Task, Callable[[Any], Any]]


@contextmanager
def _headrace(site: Site, task: Task) -> Iterator[Running]:
    with with_triton.headrace(site) as running:
        path = f"{running.path}/rerank" if task is RANKING else running.path
        yield Running(running.port, path)


@contextmanager
def _bentoml(site: Site, task: Task) -> Iterator[Running]:
    port = free_port()
    service = "bench.tasks.servers.bentoml_server:Tasks"
    with started(
        [site.program("bentoml"), "serve", service, "--host", "127.0.0.1", "--port", str(port)],
        environment={
            **site.variables(),
            "BENTOML_HOME": str(site.folder / "bentoml"),
            "BENTOML_DO_NOT_TRACK": "True",
        },
        folder=site.folder,
        cores=site.cores,
        ready=f"http://127.0.0.1:{port}/readyz",
    ):
        yield Running(port, "/rank" if task is RANKING else "/entities")


def _pipeline(rows: int) -> Callable[[Site, Task], AbstractContextManager[Running]]:
    @contextmanager
    def start(site: Site, task: Task) -> Iterator[Running]:
        port = free_port()
        with started(
            [
                site.program("uvicorn"), "bench.tasks.servers.pipeline_server:app",
                "--host", "127.0.0.1", "--port", str(port), "--no-access-log",
                "--log-level", "warning",
            ],
            environment={
                **site.variables(),
                "PEERS_MODEL": str(site.model.states),
                "PEERS_TASK": task,
                "PEERS_ROWS": str(rows),
            },
            folder=site.folder,
            cores=site.cores,
            ready=f"http://127.0.0.1:{port}/ready",
        ):  # fmt: skip
            yield Running(port, "/predict")

    return start


def _texts(rows: Sequence[str]) -> object:
    return {"inputs": list(rows)}


def _tei(rows: Sequence[Pair]) -> object:
    return {"query": rows[0][0], "texts": [document for _, document in rows]}


def _by_index(answer: Any) -> list[float]:  # noqa: ANN401 - JSON
    return [each["score"] for each in sorted(answer, key=lambda each: each["index"])]


def _pairs(rows: Sequence[Pair]) -> object:
    return {"inputs": [list(pair) for pair in rows]}


def _named(rows: Sequence[Pair]) -> object:
    return {"inputs": [{"text": query, "text_pair": document} for query, document in rows]}


def _itself(answer: Any) -> Any:  # noqa: ANN401 - JSON
    return answer


_ITSELF: dict[Task, Callable[[Any], Any]] = {RANKING: _itself, TOKENS: _itself}
_PIPELINE = (
    "the pipeline of transformers with `optimum`'s ONNX Runtime behind FastAPI; one worker, one "
    "thread; `batch_size` {rows}, {why}"
)
WAYS = (
    Way(
        HEADRACE,
        "gateway, loader and Triton as `headrace up` runs them, events to Kafka, receipts signed; "
        "one instance",
        None,
        _headrace,
        {RANKING: _tei, TOKENS: _texts},
        {RANKING: _by_index, TOKENS: _itself},
    ),
    Way(
        "BentoML",
        "adaptive batching of at most 512 rows; in it `tokenizers` and ONNX Runtime, rows of like "
        "length together, at most 16 a run; one worker; no access log",
        "bentoml",
        _bentoml,
        {RANKING: _pairs, TOKENS: _texts},
        _ITSELF,
    ),
    *(
        Way(
            f"pipeline, {rows} a batch",
            _PIPELINE.format(rows=rows, why=why),
            "infinity",
            _pipeline(rows),
            {RANKING: _named, TOKENS: _texts},
            _ITSELF,
        )
        for rows, why in (
            (1, "which the pipelines' page advises for a CPU"),
            (16, "padded to the longest, in the order of the texts"),
        )
    ),
)  # fmt: skip
