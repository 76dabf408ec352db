"""Counts the parts of a message of gRPC before the library makes objects of them.

An empty input takes two bytes of a message, and of memory eighty times as many. Elements of tensors
become at most some ten times as large, and are bounded with the message.
"""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_INPUTS, _OUTPUTS = 5, 6  # of a ModelInferRequest: messages that have parts of their own


def count_parts(message: bytes, most: int) -> int:
    """The parts of a ModelInferRequest, and of its inputs and outputs; above ``most``, no matter.

    Of what is no such message the library says what is wrong with it.
    """
    count = 0
    ends = [len(message)]
    at = 0
    try:
        while ends and count <= most:
            if at >= ends[-1]:
                ends.pop()
                continue
            count += 1
            tag, at = _varint(message, at)
            kind = tag & 7
            if kind == _LENGTH:
                size, at = _varint(message, at)
                if len(ends) == 1 and tag >> 3 in (_INPUTS, _OUTPUTS):
                    ends.append(min(ends[0], at + size))
                else:
                    at += size
            elif kind == _VARINT:
                _, at = _varint(message, at)
            elif kind in (_FIXED32, _FIXED64):
                at += 4 if kind == _FIXED32 else 8
            else:
                break
    except IndexError:  # it ends within a number
        pass
    return count


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number, and the place behind it."""
    byte = message[at]
    at += 1
    found, shift = byte & 0x7F, 7
    while byte & 0x80:
        byte = message[at]
        at += 1
        found |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            break
    return found, at
