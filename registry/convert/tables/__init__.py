"""Versions that read rows of tables: scikit-learn, XGBoost and LightGBM as MLflow logs them.

``flavour`` tells one by its files, ``original`` opens it, ``rows`` finds rows to compare on,
``schema`` says what a row is, ``graph`` makes the engine's graph, and ``walk`` takes a version
through all of it (``docs/decisions/0049-tables.md``).
"""

from registry.convert.tables.flavour import find
from registry.convert.tables.walk import convert

__all__ = ["convert", "find"]
