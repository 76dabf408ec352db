"""Adds data files to the wheel; hatchling calls it while it builds one.

Not to an editable install: their folders in site-packages would hide the packages of this checkout
that have the same names.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILES = {
    "triton": "registry/loading/triton_files",
    "examples/sentiment": "headrace/example",
    "locks/triton.txt": "headrace/locks/triton.txt",
    "locks/export.txt": "headrace/locks/export.txt",
}


class DataFiles(BuildHookInterface):
    """Where each of ``FILES`` lies in an installed Headrace."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the files to a standard wheel, and nothing to an editable one."""
        if version == "standard":
            build_data["force_include"].update(FILES)
