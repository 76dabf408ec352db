"""TLS at the gateway: one certificate for HTTP and gRPC, read again when its files change.

New connections get the new certificate; open ones keep theirs. Files that can't be used change
nothing and are named in the log. Callers need no certificate, because API keys identify them.
"""

import asyncio
import logging
import ssl
from pathlib import Path

import grpc

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
Pair = tuple[bytes, bytes]  # certificate chain and key, PEM


class TlsFileError(Exception):
    """The certificate or its key can't be used. The message says why, without their content."""


class Tls:
    """One certificate and its key, in two files.

    Raises:
        TlsFileError: they can't be used.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._pair = self._read()

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """The same certificate for gRPC, which asks for it at each new connection."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._pair), lambda: _configuration(self._pair)
        )

    async def follow(self) -> None:
        """Looks for a new certificate every few seconds, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Loads the files again if they have changed and can be used."""
        try:
            content = self._content()
            if content != self._pair:
                self._pair = self._read()
                log.info("took a new certificate", extra={"file": str(self._certificate)})
        except TlsFileError as error:
            log.warning("going on with the last certificate: %s", error)

    def _read(self) -> Pair:
        """Loads the files into the context, which stays unchanged if they do not match."""
        content = self._content()
        try:
            # In another context first: one that took a chain and refused its key can't be used.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
            self.context.load_cert_chain(self._certificate, self._key)
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            names = f"{self._certificate} and {self._key}"
            raise TlsFileError(f"{names} are no certificate and its key: {reason}") from error
        return content

    def _content(self) -> Pair:
        try:
            return self._certificate.read_bytes(), self._key.read_bytes()
        except OSError as error:
            raise TlsFileError(f"{error.filename} can't be read: {error.strerror}") from error


def _configuration(pair: Pair) -> grpc.ServerCertificateConfiguration:
    certificate, key = pair
    return grpc.ssl_server_certificate_configuration([(key, certificate)])
