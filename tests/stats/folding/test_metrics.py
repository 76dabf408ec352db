"""What the fold role shows is what rules and dashboards ask for."""

from prometheus_client import CollectorRegistry, generate_latest

from contracts import metrics as m
from stats.folding.fold import FoldCounts
from stats.folding.metrics import register

NOW = 5000.0


def shown(counts: FoldCounts) -> list[str]:
    registry = CollectorRegistry()
    register(counts, registry, clock=lambda: NOW)
    return generate_latest(registry).decode().splitlines()


def test_every_metric_that_rules_ask_for_is_shown_from_0_on() -> None:
    lines = shown(FoldCounts(lag={3: 0}))
    for metric in (
        m.FOLD_CONNECTED,
        m.FOLD_LAST_READ,
        m.FOLD_CHECKED,
        m.FOLD_STALLS,
        m.FOLD_EMPTY_POLLS,
        m.FOLD_MISSING,
        m.FOLD_OVERSIZED,
    ):
        assert f"{metric.name} 0.0" in lines
    assert f'{m.FOLD_LAG.name}{{partition="3"}} 0.0' in lines


def test_what_is_wrong_with_messages_is_told_apart() -> None:
    lines = shown(FoldCounts(skipped=1, copies=2, mistimed=3, missing=4))
    for name, value in {"skipped": 1, "copies": 2, "mistimed": 3, "missing": 4}.items():
        assert f"headrace_fold_{name}_total {value}.0" in lines


def test_where_each_partition_stands_and_since_when_nothing_was_read_is_told() -> None:
    counts = FoldCounts(
        ends={0: 40, 3: 9},
        positions={0: 33, 3: 9},
        lag={0: 7, 3: 0},
        connected=True,
        last_read=1e9,
        checked=2e9,
        well=NOW - 7,
    )
    lines = shown(counts)
    for partition, end, position in ((0, 40, 33), (3, 9, 9)):
        assert f'{m.FOLD_END.name}{{partition="{partition}"}} {end}.0' in lines
        assert f'{m.FOLD_POSITION.name}{{partition="{partition}"}} {position}.0' in lines
        assert f'{m.FOLD_LAG.name}{{partition="{partition}"}} {end - position}.0' in lines
    assert f"{m.FOLD_CONNECTED.name} 1.0" in lines
    assert f"{m.FOLD_STALLED.name} 7.0" in lines
    assert f"{m.FOLD_LAST_READ.name} 1e+09" in lines
    assert f"{m.FOLD_CHECKED.name} 2e+09" in lines
