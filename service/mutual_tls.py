"""TLS with a certificate on both sides, for the gRPC between gateways, loaders and Triton.

One folder holds what cert-manager puts into a Secret: ``ca.crt``, ``tls.crt`` and ``tls.key``. Pods
are reached by addresses that no certificate can name, so that each server shows one name instead,
which every client expects.
"""

import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from contracts.loading import CONTROL_KEY
from service.grpc_batches import free_batches

AUTHORITY, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"


@dataclass(frozen=True, slots=True)
class MutualTls:
    """What a client shows, and what it expects of a server: ``name`` in its certificate."""

    folder: Path
    name: str

    @classmethod
    def of(cls, folder: str, name: str) -> "MutualTls | None":
        """As flags have it; None for an empty folder, that is for no TLS."""
        return cls(Path(folder), name) if folder else None

    def context(self) -> ssl.SSLContext:
        """For one connection of HTTP/2: files that were renewed count from the next one on.

        Raises:
            OSError: a file is missing or is no certificate or key.
        """
        context = ssl.create_default_context(cafile=self.folder / AUTHORITY)
        context.load_cert_chain(self.folder / CERTIFICATE, self.folder / KEY)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2"])
        return context

    def channel(self, address: str, options: tuple[tuple[str, int], ...]) -> grpc.aio.Channel:
        """A channel of gRPC's own client, with the files as they are now; raises ``OSError``."""
        credentials = grpc.ssl_channel_credentials(
            (self.folder / AUTHORITY).read_bytes(),
            (self.folder / KEY).read_bytes(),
            (self.folder / CERTIFICATE).read_bytes(),
        )
        named = (("grpc.ssl_target_name_override", self.name),)
        return grpc.aio.secure_channel(address, credentials, options=(*options, *named))


def channel(
    address: str, options: tuple[tuple[str, int], ...], tls: MutualTls | None
) -> grpc.aio.Channel:
    """A channel to ``host:port``, plain if ``tls`` is None; raises ``OSError``."""
    free_batches()
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    return tls.channel(address, options)


def server_flags(folder: Path) -> list[str]:
    """Triton's flags by which it asks for a certificate of the same authority.

    Its HTTP knows no TLS: inferences there need a key that nobody is told.
    """
    key = secrets.token_hex(32)
    return [
        "--grpc-use-ssl=true",
        "--grpc-use-ssl-mutual=true",
        f"--grpc-root-cert={folder / AUTHORITY}",
        f"--grpc-server-cert={folder / CERTIFICATE}",
        f"--grpc-server-key={folder / KEY}",
        f"--http-restricted-api=inference:{CONTROL_KEY}={key}",
    ]
