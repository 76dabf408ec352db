"""How Kafka is reached: the folder that signs in, addresses out of flags, ends of clients."""

import re
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaConnectionError
from waiting import until

from service.kafka import (
    KafkaAddress,
    KafkaAwayError,
    KafkaLoginError,
    Topics,
    close,
    consumer,
    login_options,
    producer,
)


def folder(home: Path, **files: str) -> str:
    for name, content in files.items():
        (home / name.replace("_", ".")).write_text(content)
    return str(home)


def test_without_a_folder_nothing_is_said() -> None:
    assert login_options("") == {}


def test_a_name_and_password_are_sasl_with_scram(tmp_path: Path) -> None:
    assert login_options(folder(tmp_path, username="ann\n", password="s3cret\n")) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ann",
        "sasl_plain_password": "s3cret",
    }


def test_an_authority_makes_it_tls(tmp_path: Path) -> None:
    found = login_options(
        folder(tmp_path, username="ann", password="p", mechanism="PLAIN", ca_crt="CA")
    )
    assert found["security_protocol"] == "SASL_SSL"
    assert found["sasl_mechanism"] == "PLAIN"
    assert found["ssl_cafile"] == str(tmp_path / "ca.crt")
    assert found["ssl_check_hostname"] is True


def test_a_certificate_of_the_client_needs_no_name(tmp_path: Path) -> None:
    found = login_options(folder(tmp_path, tls_crt="C", tls_key="K"))
    assert found["security_protocol"] == "SSL"
    assert found["ssl_certfile"] == str(tmp_path / "tls.crt")
    assert "ssl_cafile" not in found  # what the system trusts


def test_the_protocol_can_be_said_where_it_does_not_follow(tmp_path: Path) -> None:
    found = login_options(folder(tmp_path, username="ann", password="p", protocol="SASL_SSL"))
    assert found["security_protocol"] == "SASL_SSL"


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"username": "ann"}, "SASL needs the files username and password"),
        ({"username": "a", "password": "p", "mechanism": "GSSAPI"}, "is none of PLAIN"),
        ({"protocol": "TLS"}, "is none of PLAINTEXT, SSL"),
        ({"tls_crt": "C"}, "go together"),
    ],
)
def test_what_can_not_be_used_is_said_without_its_content(
    files: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(KafkaLoginError, match=sentence) as caught:
        login_options(folder(tmp_path, **files))
    assert "GSSAPI" not in str(caught.value)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(KafkaLoginError, match="there is no folder"):
        login_options(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("kind", [KafkaProducer, KafkaConsumer, KafkaAdminClient])
def test_every_client_knows_every_option(
    kind: type[KafkaProducer] | type[KafkaConsumer] | type[KafkaAdminClient], tmp_path: Path
) -> None:
    login = folder(tmp_path, username="a", password="p", ca_crt="A", tls_crt="C", tls_key="K")
    assert set(login_options(login)) <= set(kind.DEFAULT_CONFIG)


def test_an_address_is_made_of_flags(tmp_path: Path) -> None:
    login = folder(tmp_path, username="a", password="p")
    address = KafkaAddress.of("one:9092,two:9092", login=login, request_seconds=2.5)
    assert address.bootstrap == ("one:9092", "two:9092")
    assert address.request_ms == 2500
    assert address.options["sasl_plain_username"] == "a"
    assert KafkaAddress.of(("one:9092", "two:9092"), login=login, request_seconds=2.5) == address


def test_a_client_that_does_not_end_in_order_harms_nobody() -> None:
    class Broken(KafkaConsumer):
        def __init__(self) -> None:
            """Reaches no broker."""

        def close(self, **_: object) -> None:
            raise KafkaConnectionError("gone")

        def __del__(self) -> None:
            """Nothing is open."""

    close(Broken())


def test_no_other_module_makes_a_client() -> None:
    root = Path(__file__).parents[2]
    found = [
        str(module.relative_to(root))
        for service in ("gateway", "registry", "stats", "controller", "service", "headrace")
        for module in (root / service).rglob("*.py")
        if re.search(r"Kafka(Producer|Consumer|AdminClient)\(", module.read_text())
    ]
    assert found == []  # service/kafka.py hands the classes to one function


HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 15\r\n\r\n<html>no</html>"


def _frame(request: bytes, body: bytes) -> bytes:
    """A message that answers a request, by its number."""
    return struct.pack(">i", 4 + len(body)) + request[8:12] + body


ANSWERS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _: b"",
    "an HTTP server": lambda _: HTTP,
    "an SSH server": lambda _: b"SSH-2.0-OpenSSH_9.6\r\n",
    "half a message": lambda asked: _frame(asked, b"\0" * 400)[:100],
    "another message": lambda asked: _frame(asked, b"\xff" * 400),
    "an answer to nobody": lambda _: struct.pack(">ii", 400, 0x7F000001) + b"\0" * 396,
    "a negative size": lambda _: struct.pack(">i", -5),
}


@contextmanager
def port_that_says(answer: Callable[[bytes], bytes], *, hangs_up: bool) -> Iterator[str]:
    """Answers whatever connects, and then hangs up or says nothing more; gives host and port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                if asked := self.request.recv(4096):
                    self.request.sendall(answer(asked))
                    while not hangs_up and self.request.recv(4096):
                        pass

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("hangs_up", [False, True])
@pytest.mark.parametrize("answer", ANSWERS)
def test_whatever_listens_in_the_place_of_kafka_is_kafka_that_is_away(
    answer: str, *, hangs_up: bool
) -> None:
    threads = threading.active_count()
    with port_that_says(ANSWERS[answer], hangs_up=hangs_up) as bootstrap:
        address = KafkaAddress((bootstrap,), connect_seconds=0.3, request_seconds=0.3)
        asked: list[Callable[[], object]] = [
            lambda: Topics(address),
            lambda: consumer(address),
            lambda: producer(address, max_request_bytes=1000, delivery_seconds=1.0),
        ]
        for ask in asked:
            with pytest.raises(KafkaAwayError):
                ask()
    until("nothing is left behind", 60, lambda: threading.active_count() <= threads)
