"""The largest number of each gateway's messages in one partition, which tells copies.

A gateway sends one message at a time, numbers them upwards, and sends all copies of a message to
one partition. So the first copies of its messages lie there in the order of their numbers, and a
message whose number is not larger than the largest before it is a copy, however far away the first
one is. Pure; what is kept is bounded by ``GATEWAYS_KEPT``.
"""

import base64
import binascii
import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

# Starts of gateways, of which those that were heard last are kept. Written down they are less than
# the 4,096 bytes that a broker takes beside an offset.
GATEWAYS_KEPT = 250
_KEY_BYTES = 6  # two of 250 gateways share one with a probability of 1e-10
_ENTRY = struct.Struct(f">{_KEY_BYTES}sI")
LARGEST = 2**32 - 1  # at two messages a second after 68 years


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was known at the start of a range: of all messages before ``offset``."""

    offset: int
    sequences: str  # of ``GatewaySequences.encode``


class GatewaySequences:
    """What is known of one partition, up to some offset. A function of the log before it."""

    def __init__(self) -> None:
        """Nothing known yet."""
        self._largest: dict[bytes, int] = {}  # the gateway heard last comes last

    @classmethod
    def decode(cls, text: str) -> Self:
        """What ``encode`` told.

        Raises:
            ValueError: it is no such text.
        """
        found = cls()
        try:
            told = base64.b64decode(text.encode(), validate=True)
            found._largest = dict(_ENTRY.iter_unpack(told))
        except (binascii.Error, struct.error) as error:
            raise ValueError(f"no sequences: {error}") from error
        return found

    def encode(self) -> str:
        """All that is known, as text of at most 3,336 characters."""
        return base64.b64encode(
            b"".join(_ENTRY.pack(key, number) for key, number in self._largest.items())
        ).decode()

    def is_copy(self, gateway: str, number: int) -> bool:
        """Whether this message, or a later one of its gateway, came before; remembers it."""
        if not 0 <= number <= LARGEST:
            return False
        key = blake2b(gateway.encode(errors="replace"), digest_size=_KEY_BYTES).digest()
        before = self._largest.pop(key, -1)
        self._largest[key] = max(before, number)
        if len(self._largest) > GATEWAYS_KEPT:
            del self._largest[next(iter(self._largest))]
        return number <= before
