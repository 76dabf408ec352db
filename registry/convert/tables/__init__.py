"""Versions that read rows of tables: scikit-learn, XGBoost, LightGBM and pyfuncs of MLflow's.

``flavour`` tells one by its files, ``original`` opens it, ``rows`` finds rows to compare on,
``schema`` says what a row is, ``graph`` makes the engine's graph, and ``walk`` takes a version
through all of it (``docs/decisions/0049-tables.md``). A pyfunc has no graph: ``environment``
installs its packages, and ``pyfunc`` takes it through the rest.
"""

from registry.convert.tables.flavour import PYFUNC, find
from registry.convert.tables.pyfunc import convert as convert_pyfunc
from registry.convert.tables.walk import convert

__all__ = ["PYFUNC", "convert", "convert_pyfunc", "find"]
