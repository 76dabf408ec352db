"""The program that makes the chart's definition of endpoints, as a module."""

from pathlib import Path

from loaded_script import loaded

crd = loaded(Path(__file__).parents[2] / "charts" / "crd.py")
