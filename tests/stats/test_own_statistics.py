"""Users' own statistics and UNK words, from an installed class to what people read: real parts."""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from fold_world import Topics, Workers, until
from gateway_process import Running, gateway_at, lay_out, put
from gateway_world import endpoint_of
from merged_windows import all_windows
from own_servers import KafkaProcess

from contracts.endpoint import ModelEndpoint, UnkWords
from contracts.rollout import CustomStatistic, StatisticKind
from contracts.windows import WindowAggregate
from headrace.commands.unk_words import by_version
from measures.merging import merge
from stats.reading.record_log import windows_since
from stats.recounting.recount import RecountScope, recount_kafka

pytestmark = pytest.mark.real

ENDPOINT = "shop"
PREPROCESSOR = """
class Shop:
    def preprocess(self, texts, state):
        for text in texts:
            state.observe("length", len(text))
            state.observe("language", "fr" if "chat" in text else "en")
            state.observe("links", text.count("http"))
            state.observe("links", "three")          # a counter is no word
            state.observe("nobody_declared_this", 1)
            if "bug" in text:
                state.observe("length", float("nan"))  # raises: the hook fails
"""
METADATA = "Metadata-Version: 2.1\nName: shop\nVersion: 1\n"
ENTRY_POINTS = f"[headrace.preprocessors]\n{ENDPOINT} = shop:Shop\n"


def install(folder: Path) -> None:
    """Lays a package out as an installer does."""
    info = folder / "shop-1.dist-info"
    info.mkdir(parents=True)
    (folder / "shop.py").write_text(PREPROCESSOR)
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)


def asking(endpoint: ModelEndpoint) -> ModelEndpoint:
    declared = (
        CustomStatistic(name="length", kind=StatisticKind.HISTOGRAM, edges=(4.0, 16.0)),
        CustomStatistic(name="language", kind=StatisticKind.CATEGORY, values=("en", "de")),
        CustomStatistic(name="links", kind=StatisticKind.COUNTER),
    )
    changes = {"statistics": declared, "unk_words": UnkWords(enabled=True)}
    spec = endpoint.spec.model_copy(update=changes)
    return endpoint.model_copy(update={"spec": spec})


@pytest.fixture
def topics(kafka: KafkaProcess) -> Iterator[Topics]:
    found = Topics(kafka.bootstrap, gateways=True)
    yield found
    found.close()


async def test_what_users_observe_and_which_words_were_unknown_can_be_read(
    kafka: KafkaProcess, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.time()
    install(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    home = tmp_path / "home"
    home.mkdir()
    (ref,) = lay_out(home, "1")
    put(home, asking(endpoint_of(ref, name=ENDPOINT)))
    async with gateway_at(home, "--kafka-bootstrap", kafka.bootstrap) as gateway:
        for text in ("w1 w2 http corona", "chat", "w1 corona http http", "a bug corona"):
            assert await status_of(gateway, text) == 200
        metrics = (await gateway.operations.get("/metrics")).text
        gateway.process.terminate()
        assert await gateway.process.wait() == 0
    assert f'preprocessor_failures_total{{endpoint="{ENDPOINT}",reason="ValueError"}} 1' in metrics
    workers = Workers(topics, tmp_path)
    workers.start()
    try:
        until(lambda: attempts(topics) == 4, "the events are not folded")
    finally:
        workers.end()

    aggregate = merge(aggregates_of(topics))
    own = {counts.spec.name: counts for counts in aggregate.own}
    assert own["length"].counts == {"0": 1, "2": 2, "1": 1}
    assert own["language"].counts == {"en": 3}
    assert (own["language"].unfit, own["links"].unfit) == (1, 4)
    assert own["links"].sum_micro == 3_000_000
    assert aggregate.undeclared == {"nobody_declared_this": 4}

    windows = windows_since(kafka.bootstrap, ENDPOINT, began - 60, topic=topics.windows)
    words = by_version(windows, began - 60)["1"]
    assert words.counts == {"corona": 3, "http": 3, "chat": 1, "a": 1, "bug": 1}
    found = recount_kafka(
        kafka.bootstrap,
        RecountScope(began - 60, time.time() + 60, ENDPOINT),
        predictions=topics.predictions,
        windows=topics.windows,
    )
    assert found.agrees
    assert found.numbers > 20


async def status_of(gateway: Running, text: str) -> int:
    return (await gateway.http.post(f"/endpoints/{ENDPOINT}", json={"inputs": text})).status_code


def aggregates_of(topics: Topics) -> list[WindowAggregate]:
    """All of the endpoint's aggregates, as of one window."""
    return [
        msgspec.structs.replace(aggregate, start=0)
        for window in all_windows(topics.merged(), ENDPOINT)
        for aggregate in window.aggregates
    ]


def attempts(topics: Topics) -> int:
    windows = all_windows(topics.merged(), ENDPOINT)
    return sum(
        sum(aggregate.statuses.values()) for window in windows for aggregate in window.aggregates
    )
