"""Refusals that only HTTP has, beside those of ``gateway.errors``."""

from http import HTTPStatus

from gateway.errors import GatewayError


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
