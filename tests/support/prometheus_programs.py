"""Where Prometheus' programs are: Debian's package ``prometheus`` brings both."""

import shutil

import pytest


def program(name: str) -> str:
    """The path of ``prometheus`` or ``promtool``; skips the test where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} here (Debian, Ubuntu: apt-get install prometheus)")
    return found
