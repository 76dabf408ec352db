"""The files of ``triton/packed_model``, imported as Triton's Python backend imports them."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from registry.packages.triton_files import triton_file

FOLDER = triton_file("packed_model").parent


@contextmanager
def beside_each_other(**fakes: ModuleType) -> Iterator[None]:
    """Lets them import each other by name, as long as it is open.

    Args:
        fakes: in place of what else they import.
    """
    before = set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    sys.modules.update(fakes)
    try:
        yield
    finally:
        sys.path.remove(str(FOLDER))
        for name in sys.modules.keys() - before:
            if name.startswith("packed_") or name in {"model", *fakes}:
                del sys.modules[name]


def packed(name: str, **fakes: ModuleType) -> ModuleType:
    """One of the modules, such as ``packed_joining``."""
    with beside_each_other(**fakes):
        return importlib.import_module(name)
