from dataclasses import replace
from pathlib import Path

from headrace.stack import services
from headrace.stack.settings import StackSettings
from headrace.stack.state import Home

EXISTING = StackSettings(
    home=Path("/h"),
    cache=Path("/c"),
    kafka_bootstrap="k:1",
    mlflow_uri="http://m:2",
    triton_grpc="t:3",
)


def test_nothing_of_ours_nor_of_python_is_inherited_from_the_shell() -> None:
    base = {"PATH": "/bin", "HEADRACE_STORE_URL": "x", "PYTHONPATH": "/y", "PYTHONHOME": "/z"}
    env = services.environment(base)
    assert env["PATH"] == "/bin"
    assert not {"HEADRACE_STORE_URL", "PYTHONPATH", "PYTHONHOME"} & env.keys()
    assert env["PYTHONSAFEPATH"] == "1"


def test_existing_services_are_used_and_not_started() -> None:
    plan = {item.name: item for item in services.plan(EXISTING, Home(Path("/h")), {})}
    assert set(plan) == {"loader", "controller", "fold", "stats", "gateway"}
    assert "--kafka-bootstrap=k:1" in plan["stats"].argv
    assert "--kafka-bootstrap=k:1" in plan["fold"].argv
    assert "--kafka-bootstrap=k:1" in plan["gateway"].argv
    assert "--mlflow-uri=http://m:2" in plan["controller"].argv
    assert "--triton-grpc=t:3" in plan["loader"].argv
    # An existing Triton need not share our disk.
    assert "--model-repository=" in plan["loader"].argv


def test_the_gateway_asks_for_keys_only_where_a_file_is_named() -> None:
    def words(settings: StackSettings) -> tuple[str, ...]:
        return services.plan(settings, Home(Path("/h")), {})[-1].argv

    assert "--keys-file=" in words(EXISTING)
    assert "--keys-file=/k" in words(replace(EXISTING, keys_file=Path("/k")))


def test_the_length_of_a_window_is_the_stacks() -> None:
    plan = services.plan(replace(EXISTING, window_seconds=2), Home(Path("/h")), {})
    (fold,) = (item for item in plan if item.name == "fold")
    assert "--window-seconds=2" in fold.argv


def test_a_service_ends_before_what_it_uses() -> None:
    plan = {item.name: item for item in services.plan(EXISTING, Home(Path("/h")), {})}
    assert set(plan["gateway"].uses) == {"kafka", "triton"}
    assert plan["loader"].uses == ("triton",)
    assert plan["controller"].uses == ("mlflow",)
    assert plan["fold"].uses == ("kafka",)
