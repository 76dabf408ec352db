"""Triton's own files are found, and are no package of ours."""

import importlib.util

from registry import triton_data


def test_both_models_are_found() -> None:
    for path in (triton_data.python_model(), triton_data.simulated_accelerator()):
        assert "class TritonPythonModel" in path.read_text(encoding="utf-8")


def test_the_folder_is_no_importable_package() -> None:
    folder = triton_data.python_model().parent.parent
    assert not list(folder.rglob("__init__.py"))
    spec = importlib.util.find_spec("triton")
    assert spec is None or str(folder) not in list(spec.submodule_search_locations or ())
