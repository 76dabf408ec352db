import socket
from collections.abc import Iterator

import pytest
from own_ports import own_ports

from headrace.errors import ServicePortTakenError
from headrace.stack.ports import is_free, require_free
from headrace.stack.settings import Ports


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_a_port_that_is_listened_on_is_not_free(taken: int) -> None:
    assert not is_free(taken)


def test_a_port_is_free_again_once_its_listener_has_gone() -> None:
    (port,) = own_ports(1)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port))
        holder.listen()
    assert is_free(port)


def test_the_sentence_names_the_service_the_port_and_the_flag(taken: int) -> None:
    ports = Ports(mlflow=taken)
    with pytest.raises(ServicePortTakenError) as caught:
        require_free({"mlflow": taken}, ports)
    for part in ("mlflow", str(taken), "--port-mlflow"):
        assert part in caught.value.message


def test_every_taken_port_is_named_at_once(taken: int) -> None:
    with socket.socket() as second:
        second.bind(("127.0.0.1", 0))
        second.listen()
        other = second.getsockname()[1]
        with pytest.raises(ServicePortTakenError) as caught:
            require_free({"mlflow": taken, "gateway_http": other}, Ports())
    assert caught.value.message.count("\n") == 1
    assert "--port-gateway-http" in caught.value.message


def test_two_services_on_one_port_are_refused() -> None:
    with pytest.raises(ServicePortTakenError, match="--port-mlflow, --port-kafka"):
        require_free({"mlflow": 15001, "kafka": 15001, "gateway_http": 15002}, Ports())


def test_a_taken_port_of_a_further_replica_names_it_and_the_first_ones_flag(taken: int) -> None:
    with pytest.raises(ServicePortTakenError) as caught:
        require_free({"gateway_http_2": taken}, Ports())
    for part in ("gateway http 2", str(taken), "--port-gateway-http PORT"):
        assert part in caught.value.message


def test_a_port_is_looked_at_where_it_will_be_listened_on() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.2", 0))
        holder.listen()
        needed = {"mlflow": holder.getsockname()[1]}
        require_free(needed, Ports())
        with pytest.raises(ServicePortTakenError, match="--port-mlflow"):
            require_free(needed, Ports(), lambda _: "0.0.0.0")


def test_an_address_of_another_machine_is_a_sentence() -> None:
    (port,) = own_ports(1)
    with pytest.raises(
        ServicePortTakenError, match=r"192.0.2.7 is no address of this machine.*--listen"
    ):
        require_free({"mlflow": port}, Ports(), lambda _: "192.0.2.7")
