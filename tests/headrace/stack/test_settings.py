from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import ServicePortTakenError
from headrace.stack.settings import Ports, StackSettings

SETTINGS = StackSettings(home=Path("/h"), cache=Path("/c"))


def test_all_ports_are_needed_when_everything_is_embedded() -> None:
    assert SETTINGS.needed_ports() == Ports().by_name()


def test_an_existing_service_needs_no_port_of_ours_and_its_address_is_used() -> None:
    existing = replace(SETTINGS, kafka_bootstrap="k:1", mlflow_uri="http://m:2", triton_grpc="t:3")
    assert existing.needed_ports() == {
        "gateway_http": 8080,
        "gateway_grpc": 8081,
        "stats": 9300,
        "controller_metrics": 9301,
        "fold_metrics": 9302,
        "loader_metrics": 9303,
        "gateway_operations": 9310,
    }
    assert existing.kafka_address == "k:1"
    assert existing.mlflow_url == "http://m:2"
    assert existing.triton_address == "t:3"


def test_the_first_replicas_keep_the_flags_ports_and_further_ones_take_the_next() -> None:
    settings = replace(SETTINGS, gateways=3, tritons=2)
    assert [(each.name, each.http_port, each.grpc_port) for each in settings.gateway_replicas] == [
        ("gateway", 8080, 8081),
        ("gateway-2", 8082, 8083),
        ("gateway-3", 8084, 8085),
    ]
    assert [each.operations_port for each in settings.gateway_replicas] == [9310, 9311, 9312]
    first, second = settings.loader_replicas
    assert (first.name, first.metrics_port, first.triton_grpc) == ("loader", 9303, "127.0.0.1:8001")
    assert (second.name, second.metrics_port) == ("loader-2", 9304)
    assert second.triton is not None
    assert second.triton.name == "triton-2"
    assert second.triton_grpc == second.triton.grpc == "127.0.0.1:8004"
    assert (second.triton.http_port, second.triton.metrics_port) == (8003, 8005)


@pytest.mark.parametrize("gateways", [1, 2, 16])
@pytest.mark.parametrize("tritons", [1, 2, 16])
def test_no_two_parts_are_given_the_same_port(gateways: int, tritons: int) -> None:
    # Side by side, so that every replica has to step over other parts' ports.
    close = Ports(*range(12_000, 12_013))
    for ports in (Ports(), close):
        needed = replace(SETTINGS, ports=ports, gateways=gateways, tritons=tritons).needed_ports()
        assert len(needed) == 13 + 3 * (gateways - 1) + 4 * (tritons - 1)
        assert len(set(needed.values())) == len(needed)
        assert needed.items() >= ports.by_name().items()


def test_more_gateways_move_no_triton_and_no_gateway() -> None:
    two, three = (replace(SETTINGS, gateways=count, tritons=2) for count in (2, 3))
    assert two.needed_ports().items() <= three.needed_ports().items()


def test_an_existing_triton_stands_for_all_and_takes_no_port_of_ours() -> None:
    settings = replace(SETTINGS, triton_grpc="t:3", gateways=2)
    assert settings.triton_replicas == ()
    (loader,) = settings.loader_replicas
    assert (loader.triton_grpc, loader.triton) == ("t:3", None)
    assert "triton_http" not in settings.needed_ports()


def test_no_port_above_the_first_replicas_is_a_sentence() -> None:
    settings = replace(SETTINGS, ports=Ports(gateway_http=65_535), gateways=2)
    with pytest.raises(ServicePortTakenError, match="--port-gateway-http"):
        settings.needed_ports()


def test_callers_and_people_reach_what_is_for_them_and_nothing_else_leaves_loopback() -> None:
    settings = replace(SETTINGS, listen="0.0.0.0", gateways=2, tritons=2)
    listened = {name: settings.listens_on(name) for name in settings.needed_ports()}
    assert {name for name, host in listened.items() if host == "0.0.0.0"} == {
        "gateway_http", "gateway_grpc", "gateway_operations", "mlflow", "stats",
        "gateway_http_2", "gateway_grpc_2", "gateway_operations_2",
    }  # fmt: skip
    assert set(listened.values()) == {"0.0.0.0", "127.0.0.1"}


@pytest.mark.parametrize(
    ("listen", "host"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("192.0.2.7", "192.0.2.7")],
)
def test_addresses_are_those_at_which_this_machine_reaches_them(listen: str, host: str) -> None:
    settings = replace(SETTINGS, listen=listen)
    (gateway,) = settings.gateway_replicas
    assert (gateway.url, gateway.grpc) == (f"http://{host}:8080", f"{host}:8081")
    assert gateway.operations_url == f"http://{host}:9310"
    assert (settings.mlflow_url, settings.stats_url) == (
        f"http://{host}:5000",
        f"http://{host}:9300",
    )
    assert settings.kafka_address == "127.0.0.1:9092"
    assert settings.triton_address == "127.0.0.1:8001"


def test_parts_that_are_there_are_looked_for_in_their_own_folder() -> None:
    assert SETTINGS.parts_folder == Path("/c")
    assert replace(SETTINGS, parts=Path("/p")).parts_folder == Path("/p")


def test_each_triton_belongs_to_the_pool_of_its_place_and_further_ones_to_the_default() -> None:
    settings = replace(SETTINGS, tritons=3, pools=("cpu", "gpu"))
    assert [each.pool for each in settings.loader_replicas] == ["cpu", "gpu", "default"]
    existing = replace(SETTINGS, triton_grpc="t:3", pools=("gpu",))
    assert [each.pool for each in existing.loader_replicas] == ["gpu"]
