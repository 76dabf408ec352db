"""Reads a form with a file (multipart/form-data, RFC 7578) as it arrives.

None of it is held whole.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from gateway.errors import BadRequestError

_BOUNDARY = re.compile(
    rb'multipart/form-data\s*;.*?boundary="?([\x21\x23-\x3a\x3c-\x7e]{1,70})"?', re.IGNORECASE
)
_NAME = re.compile(rb'[;\s]name="([^"\r\n]{0,200})"', re.IGNORECASE)
_FILENAME = re.compile(rb'[;\s]filename="([^"\r\n]{0,400})"', re.IGNORECASE)
_MOST_HEAD_BYTES = 8 * 1024
_MOST_PARTS = 32


class PartBegins(NamedTuple):
    """A field of the form begins; ``filename`` is empty unless it is a file."""

    name: str
    filename: str


class UploadForm:
    """One form.

    Args:
        content_type: the header's value.

    Raises:
        BadRequestError: that is no form.
    """

    def __init__(self, content_type: bytes) -> None:
        found = _BOUNDARY.match(content_type.strip())
        if found is None:
            raise BadRequestError(
                "The body has to be a form with a file: content-type multipart/form-data with a "
                "boundary."
            )
        self._boundary = b"\r\n--" + found[1]
        self._buffer = bytearray(b"\r\n")  # so that the first boundary is like the others
        self._in_value = True  # of what stands before the first part
        self._parts = 0
        self.is_over = False

    def feed(self, data: bytes) -> Iterator[PartBegins | bytes]:
        """What the next bytes hold: beginnings of fields, and bytes of their values.

        Raises:
            BadRequestError: they are no form.
        """
        buffer = self._buffer
        buffer += data
        while not self.is_over:
            if self._in_value:
                at = buffer.find(self._boundary)
                # What may be the beginning of a boundary waits for the next bytes.
                sure = at if at >= 0 else len(buffer) - len(self._boundary)
                if sure > 0:
                    if self._parts:
                        yield bytes(buffer[:sure])
                    del buffer[:sure]
                if at < 0:
                    return
                del buffer[: len(self._boundary)]
                self._in_value = False
            if len(buffer) < 2:
                return
            if buffer.startswith(b"--"):
                self.is_over = True
                buffer.clear()
                return
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(buffer) > _MOST_HEAD_BYTES:
                    raise BadRequestError("The form has a part with too long a head.")
                return
            yield self._begin(bytes(buffer[:end]))
            del buffer[: end + 4]
            # An empty value is followed by its boundary at once.
            self._in_value = True

    def _begin(self, head: bytes) -> PartBegins:
        self._parts += 1
        name = _NAME.search(head)
        if not head.startswith(b"\r\n") or name is None or self._parts > _MOST_PARTS:
            raise BadRequestError("The form has a part without a name, or too many parts.")
        filename = _FILENAME.search(head)
        return PartBegins(
            name[1].decode("utf-8", "replace"),
            "" if filename is None else filename[1].decode("utf-8", "replace"),
        )
