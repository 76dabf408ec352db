"""The context of a request, read from its HTTP headers or gRPC metadata.

One is made for every request before its dialect is known. The body is never read here.
"""

import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gateway.errors import BadRequestError, InvalidInputError

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?", re.ASCII)
_STICKY_KEY_LIMIT = 512  # characters
UNCOUNTED_BYTES = 16 * 1024
_TIMEOUT_LIMIT = 600.0  # seconds, the most that an endpoint may allow


class Holding(Protocol):
    """The memory that a request takes; ``gateway.admission.byte_budget`` has what counts it."""

    @property
    def size(self) -> int:
        """Bytes."""

    def belongs(self, endpoint: str | None, key: str | None) -> None:
        """Whose they are; raises ``OverloadedError``."""

    def resize(self, size: int) -> None:
        """It takes this many from now on; raises ``OverloadedError``: there is no room for more."""


class Held(Protocol):
    """What all callers hold."""

    def holding(self) -> Holding:
        """What one request holds: nothing yet."""


@dataclass(slots=True)
class RequestContext:
    """One request's identity, arrival time and options.

    ``received`` is unix time, ``started`` the event loop's clock at the same moment, both seconds.
    ``endpoint`` is set as soon as admission knows it. ``handed_over`` is set when the request is
    passed to the pipeline, which records its outcome from then on. ``waited_seconds``: for a model
    to come back; ``limit_seconds``: the endpoint's, once admission knows it; ``held_bytes``: what
    was read of its body so far. ``held`` counts the memory that it takes, if anybody does;
    ``holding`` is there if it takes any that counts.

    Admission sets ``caller``, the name of its key, when it has ``recognised`` the caller, and
    ``counted`` when the rate has counted it; ``rated_as`` is what the rate counts it as until then.
    ``deferred``: its caller left it here to be answered later, and is known by the key's name.
    ``body_read``: its body is read or being read. ``work_seconds`` of a processor that this took,
    for which the rate has counted it ``charged`` further times. ``bulk``: it takes idle capacity
    only, and may wait longer than the endpoint allows if it says so. ``strict``: it is refused for
    names that mean nothing here; else these are ``ignored``, and the answer says so.
    """

    request_id: str
    received: float
    started: float
    timeout_seconds: float | None = None
    sticky_key: str | None = None
    forced_version: str | None = None
    space: str | None = None
    bulk: bool = False
    strict: bool = False
    ignored: tuple[str, ...] = ()
    trace_parent: str | None = None
    api_key: str | None = None
    endpoint: str | None = None
    handed_over: bool = False
    waited_seconds: float = 0.0
    limit_seconds: float | None = None
    held_bytes: int = 0
    caller: str | None = None
    recognised: bool = False
    counted: bool = False
    rated_as: str = ""
    deferred: bool = False
    body_read: bool = False
    work_seconds: float = 0.0
    charged: int = 0
    held: Held | None = None
    holding: Holding | None = None

    def hold(self, size: int) -> None:
        """The request takes this many bytes of memory from now on.

        Few count only if it took more before, so that the usual request does not pay for it: how
        many such requests there may be is bounded with connections.

        Raises:
            OverloadedError: there is no room for more.
        """
        if self.holding is None:
            if size <= UNCOUNTED_BYTES or self.held is None:
                return
            self.holding = self.held.holding()
            self.holding.belongs(self.endpoint, self.caller)
        self.holding.resize(size)

    def release(self) -> None:
        """The request is over: it takes nothing, and what still runs for it counts no more."""
        if self.holding is not None:
            self.holding.resize(0)
            self.holding = None
        self.held = None

    def deadline(self, limit_seconds: float) -> float:
        """The loop's clock by which to answer: the caller's timeout, at most the endpoint's.

        The endpoint's begins when its model is there.
        """
        timeout, limit = self.timeout_seconds, self.waited_seconds + limit_seconds
        if timeout is None:
            return self.started + limit
        return self.started + (timeout if self.bulk else min(timeout, limit))

    def counted_as(self, dialect: str) -> str:
        """The dialect as metrics have it: bulk requests, which wait long, are apart in each."""
        return f"{dialect}_bulk" if self.bulk else dialect

    @property
    def ends(self) -> float | None:
        """The deadline as far as it is known: the endpoint may be named by the body alone."""
        if self.limit_seconds is not None:
            return self.deadline(self.limit_seconds)
        return None if self.timeout_seconds is None else self.started + self.timeout_seconds

    def classify(self, value: object) -> None:
        """Takes the class that a request's parameters name; raises ``BadRequestError``."""
        if value not in ("bulk", "interactive"):
            raise BadRequestError(
                f"parameters.headrace_class: expected bulk or interactive; got {str(value)[:40]!r}."
            )
        self.bulk = value == "bulk"

    def shorten(self, timeout_seconds: float) -> None:
        """Takes a timeout from the body (Triton's ``timeout`` parameter) where it is shorter."""
        before = _TIMEOUT_LIMIT if self.timeout_seconds is None else self.timeout_seconds
        self.timeout_seconds = min(before, timeout_seconds)

    def force(self, version: str) -> None:
        """Takes the version that the path or the call names; raises ``InvalidInputError``."""
        if self.forced_version is not None and self.forced_version != version:
            raise InvalidInputError(
                f"The request names version {version!r} and x-headrace-version "
                f"{self.forced_version!r}: send one of them."
            )
        self.forced_version = version

    def read(self, headers: Mapping[bytes, bytes]) -> None:
        """Fills in what the headers (lower-case names) say.

        A request id of other than 1 to 128 letters, digits and ``._:-`` is replaced by
        the gateway's own. A malformed ``traceparent`` is ignored, as W3C's specification asks.

        Raises:
            BadRequestError: ``x-request-timeout`` is not a number of seconds within the limit, or
                ``x-headrace-class`` none of both.
        """
        get = headers.get
        if (value := get(b"x-request-id")) is not None:
            name = value.decode("latin-1")
            if _REQUEST_ID.fullmatch(name):
                self.request_id = name
        if (value := get(b"x-request-timeout")) is not None:
            self.timeout_seconds = _seconds(value)
        if (value := get(b"x-headrace-key")) is not None:
            self.sticky_key = _text(value)[:_STICKY_KEY_LIMIT] or None
        if (value := get(b"x-headrace-version")) is not None:
            self.forced_version = _text(value) or None
        if (value := get(b"x-headrace-space")) is not None:
            self.space = _text(value) or None
        self.bulk = _is_bulk(get(b"x-headrace-class"))
        self.strict = get(b"x-headrace-strict", b"").lower() == b"true"
        if (value := get(b"traceparent")) is not None:
            parent = value.decode("latin-1")
            self.trace_parent = parent if _TRACE_PARENT.fullmatch(parent) else None
        if (value := get(b"authorization")) is not None:
            self.api_key = _bearer(value)
        if (value := get(b"x-api-key")) is not None:
            self.api_key = _text(value)


def new_request_id() -> str:
    """A random id of 32 hex digits.

    They need not be secret, and so do not come from the operating system: such a call releases
    Python's lock, after which other threads may delay the event loop by some milliseconds.
    """
    return f"{random.getrandbits(128):032x}"


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace").strip()


def _bearer(value: bytes) -> str | None:
    scheme, _, key = _text(value).partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def _is_bulk(value: bytes | None) -> bool:
    if value not in (None, b"bulk", b"interactive"):
        raise BadRequestError(
            f"x-headrace-class: expected bulk or interactive; got {_text(value)[:40]!r}."
        )
    return value == b"bulk"


def _seconds(value: bytes) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _TIMEOUT_LIMIT:
        raise BadRequestError(
            "x-request-timeout: expected seconds above 0 and up to "
            f"{_TIMEOUT_LIMIT:g}, such as 0.5; got {value.decode('latin-1')[:40]!r}."
        )
    return seconds
