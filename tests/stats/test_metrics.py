"""What the fold role shows is what rules and dashboards ask for."""

from prometheus_client import CollectorRegistry, generate_latest

from contracts.metrics import FOLD_CONNECTED, FOLD_LAG, FOLD_MISSING, FOLD_OVERSIZED
from stats.fold import FoldCounts
from stats.metrics import register


def shown(counts: FoldCounts) -> list[str]:
    registry = CollectorRegistry()
    register(counts, registry)
    return generate_latest(registry).decode().splitlines()


def test_every_metric_that_rules_ask_for_is_shown_from_0_on() -> None:
    lines = shown(FoldCounts(lag={3: 0}))
    for metric in (FOLD_CONNECTED, FOLD_MISSING, FOLD_OVERSIZED):
        assert f"{metric.name} 0.0" in lines
    assert f'{FOLD_LAG.name}{{partition="3"}} 0.0' in lines


def test_lag_is_told_for_each_partition() -> None:
    lines = shown(FoldCounts(lag={0: 7, 5: 12}, connected=True))
    assert f'{FOLD_LAG.name}{{partition="0"}} 7.0' in lines
    assert f'{FOLD_LAG.name}{{partition="5"}} 12.0' in lines
    assert f"{FOLD_CONNECTED.name} 1.0" in lines


def test_what_is_wrong_with_messages_is_told_apart() -> None:
    lines = shown(FoldCounts(skipped=1, copies=2, mistimed=3, missing=4))
    for name, value in {"skipped": 1, "copies": 2, "mistimed": 3, "missing": 4}.items():
        assert f"headrace_fold_{name}_total {value}.0" in lines
