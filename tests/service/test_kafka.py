"""How Kafka is reached: the folder that signs in, addresses out of flags, ends of clients."""

import re
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaConnectionError

from service.kafka import KafkaAddress, KafkaLoginError, close, login_options


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
