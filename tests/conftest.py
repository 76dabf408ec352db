"""Fixtures that several packages' tests share: the real components."""

import functools
import gc
import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import kafka_sockets
import pytest
import real_object_store
from own_ports import own_ports
from own_servers import KafkaProcess, MlflowProcess, TritonProcess
from random_examples import limit_examples
from real_object_store import ObjectStore
from selected_modules import leaves_out
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from headrace.stack.kafka import KafkaFiles, KafkaNode
from headrace.stack.kafka import prepare as prepare_kafka
from headrace.stack.mlflow import LocalMlflowServer
from headrace.stack.triton import TritonFiles, TritonServer
from headrace.stack.triton import prepare as prepare_triton

# How long an example takes says more about the machine's other work than about our code.
UNTIMED = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
# At most so many examples of a property, whatever it asks for. Others are drawn each time.
PROFILES = {
    "full": UNTIMED,  # for make soak
    "untimed": hypothesis.settings(UNTIMED, max_examples=25),
    "quick": hypothesis.settings(UNTIMED, max_examples=10, stateful_step_count=20),  # make check
}
for _name, _profile in PROFILES.items():
    hypothesis.settings.register_profile(_name, _profile)
hypothesis.settings.load_profile("untimed")


# Begun first, so that in the end no process runs one of these while another has nothing to do.
LONGEST = ("tests/stack", "tests/headrace/test_up.py", "tests/stats/ui/test_page.py")


# Clients that take a second of each process that loads them. Tests that mention one stand one after
# the other, so that most of them come to one process.
HEAVY = ("mlflow", "kubernetes")


@functools.cache
def heaviest(path: Path) -> int:
    """The place in ``HEAVY`` of the first client that a module's text mentions."""
    text = path.read_text(encoding="utf-8")
    return next((at for at, name in enumerate(HEAVY) if name in text), len(HEAVY))


# New objects before a collection, and collections before one of the older objects. At Python's own
# 700, 10, 10 a seventh of the unit tests' processor time goes by collecting garbage.
GC_THRESHOLDS = (20_000, 20, 20)


def together(nodeid: str) -> str:
    """What a real test shares with others, so that one process runs them: a stack, else a file."""
    file = nodeid.split("::", maxsplit=1)[0]
    folder = file.rpartition("/")[0]
    return folder if folder == "tests/stack" else file


class Together(LoadScopeScheduling):
    """Gives each process all tests of what they share, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return together(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together | None:
    """For ``make real``; what asks for another distribution has it."""
    return Together(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For ``-n auto``: two processes a core, for unit tests wait as long as they compute.

    At most 16, since each of them imports and collects all tests.
    """
    return min(2 * (os.cpu_count() or 1), 16)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out what no test is selected from: to import all takes seconds in each process."""
    expression = config.getoption("markexpr")
    if not expression or not collection_path.match("test_*.py"):
        return None
    return leaves_out(expression, collection_path.read_text(encoding="utf-8")) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects tests without collecting garbage, which halves the time that it takes.

    What is imported and collected by then stays to the end, and no collection looks at it again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts what takes longest first, and what loads a heavy client together."""
    profile = config.getoption("--hypothesis-profile", default=None) or "untimed"
    if profile != "full":
        for item in items:
            if isinstance(item, pytest.Function) and not item.get_closest_marker("soak"):
                limit_examples(item.function, PROFILES[profile].max_examples)
    ranks = {shared: rank for rank, shared in enumerate(LONGEST)}
    items.sort(key=lambda item: (ranks.get(together(item.nodeid), len(ranks)), heaviest(item.path)))


@pytest.fixture(scope="session", autouse=True)
def _kafka_sockets() -> None:
    """What a test imports is imported by now: all tests are collected."""
    kafka_sockets.close_unconnected()


@pytest.fixture(scope="session")
def cache() -> Path:
    """The folder of what is downloaded at the first use on a machine."""
    return Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace")


@pytest.fixture(scope="session")
def kafka_files(cache: Path) -> KafkaFiles:
    """Apache Kafka itself."""
    return prepare_kafka(cache)


@pytest.fixture(scope="session")
def triton_files(cache: Path) -> TritonFiles:
    return prepare_triton(cache, lambda _: None)


@pytest.fixture(scope="session")
def kafka(
    kafka_files: KafkaFiles, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaProcess]:
    """A real broker that is up. Who kills or wipes it starts it again. Topics: one a test."""
    port, controller_port = own_ports(2)
    node = KafkaNode(tmp_path_factory.mktemp("kafka"), port=port, controller_port=controller_port)
    process = KafkaProcess(kafka_files, node)
    process.start()
    yield process
    process.stop()


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowProcess]:
    """An MLflow server that is up. Who kills it starts it again; registered models: one a test."""
    (port,) = own_ports(1)
    process = MlflowProcess(LocalMlflowServer(tmp_path_factory.mktemp("mlflow"), port))
    process.start()
    yield process
    process.stop()


@pytest.fixture
def new_mlflow(tmp_path: Path) -> Iterator[MlflowProcess]:
    """An MLflow server of the test's own: it knows nothing, and has not looked webhooks up yet."""
    (port,) = own_ports(1)
    process = MlflowProcess(LocalMlflowServer(tmp_path / "mlflow", port))
    process.start()
    yield process
    process.stop()


@pytest.fixture
def triton(triton_files: TritonFiles, tmp_path: Path) -> Iterator[TritonProcess]:
    """A Triton that is up and holds no model."""
    http, grpc, metrics = own_ports(3)
    server = TritonServer(tmp_path / "repository", http, grpc, metrics)
    process = TritonProcess(triton_files, server, tmp_path / "triton.log")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def tritons(triton_files: TritonFiles, tmp_path: Path) -> Iterator[list[TritonProcess]]:
    """Two that are up and hold no model. Tests may kill or stop them."""
    with ExitStack() as cleanup:
        found = []
        for name in ("one", "other"):
            http, grpc, metrics = own_ports(3)
            server = TritonServer(tmp_path / name, http, grpc, metrics)
            process = TritonProcess(triton_files, server, tmp_path / f"{name}.log")
            process.start()
            cleanup.callback(process.kill9)
            found.append(process)
        yield found


@pytest.fixture(scope="session")
def object_store(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An S3 server that is up, and this process signed in. Who kills it starts it again."""
    server = ObjectStore(real_object_store.program(cache), tmp_path_factory.mktemp("object-store"))
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        real_object_store.use(patch, server.environment)
        real_object_store.make_bucket()
        yield server
    server.stop()
