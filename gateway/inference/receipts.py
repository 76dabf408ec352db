"""Signed receipts of answers, so that feedback can refer to an answer that is stored nowhere.

Each answer carries a receipt, and the caller sends it back with the true labels, maybe days later.
A receipt holds which version gave which labels to a request. It holds no text and no key, and is
not encrypted. The signature proves that a gateway gave the answer.

Format: base64url without padding of ``payload + first 16 bytes of HMAC-SHA256(key, payload)``. The
payload is the format's number in one byte, followed by msgpack of ``Receipt``.
"""

import base64
import binascii
import hmac
import struct
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from contracts.endpoint import Arm
from contracts.events import PredictionEvent
from gateway.errors import BadRequestError, ReceiptExpiredError

MOST_TEXTS = 1000  # of an answer: about 5 kB in a header, where many proxies allow 8 kB
MOST_CHARACTERS = 16_384
_FORMAT = b"\x01"
_SIGNATURE_BYTES = 16
_BLOCK_BYTES = 64  # of SHA-256
_SCORE_STEPS = 65_535


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """One answer. ``time`` is unix time in seconds; ``package`` is the package id's 32 bytes."""

    endpoint: str
    version: str
    package: bytes
    arm: Arm
    request_id: str
    caller: int
    time: float
    labels: list[str]  # of the answer, each once; empty for embeddings
    # Little-endian uint16 pairs, one a text: index in ``labels``, score in steps of 1/65535.
    answers: bytes

    def answered(self) -> list[tuple[str, float]]:
        """Label and score of each text, in order; empty for embeddings."""
        numbers = struct.unpack(f"<{len(self.answers) // 2}H", self.answers)
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        return [(self.labels[index], steps / _SCORE_STEPS) for index, steps in pairs]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Receipt)


class Signer:
    """Signs with HMAC-SHA256 (RFC 2104) and one key.

    Both of the key's blocks are hashed once. ``hmac.digest`` hashes them for every message, which
    takes twice as long as the rest of a receipt's signature.
    """

    def __init__(self, key: bytes) -> None:
        short = sha256(key).digest() if len(key) > _BLOCK_BYTES else key
        block = short.ljust(_BLOCK_BYTES, b"\0")
        self._inner = sha256(bytes([byte ^ 0x36 for byte in block]))
        self._outer = sha256(bytes([byte ^ 0x5C for byte in block]))

    def signature(self, message: bytes) -> bytes:
        """The first 16 bytes of the code."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()[:_SIGNATURE_BYTES]


class Receipts:
    """Issues and reads receipts.

    Args:
        keys: the first one signs, and all of them verify; see ``service.key_files``.
        most_age_seconds: receipts of older answers are refused.
    """

    def __init__(self, keys: Sequence[bytes], most_age_seconds: float) -> None:
        if not keys:
            raise ValueError("receipts need at least one key")
        self._newest = keys[0]
        self._signers = tuple(map(Signer, keys))
        self._most_age = most_age_seconds

    def secret(self, purpose: bytes) -> bytes:
        """Another secret, made of the newest key: the same in all gateways that share it."""
        return hmac.digest(self._newest, b"headrace/" + purpose, "sha256")

    def issue(self, event: PredictionEvent) -> str:
        """The receipt of an answered attempt; empty for more than ``MOST_TEXTS`` texts."""
        if len(event.texts) > MOST_TEXTS:
            return ""
        labels: dict[str, int] = {}
        numbers: list[int] = []
        for text in event.texts:
            if text.label is not None and text.score is not None:
                numbers.append(labels.setdefault(text.label, len(labels)))
                numbers.append(int(text.score * _SCORE_STEPS + 0.5))
        receipt = Receipt(
            event.endpoint,
            event.version,
            bytes.fromhex(event.package),
            event.arm,
            event.request_id,
            event.caller,
            event.time,
            list(labels),
            struct.pack(f"<{len(numbers)}H", *numbers),
        )
        payload = _FORMAT + _encoder.encode(receipt)
        signed = payload + self._signers[0].signature(payload)
        return base64.urlsafe_b64encode(signed).rstrip(b"=").decode()

    def read(self, text: str, now: float) -> Receipt:
        """Verifies and decodes a receipt.

        Args:
            text: as ``issue`` returned it.
            now: unix time, seconds.

        Raises:
            BadRequestError: not issued by a gateway with one of these keys.
            ReceiptExpiredError: too old.
        """
        payload = self._verified(text)
        if payload[:1] != _FORMAT:
            raise BadRequestError("receipt: this gateway does not know its format.")
        receipt = _decoder.decode(payload[1:])
        if now - receipt.time > self._most_age:
            raise ReceiptExpiredError(
                f"receipt: answers older than {self._most_age / 86400:g} days take no feedback."
            )
        return receipt

    def _verified(self, text: str) -> bytes:
        refusal = BadRequestError("receipt: expected one as it came in x-headrace-receipt.")
        if len(text) > MOST_CHARACTERS:
            raise refusal
        try:
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            signed = base64.b64decode(padded, altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            raise refusal from None
        payload, signature = signed[:-_SIGNATURE_BYTES], signed[-_SIGNATURE_BYTES:]
        good = [
            hmac.compare_digest(signer.signature(payload), signature) for signer in self._signers
        ]
        if not any(good):
            raise refusal
        return payload
