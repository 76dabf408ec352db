"""Where the parts of a version's own files lie."""

from pathlib import Path

from registry.convert.flavours.original import OriginalTextModel
from registry.convert.flavours.pooling import read_pooling
from registry.convert.flavours.sentences import CROSS_ENCODER


def transformer_folder(original: OriginalTextModel) -> Path:
    """Where the transformer's own configuration and weights are; raises ``VersionError``."""
    if original.loaded_by not in {"", CROSS_ENCODER}:
        return read_pooling(original.folder)[0]
    return original.folder
