"""Tokens that sign in to Kafka by OAUTHBEARER: from a file, an OAuth 2 server, or signed for MSK.

kafka-python asks for one at each sign-in of a connection, and again before a session ends, in the
thread of its client: each request has a deadline.
"""

import base64
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode
from urllib.request import Request

import msgspec
from kafka.errors import KafkaConnectionError
from kafka.net.sasl.oauth import AbstractTokenProvider

from service import replies

_MOST_BYTES = 64 << 10
_REQUEST_SECONDS = 5.0
_KEPT = 0.8  # connections sign in again after 85 % of what was left of a token: by another one


class KafkaTokens(AbstractTokenProvider):
    """What kafka-python asks; a token that can't be had is a broker that is away."""

    def __init__(self, source: Callable[[], str]) -> None:
        super().__init__()
        self._source = source

    def token(self) -> str:
        """One to sign in with now; raises ``KafkaConnectionError``, which holds no secret."""
        try:
            if token := self._source().strip():
                return token
            reason = "it is empty"
        except (OSError, msgspec.MsgspecError) as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - botocore's, which may repeat a whole answer
            reason = type(error).__name__
        raise KafkaConnectionError(f"no token for Kafka: {reason}")


class _TokenAnswer(msgspec.Struct):
    access_token: str
    expires_in: float = 0.0


@dataclass
class ClientCredentials:
    """OAuth 2's client credentials (RFC 6749, 4.4); a token is kept for most of its life.

    ``authority`` is a file of certificates to trust beside the system's, ``seconds`` the deadline.
    """

    url: str
    client: str
    secret: str = field(repr=False)
    scope: str = ""
    authority: Path | None = None
    seconds: float = _REQUEST_SECONDS
    clock: Callable[[], float] = monotonic
    _kept: tuple[str, float] = field(default=("", float("-inf")), repr=False)

    def __call__(self) -> str:
        """The token; raises ``OSError`` or ``MsgspecError``. Threads may ask at once."""
        token, until = self._kept
        if (now := self.clock()) >= until:
            answer = self._ask()
            token, until = self._kept = answer.access_token, now + _KEPT * answer.expires_in
        return token

    def _ask(self) -> _TokenAnswer:
        scope = {"scope": self.scope} if self.scope else {}
        body = urlencode({"grant_type": "client_credentials", **scope}).encode()
        pair = f"{quote_plus(self.client)}:{quote_plus(self.secret)}".encode()
        request = Request(self.url, body)  # noqa: S310 - http or https, which login_options sees to
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(pair).decode()}")
        trust = ssl.create_default_context()
        if self.authority:
            trust.load_verify_locations(self.authority)
        try:
            with replies.ask(request, self.seconds, trust) as reply:
                said = replies.read(reply, _MOST_BYTES + 1)
        except HTTPError as error:
            error.close()  # its page may repeat what it was asked with
            raise OSError(f"the server of token-url answered {error.code}") from error
        if len(said) > _MOST_BYTES:
            raise OSError(f"the server of token-url answered more than {_MOST_BYTES:,} bytes")
        return msgspec.json.decode(said, type=_TokenAnswer, strict=False)


def sign_as_aws(region: str) -> Callable[[], str]:
    """What signs tokens of MSK, each for 15 minutes, with credentials of AWS's own chain.

    One session finds them, renews them, and has the region if none is given. Raises ``ValueError``
    without any, and ``ImportError`` without botocore.
    """
    from botocore.auth import SigV4QueryAuth  # noqa: PLC0415 - memory that others need not pay
    from botocore.awsrequest import AWSRequest  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415
    from botocore.exceptions import ClientError  # noqa: PLC0415
    from botocore.session import get_session  # noqa: PLC0415

    session = get_session()
    region = region or session.get_config_variable("region") or ""
    if not region:
        raise ValueError("it needs the file region, or AWS_DEFAULT_REGION")
    session.set_config_variable("region", region)
    times = dict.fromkeys(("connect_timeout", "read_timeout"), _REQUEST_SECONDS)
    session.set_default_client_config(Config(**times, retries={"total_max_attempts": 1}))

    def sign() -> str:
        if (found := session.get_credentials()) is None:
            raise OSError("AWS's chain of credentials has none")
        url = f"https://kafka.{region}.amazonaws.com/?Action=kafka-cluster%3AConnect"
        request = AWSRequest("GET", url)
        try:
            frozen = found.get_frozen_credentials()
        except ClientError as error:  # a refusal, in one sentence
            raise OSError(str(error)) from error
        SigV4QueryAuth(frozen, "kafka-cluster", region, expires=900).add_auth(request)
        signed = f"{request.url}&User-Agent=headrace".encode()
        return base64.urlsafe_b64encode(signed).decode().rstrip("=")

    return sign
