"""What can go wrong with a request, each with its HTTP status and a sentence for the caller.

Every dialect renders a ``GatewayError`` in its own form; nothing else reaches a caller. The table
in ``docs/clients.md`` says which step raises which.
"""

from http import HTTPStatus

RETRY_AFTER_SECONDS = 1.0  # for short outages: a lost Triton is probed twice a second
# Only in metrics and events, with nginx's number: the request was cancelled, because the caller
# hung up or the process had to end. In both cases its version is not to blame.
CLIENT_GONE_STATUS = 499
_LONGEST_MESSAGE = 4096  # characters


class GatewayError(Exception):
    """A refusal or failure that a caller is told about.

    ``code`` is stable and meant for programs, the message for people. ``retry_after_seconds`` goes
    out as ``Retry-After`` (rounded up) where it is set.
    """

    status: HTTPStatus = HTTPStatus.INTERNAL_SERVER_ERROR
    code = "internal"

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        if len(message) > _LONGEST_MESSAGE:  # it quotes what a caller sent
            message = f"{message[:_LONGEST_MESSAGE]}..."
        super().__init__(message)
        self.message = message
        self.retry_after_seconds = retry_after_seconds


class UnknownRouteError(GatewayError):
    """No route has this path."""

    status, code = HTTPStatus.NOT_FOUND, "unknown_route"


class MethodNotAllowedError(GatewayError):
    """The path exists, for other methods; ``allowed`` goes out as ``Allow``."""

    status, code = HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed"

    def __init__(self, message: str, *, allowed: tuple[str, ...]) -> None:
        super().__init__(message)
        self.allowed = allowed


class UnsupportedEncodingError(GatewayError):
    """The body is compressed in a way that the gateway does not read."""

    status, code = HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding"


class ClientGoneError(Exception):
    """The caller hung up before its body was read: there is nobody to answer."""


class BadRequestError(GatewayError):
    """The body is not what the route takes: not JSON, a wrong shape, a wrong name."""

    status, code = HTTPStatus.BAD_REQUEST, "bad_request"


class InvalidInputError(GatewayError):
    """The body has the right form and a value that can't be served; names the field."""

    status, code = HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_input"


class ReceiptExpiredError(GatewayError):
    """Feedback on an answer that was given too long ago."""

    status, code = HTTPStatus.GONE, "receipt_expired"


class TooLargeError(GatewayError):
    """More bytes, texts or tokens than the endpoint takes."""

    status, code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large"


class UnauthenticatedError(GatewayError):
    """No API key, or an unknown one."""

    status, code = HTTPStatus.UNAUTHORIZED, "unauthenticated"


class ForbiddenError(GatewayError):
    """The key is known, but not for this endpoint."""

    status, code = HTTPStatus.FORBIDDEN, "forbidden"


class UnknownEndpointError(GatewayError):
    """No such endpoint."""

    status, code = HTTPStatus.NOT_FOUND, "unknown_endpoint"


class StartingError(UnknownEndpointError):
    """This gateway has not read any endpoints yet, so that it can't say whether this one exists."""

    status, code = HTTPStatus.SERVICE_UNAVAILABLE, "starting"


class UnknownVersionError(GatewayError):
    """The endpoint does not hold the version that was asked for."""

    status, code = HTTPStatus.NOT_FOUND, "unknown_version"


class UnknownFileError(GatewayError):
    """No such file or batch, or none of this key's."""

    status, code = HTTPStatus.NOT_FOUND, "unknown_file"


class BatchStoreUnavailableError(GatewayError):
    """The store of files and batches can't be reached."""

    status, code = HTTPStatus.SERVICE_UNAVAILABLE, "store_unavailable"


class UnsupportedError(GatewayError):
    """A part of a protocol that Headrace does not offer; the message says which."""

    status, code = HTTPStatus.NOT_IMPLEMENTED, "unsupported"


class RequestTimeoutError(GatewayError):
    """The caller took too long to send its body."""

    status, code = HTTPStatus.REQUEST_TIMEOUT, "request_timeout"


class RateLimitedError(GatewayError):
    """More requests a second than the key may send.

    ``elsewhere``: another gateway may accept the caller, on a new connection.
    """

    status, code = HTTPStatus.TOO_MANY_REQUESTS, "rate_limited"

    def __init__(
        self, message: str, *, retry_after_seconds: float | None = None, elsewhere: bool = False
    ) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds)
        self.elsewhere = elsewhere


class OverloadedError(GatewayError):
    """There is no capacity to answer before the deadline; the caller may try again later."""

    status, code = HTTPStatus.SERVICE_UNAVAILABLE, "overloaded"


class ModelUnavailableError(GatewayError):
    """No Triton answers for the version."""

    status, code = HTTPStatus.SERVICE_UNAVAILABLE, "model_unavailable"


class ShuttingDownError(GatewayError):
    """This gateway is shutting down; another one will answer."""

    status, code = HTTPStatus.SERVICE_UNAVAILABLE, "shutting_down"


class DeadlineExceededError(GatewayError):
    """The answer did not come in time."""

    status, code = HTTPStatus.GATEWAY_TIMEOUT, "deadline_exceeded"


class ModelFailedError(GatewayError):
    """The version itself failed on these texts."""

    status, code = HTTPStatus.BAD_GATEWAY, "model_failed"


def too_late() -> DeadlineExceededError:
    """The error of a request whose deadline has passed, at whatever step."""
    return DeadlineExceededError("The answer did not come within the time limit.")


def bulk_too_late() -> DeadlineExceededError:
    """The same of a bulk request: its caller should come back later."""
    return DeadlineExceededError(
        "Interactive requests left no idle capacity for this bulk request within its time limit; "
        "send it again later.",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )


def no_triton(reason: str = "") -> ModelUnavailableError:
    """No Triton can compute the answer now; ``reason`` says why, where more is known."""
    why = f": {reason}" if reason else ""
    return ModelUnavailableError(
        f"No Triton serves this version at the moment{why}.",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )


def internal_error() -> GatewayError:
    """The error of a bug in the gateway, whose traceback is in the log."""
    return GatewayError(
        "The gateway failed on this request; its log has the reason under the request id."
    )


def forget_frames(error: BaseException) -> None:
    """Drops the traceback of an error that was handled.

    Variables in its frames refer to the error again, by way of a future that holds it, say. Only
    the garbage collector ends such a circle, and while it looks for it every request waits.
    """
    error.__traceback__ = None
