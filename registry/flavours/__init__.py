"""How people register models: what each MLflow flavour looks like on disk, and what it means."""

from registry.flavours.detect import detect
from registry.flavours.original import Dense, Original, Pooling, PoolingMode

__all__ = ["Dense", "Original", "Pooling", "PoolingMode", "detect"]
