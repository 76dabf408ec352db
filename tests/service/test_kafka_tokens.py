"""Signing in to Kafka by tokens: from files, from an OAuth 2 server, and as AWS signs them."""

import base64
import contextlib
import hashlib
import hmac
import json
import logging
import os
import re
import ssl
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

import certificates
import pytest
from dripping import CHUNKS, HEAD, LONG_HEAD, dripping
from http_server import Answer, Request, http_server
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaConnectionError
from own_ports import own_ports
from own_servers import KafkaProcess
from waiting import until

from headrace.stack.kafka import KafkaFiles, KafkaNode
from service.kafka import (
    KafkaAddress,
    KafkaAwayError,
    KafkaLoginError,
    Topic,
    Topics,
    close,
    consumer,
    login_options,
    producer,
)
from service.kafka_tokens import ClientCredentials, KafkaTokens

SECRET = "s3:cret/+"
SIGNED_IN = "Authenticated via SASL / OAuth"
SESSION_SECONDS = 10


def folder(home: Path, **files: str) -> str:
    """A folder that signs in, with a file for each name; ``_`` stands for ``-``."""
    for name, content in files.items():
        (home / name.replace("_", "-")).write_text(content)
    return str(home)


def tokens(login: str) -> KafkaTokens:
    """What gives kafka-python its tokens."""
    found = login_options(login)["sasl_oauth_token_provider"]
    assert isinstance(found, KafkaTokens)
    return found


def refusal(found: KafkaTokens) -> str:
    """Why there is no token."""
    with pytest.raises(KafkaConnectionError) as caught:
        found.token()
    assert SECRET not in str(caught.value)
    return str(caught.value)


def test_a_token_is_read_again_at_each_sign_in(tmp_path: Path) -> None:
    found = tokens(folder(tmp_path, mechanism="OAUTHBEARER", token="first\n"))
    assert found.token() == "first"
    (tmp_path / "token").write_text("second")
    assert found.token() == "second"


def test_tokens_are_sent_over_tls_unless_the_protocol_says_otherwise(tmp_path: Path) -> None:
    login = folder(tmp_path, mechanism="OAUTHBEARER", token="t")
    assert login_options(login)["security_protocol"] == "SASL_SSL"
    folder(tmp_path, protocol="SASL_PLAINTEXT")
    assert login_options(login)["security_protocol"] == "SASL_PLAINTEXT"


@pytest.mark.parametrize("kind", [KafkaProducer, KafkaConsumer, KafkaAdminClient])
def test_every_client_knows_the_options_of_tokens(
    kind: type[KafkaProducer] | type[KafkaConsumer] | type[KafkaAdminClient], tmp_path: Path
) -> None:
    login = folder(tmp_path, mechanism="OAUTHBEARER", token="t")
    assert set(login_options(login)) <= set(kind.DEFAULT_CONFIG)


@pytest.mark.parametrize("content", [None, "", "\n", b"\xff\xfe"])
def test_a_token_that_can_not_be_read_is_a_lost_connection(
    content: str | bytes | None, tmp_path: Path
) -> None:
    found = tokens(folder(tmp_path, mechanism="OAUTHBEARER", token="t"))
    if content is None:
        (tmp_path / "token").unlink()
    else:
        (tmp_path / "token").write_bytes(content.encode() if isinstance(content, str) else content)
    assert "no token for Kafka: " in refusal(found)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "needs the file token, or token-url, client-id, client-secret, in"),
        ({"token_url": "https://a/t", "client_id": "me"}, "or client-secret, in"),
        ({"client_secret": SECRET, "client_id": "me"}, "or token-url, in"),
        ({"token_url": "https://a/t", "client_secret": SECRET}, "or client-id, in"),
    ],
)
def test_a_file_that_is_missing_is_named(
    files: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(KafkaLoginError, match=sentence) as caught:
        login_options(folder(tmp_path, mechanism="OAUTHBEARER", **files))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["a.example/token", "file:///etc/passwd", "https://me:s3@a/t", "https:///t", "http://a b"],
)
def test_an_address_of_tokens_that_is_none_is_not_repeated(url: str, tmp_path: Path) -> None:
    files = {"token_url": url, "client_id": "me", "client_secret": SECRET}
    with pytest.raises(KafkaLoginError, match="token-url is no address") as caught:
        login_options(folder(tmp_path, mechanism="OAUTHBEARER", **files))
    assert url not in str(caught.value)


class TokenServer:
    """Answers as an OAuth 2 server does, and keeps what it was asked."""

    def __init__(self, answer: Callable[[], Answer]) -> None:
        self.asked: list[Request] = []
        self._answer = answer

    def __call__(self, request: Request) -> Answer:
        self.asked.append(request)
        return self._answer()


def oauth_login(home: Path, url: str, **more: str) -> str:
    client = {"client_id": "head race", "client_secret": SECRET}
    return folder(home, mechanism="OAUTHBEARER", token_url=f"{url}/token", **client, **more)


def test_a_token_is_asked_for_with_the_clients_credentials(tmp_path: Path) -> None:
    server = TokenServer(lambda: Answer(body={"access_token": "t1", "token_type": "Bearer"}))
    with http_server(server) as url:
        assert tokens(oauth_login(tmp_path, url, scope="kafka all")).token() == "t1"
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/token")
    assert asked.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert dict(parse_qsl(asked.body.decode())) == {
        "grant_type": "client_credentials",
        "scope": "kafka all",
    }
    kind, _, pair = asked.headers["Authorization"].partition(" ")
    assert (kind, base64.b64decode(pair)) == ("Basic", b"head+race:s3%3Acret%2F%2B")


def test_a_token_is_kept_for_four_fifths_of_its_life(tmp_path: Path) -> None:
    now = 1000.0
    server = TokenServer(lambda: Answer(body={"access_token": f"t{now:g}", "expires_in": "100"}))
    with http_server(server) as url:
        ask = ClientCredentials(url, "me", SECRET, clock=lambda: now)
        assert ask() == "t1000"
        now = 1079.0
        assert ask() == "t1000"
        now = 1081.0
        assert ask() == "t1081"
    assert "scope" not in server.asked[0].body.decode()


def test_a_token_whose_end_is_not_said_is_not_kept() -> None:
    server = TokenServer(lambda: Answer(body={"access_token": "t"}))
    with http_server(server) as url:
        ask = ClientCredentials(url, "me", SECRET)
        assert (ask(), ask(), len(server.asked)) == ("t", "t", 2)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(401, {"error": f"invalid_client {SECRET}"}), "answered 401"),
        (Answer(body="<html>log in</html>"), "malformed"),
        (Answer(body=[1]), "Expected `object`"),
        (Answer(body={"access_token": 7}), "Expected `str`"),
        (Answer(body={"expires_in": 60}), "access_token"),
        (Answer(body={"access_token": ""}), "empty"),
        (Answer(body={"access_token": "t" * 100_000}), "more than 65,536 bytes"),
        (Answer(body={"access_token": "t"}, missing=4), "truncated"),
    ],
)
def test_an_answer_without_a_token_is_a_lost_connection(
    answer: Answer, why: str, tmp_path: Path
) -> None:
    with http_server(lambda _: answer) as url:
        assert why in refusal(tokens(oauth_login(tmp_path, url)))


def test_a_secret_does_not_follow_a_redirect(tmp_path: Path) -> None:
    elsewhere = TokenServer(lambda: Answer(body={"access_token": "t"}))
    with http_server(elsewhere) as there:
        moved = Answer(302, headers={"Location": f"{there}/token"})
        with http_server(lambda _: moved) as url:
            tokens(oauth_login(tmp_path, url)).token()
    (asked,) = elsewhere.asked
    assert "Authorization" not in asked.headers
    assert SECRET.encode() not in asked.body


@pytest.mark.parametrize("head", [LONG_HEAD, HEAD, CHUNKS])
def test_a_server_that_drips_is_given_up(head: bytes) -> None:
    with dripping(head) as port:
        url = f"http://127.0.0.1:{port}/token"
        ask = ClientCredentials(url, "me", SECRET, seconds=0.2)
        assert "within 0.2 s" in refusal(KafkaTokens(ask))


def test_the_authority_of_kafka_is_trusted_for_tokens_beside_the_systems(tmp_path: Path) -> None:
    made, home = tmp_path / "made", tmp_path / "home"
    made.mkdir()
    home.mkdir()
    certificate, key = certificates.write(made, "tokens")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate, key)
    with http_server(lambda _: Answer(body={"access_token": "t"}), served) as url:
        login = oauth_login(home, url)
        assert "CERTIFICATE_VERIFY_FAILED" in refusal(tokens(login))
        (home / "ca.crt").write_bytes(certificate.read_bytes())
        assert tokens(login).token() == "t"


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment in which AWS's chain of credentials finds nothing, and asks no machine."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def query_of(token: str) -> dict[str, str]:
    """What the URL that a token is says, each name once."""
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert (url.scheme, url.netloc, url.path) == ("https", "kafka.eu-west-1.amazonaws.com", "/")
    pairs = parse_qsl(url.query, strict_parsing=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def signature(query: dict[str, str], secret: str) -> str:
    """By AWS's description of Signature Version 4, for a query whose only header is the host."""
    signed = {k: v for k, v in query.items() if k not in {"X-Amz-Signature", "User-Agent"}}
    names = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(signed.items()))
    empty = hashlib.sha256(b"").hexdigest()
    asked = f"GET\n/\n{names}\nhost:kafka.eu-west-1.amazonaws.com\n\nhost\n{empty}"
    _, scope = query["X-Amz-Credential"].split("/", 1)
    digest = hashlib.sha256(asked.encode()).hexdigest()
    key = f"AWS4{secret}".encode()
    for word in scope.split("/"):
        key = hmac.digest(key, word.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{query['X-Amz-Date']}\n{scope}\n{digest}"
    return hmac.digest(key, text.encode(), "sha256").hex()


@pytest.mark.slow
def test_a_token_of_msk_is_the_signed_url_that_awss_own_signer_makes(
    aws: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    aws.setenv("AWS_ACCESS_KEY_ID", "AKID")
    aws.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    login = folder(tmp_path, mechanism="AWS_MSK_IAM", region="eu-west-1")
    options = login_options(login)
    assert (options["security_protocol"], options["sasl_mechanism"]) == ("SASL_SSL", "OAUTHBEARER")
    query = query_of(tokens(login).token())
    at = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert query == {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"AKID/{at:%Y%m%d}/eu-west-1/kafka-cluster/aws4_request",
        "X-Amz-Date": query["X-Amz-Date"],
        "X-Amz-Expires": "900",
        "X-Amz-SignedHeaders": "host",
        "X-Amz-Signature": signature(query, SECRET),
        "User-Agent": "headrace",
    }


def test_msk_needs_a_region_from_the_folder_or_the_environment(
    aws: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    login = folder(tmp_path, mechanism="AWS_MSK_IAM")
    with pytest.raises(KafkaLoginError, match="it needs the file region, or AWS_DEFAULT_REGION"):
        login_options(login)
    aws.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert "AWS's chain of credentials has none" in refusal(tokens(login))


def test_without_botocore_msk_is_refused_with_a_sentence(
    aws: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    aws.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(KafkaLoginError, match=r"AWS_MSK_IAM: .*botocore"):
        login_options(folder(tmp_path, mechanism="AWS_MSK_IAM", region="eu-west-1"))


class Handout:
    """Hands out credentials that end so soon that each sign-in needs others, and counts them."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def _next(self, request: Request) -> tuple[str, str]:
        self.asked.append(request)
        return f"K{len(self.asked)}", (datetime.now(UTC) + timedelta(minutes=5)).isoformat()

    def eks(self, request: Request) -> Answer:
        """As EKS Pod Identity's agent does."""
        key, end = self._next(request)
        said = {"AccessKeyId": key, "SecretAccessKey": SECRET, "Token": f"T{key}"}
        return Answer(body={**said, "Expiration": end})

    def sts(self, request: Request) -> Answer:
        """As AWS's token service does for a ServiceAccount's token."""
        key, end = self._next(request)
        named = {"AccessKeyId": key, "SecretAccessKey": SECRET, "SessionToken": f"T{key}"}
        inner = "".join(f"<{k}>{v}</{k}>" for k, v in {**named, "Expiration": end}.items())
        result = f"<Credentials>{inner}</Credentials>"
        name = "AssumeRoleWithWebIdentity"
        text = f"<{name}Response><{name}Result>{result}</{name}Result></{name}Response>"
        return Answer(body=text, headers={"Content-Type": "text/xml"})


@pytest.mark.slow
def test_credentials_of_a_pod_are_renewed_by_one_session(
    aws: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    handout = Handout()
    (tmp_path / "identity").write_text("of the pod")
    aws.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "identity"))
    with http_server(handout.eks) as url:
        aws.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
        found = tokens(folder(tmp_path, mechanism="AWS_MSK_IAM", region="eu-west-1"))
        first, second = query_of(found.token()), query_of(found.token())
    assert first["X-Amz-Credential"].split("/")[0] != second["X-Amz-Credential"].split("/")[0]
    assert second["X-Amz-Security-Token"] == f"TK{len(handout.asked)}"
    assert second["X-Amz-Signature"] == signature(second, SECRET)
    assert handout.asked[0].headers["Authorization"] == "of the pod"


@pytest.mark.slow
def test_a_web_identity_is_exchanged_for_credentials(
    aws: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    handout = Handout()
    (tmp_path / "identity").write_text("of the account")
    aws.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "identity"))
    aws.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/headrace")
    with http_server(handout.sts) as url:
        aws.setenv("AWS_ENDPOINT_URL_STS", url)
        found = tokens(folder(tmp_path, mechanism="AWS_MSK_IAM", region="eu-west-1"))
        query = query_of(found.token())
    assert query["X-Amz-Security-Token"] == f"TK{len(handout.asked)}"
    assert "WebIdentityToken=of+the+account" in handout.asked[0].body.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(500, f"<html>{SECRET}</html>"), r"\(500\)"),
        (Answer(body=f"<Credentials>{SECRET}", headers={"Content-Type": "text/xml"}), "Parser"),
        (
            Answer(
                403,
                "<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized</Message>"
                "</Error></ErrorResponse>",
                headers={"Content-Type": "text/xml"},
            ),
            r"\(AccessDenied\).*Not authorized",
        ),
    ],
)
def test_a_refused_web_identity_is_asked_for_once_and_told_without_secrets(
    answer: Answer, why: str, aws: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "identity").write_text(SECRET)
    aws.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "identity"))
    aws.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/headrace")
    server = TokenServer(lambda: answer)
    with http_server(server) as url:
        aws.setenv("AWS_ENDPOINT_URL_STS", url)
        said = refusal(tokens(folder(tmp_path, mechanism="AWS_MSK_IAM", region="eu-west-1")))
    assert re.search(why, said), said
    assert len(server.asked) == 1


def unsecured_token(seconds: int) -> str:
    """A JWT that nobody signed, as Kafka's validator for trials takes it; ends in ``seconds``."""
    now = int(time.time())
    said = {"alg": "none"}, {"sub": "headrace", "iat": now - 60, "exp": now + seconds}
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in said)
    return ".".join(part.rstrip("=") for part in parts) + "."


@pytest.fixture(scope="module")
def guarded(kafka_files: KafkaFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Kafka with a port that asks for OAUTHBEARER; gives that port's address."""
    port, controller_port, asking = own_ports(3)
    node = KafkaNode(tmp_path_factory.mktemp("kafka"), port=port, controller_port=controller_port)
    process = KafkaProcess(
        kafka_files,
        node,
        f"""\
listeners=PLAINTEXT://{node.bootstrap},CONTROLLER://{node.host}:{controller_port},\
SASL_PLAINTEXT://{node.host}:{asking}
advertised.listeners=PLAINTEXT://{node.bootstrap},SASL_PLAINTEXT://{node.host}:{asking}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,\
SASL_PLAINTEXT:SASL_PLAINTEXT
sasl.enabled.mechanisms=OAUTHBEARER
listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
connections.max.reauth.ms=60000
""",
    )
    process.start()
    yield f"{node.host}:{asking}"
    process.stop()


def renew_file(login: Path) -> None:
    """Puts a token that ends soon into the folder, at once."""
    (login / "new").write_text(unsecured_token(SESSION_SECONDS))
    (login / "new").replace(login / "token")


@contextlib.contextmanager
def renewed_file(login: Path) -> Iterator[None]:
    """Something beside us renews the token until the block ends."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(0.2):
            renew_file(login)

    renew_file(login)
    renewer = threading.Thread(target=renew)
    renewer.start()
    try:
        yield
    finally:
        over.set()
        renewer.join()


@pytest.mark.real
@pytest.mark.parametrize("source", ["a file", "a server"])
def test_clients_of_a_real_kafka_sign_in_again_before_their_tokens_end(
    source: str, guarded: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka.net.connection")
    topic, group = f"tokens-{uuid.uuid4().hex}", "tokens"

    def answer() -> Answer:
        token = unsecured_token(SESSION_SECONDS)
        return Answer(body={"access_token": token, "expires_in": SESSION_SECONDS})

    def sign_ins_again() -> int:
        said = [record.getMessage() for record in caplog.records]
        return sum(SIGNED_IN in line for line in said) - sum(": Connected" in line for line in said)

    server = TokenServer(answer)
    with http_server(server) as url, contextlib.ExitStack() as ends:
        folder(tmp_path, protocol="SASL_PLAINTEXT", mechanism="OAUTHBEARER")
        if source == "a file":
            ends.enter_context(renewed_file(tmp_path))
        else:
            oauth_login(tmp_path, url)
        found = KafkaAddress.of(guarded, login=str(tmp_path))
        address = replace(found, connect_seconds=60.0, request_seconds=60.0)  # a busy machine
        topics = Topics(address)
        ends.callback(topics.close)
        topics.ensure(Topic(topic, partitions=1))
        sender = producer(address, max_request_bytes=100_000, delivery_seconds=60.0)
        ends.callback(close, sender)
        reader = consumer(address, group_id=group, auto_offset_reset="earliest")
        ends.callback(close, reader)
        reader.subscribe([topic])
        sent, read = 0, 0

        def go_on() -> bool:
            nonlocal sent, read
            sender.send(topic, b"event").get(timeout=60)
            sent += 1
            read += sum(map(len, reader.poll(timeout_ms=200).values()))
            return sign_ins_again() >= 8 and read == sent

        until("each client has signed in again, twice or so", 240, go_on)

        def is_described() -> bool:
            with contextlib.suppress(KafkaAwayError):  # a busy machine is late to sign in again
                found = topics.describe(topic)[1], topics.group(group, topic).state
                return found == ((0,), "Stable")
            return False

        until("Kafka tells of the topic and the group", 60, is_described)
        assert (len(server.asked) > 1) is (source == "a server")


@pytest.mark.real
def test_a_real_kafka_lets_nobody_in_whose_token_has_ended(guarded: str, tmp_path: Path) -> None:
    login = folder(
        tmp_path, mechanism="OAUTHBEARER", protocol="SASL_PLAINTEXT", token=unsecured_token(-10)
    )
    address = replace(KafkaAddress.of(guarded, login=login), connect_seconds=5.0)
    with pytest.raises(KafkaAwayError):
        Topics(address)
    renew_file(tmp_path)
    Topics(address).close()
    (tmp_path / "token").write_text("")
    with pytest.raises(KafkaAwayError, match="no token for Kafka: it is empty"):
        Topics(address)
