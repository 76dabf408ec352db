"""How Headrace's processes sign in to Kafka: a folder with a file for each thing, as Secrets mount.

Files: ``username`` and ``password`` for SASL, ``mechanism`` (``SCRAM-SHA-512`` where it is
missing), ``ca.crt`` for TLS under an own authority, ``tls.crt`` and ``tls.key`` for a certificate
of the client, and ``protocol`` where Kafka's name of it does not follow from these. It connects to
nothing, and never puts what it reads into a message.
"""

from pathlib import Path

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_AUTHORITY, _CERTIFICATE, _KEY = "ca.crt", "tls.crt", "tls.key"


class KafkaLoginError(Exception):
    """The folder can't be used; says which file and why, never what is in it."""


def options(folder: str) -> dict[str, object]:
    """Options for kafka-python's clients; none where ``folder`` is empty.

    Raises:
        KafkaLoginError: the folder or a file in it is missing, or says what Kafka does not know.
    """
    if not folder:
        return {}
    home = Path(folder).expanduser()
    if not home.is_dir():
        raise KafkaLoginError(f"--kafka-login: there is no folder {home}")
    username = _word(home, "username")
    secured = any((home / name).exists() for name in (_AUTHORITY, _CERTIFICATE))
    protocol = _word(home, "protocol") or _protocol(sasl=bool(username), tls=secured)
    if protocol not in PROTOCOLS:
        raise _unknown(home / "protocol", PROTOCOLS)
    found: dict[str, object] = {"security_protocol": protocol}
    if protocol.startswith("SASL"):
        found |= _sasl(home, username)
    if protocol.endswith("SSL"):
        found |= _tls(home)
    return found


def _protocol(*, sasl: bool, tls: bool) -> str:
    if sasl:
        return "SASL_SSL" if tls else "SASL_PLAINTEXT"
    return "SSL" if tls else "PLAINTEXT"


def _sasl(home: Path, username: str) -> dict[str, object]:
    password = _word(home, "password")
    mechanism = _word(home, "mechanism") or "SCRAM-SHA-512"
    if mechanism not in MECHANISMS:
        raise _unknown(home / "mechanism", MECHANISMS)
    if not username or not password:
        raise KafkaLoginError(
            f"--kafka-login: SASL needs the files username and password in {home}"
        )
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": username,
        "sasl_plain_password": password,
    }


def _tls(home: Path) -> dict[str, object]:
    """Files of TLS; without an authority of its own, those that the system trusts."""
    certificate, key = (home / _CERTIFICATE).exists(), (home / _KEY).exists()
    if certificate != key:
        raise KafkaLoginError(f"--kafka-login: {_CERTIFICATE} and {_KEY} go together in {home}")
    found: dict[str, object] = {"ssl_check_hostname": True}
    if (home / _AUTHORITY).exists():
        found["ssl_cafile"] = str(home / _AUTHORITY)
    if certificate:
        found |= {"ssl_certfile": str(home / _CERTIFICATE), "ssl_keyfile": str(home / _KEY)}
    return found


def _word(home: Path, name: str) -> str:
    """A file's content without the line's end; empty where there is no such file."""
    try:
        return (home / name).read_text(encoding="utf-8").strip("\r\n")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        kind = type(error).__name__
        raise KafkaLoginError(f"--kafka-login: {home / name} can't be read: {kind}") from error


def _unknown(file: Path, known: tuple[str, ...]) -> KafkaLoginError:
    return KafkaLoginError(f"--kafka-login: {file} is none of {', '.join(known)}")
