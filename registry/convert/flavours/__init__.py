"""How people register models: what each MLflow flavour looks like on disk, and what it means."""

from registry.convert.flavours.detect import detect
from registry.convert.flavours.original import Dense, OriginalTextModel, Pooling, PoolingMode

__all__ = ["Dense", "OriginalTextModel", "Pooling", "PoolingMode", "detect"]
