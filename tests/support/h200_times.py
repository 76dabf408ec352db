"""Times of accelerators, as they were measured once: for simulations where there is none.

``h200.json`` says of which machine its figures are. They are never set beside measured ones.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

from registry.packages.triton_files import triton_file

H200 = Path(__file__).with_name("h200.json")
SIMULATED = Path(__file__).with_name("simulated_accelerator")  # a model of Triton's


def times() -> ModuleType:
    """The module that reads them, which Triton's simulated accelerator uses too."""
    return _module(SIMULATED / "accelerator_times.py")


def timetable() -> ModuleType:
    """The module by which a packed engine chooses when to fix its next run."""
    return _module(triton_file("packed_model", "packed_timetable.py"))


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is missing")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
