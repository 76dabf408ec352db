from dataclasses import replace
from pathlib import Path

from headrace.stack.settings import Ports, StackSettings

SETTINGS = StackSettings(home=Path("/h"), cache=Path("/c"))


def test_all_ports_are_needed_when_everything_is_embedded() -> None:
    assert SETTINGS.needed_ports() == Ports().named()


def test_an_existing_service_needs_no_port_of_ours_and_its_address_is_used() -> None:
    existing = replace(SETTINGS, kafka_bootstrap="k:1", mlflow_uri="http://m:2", triton_grpc="t:3")
    assert existing.needed_ports() == {
        "gateway_http": 8080,
        "gateway_grpc": 8081,
        "stats": 9300,
        "controller_metrics": 9301,
        "fold_metrics": 9302,
        "loader_metrics": 9303,
    }
    assert existing.kafka_address == "k:1"
    assert existing.mlflow_url == "http://m:2"
    assert existing.triton_address == "t:3"
