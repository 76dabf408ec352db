"""How a rollout's evidence lies in an endpoint's record: compressed. Pure.

Five sixths of a record are numbers of this evidence, which only the judge reads. What people read,
checks with their figures, lies beside it as it is.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

SCHEMA_VERSION = 2  # 1 is ``rollout/evidence.py``'s own, which is in it
_MOST_BYTES = 16 << 20  # of evidence; some 250 KB at the specification's maximum
_SCHEMA, _WINDOWS, _PACKED = "schema_version", "history_windows", "zlib"


def pack(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """The evidence, compressed. The same gives the same, so that nothing is written twice.

    Raises:
        ValueError: it is no JSON.
    """
    text = json.dumps(evidence, separators=(",", ":"), allow_nan=False)
    return {
        _SCHEMA: SCHEMA_VERSION,
        _WINDOWS: evidence[_WINDOWS],
        _PACKED: base64.b64encode(zlib.compress(text.encode())).decode(),
    }


def unpack(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was packed, bit by bit.

    Raises:
        ValueError: it is damaged, or of another schema version.
    """
    if stored.get(_SCHEMA) != SCHEMA_VERSION:
        raise ValueError(f"the rollout's evidence is of schema {stored.get(_SCHEMA)!r}")
    reader = zlib.decompressobj()
    try:
        text = reader.decompress(base64.b64decode(stored[_PACKED], validate=True), _MOST_BYTES)
        if not reader.eof:
            raise ValueError(f"it is cut off, or more than {_MOST_BYTES} bytes")
        found: dict[str, Any] = json.loads(text)
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise ValueError(f"the rollout's evidence can't be unpacked: {error!r}") from error
    return found
