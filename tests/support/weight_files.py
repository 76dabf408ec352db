"""Files of weights in the format safetensors, made without its library."""

import json
from collections.abc import Mapping
from typing import Any

Tensors = Mapping[str, tuple[str, list[int], bytes]]


def safetensors(tensors: Tensors) -> bytes:
    """A file as the format's own library would write it, but in the given order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, shape, content) in tensors.items():
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += content
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data
