"""A small file, whole or not at all."""

from pathlib import Path

import pytest

from service import durable


def test_the_new_bytes_replace_the_old_ones(tmp_path: Path) -> None:
    path = tmp_path / "file"
    durable.write(path, b"old")
    durable.write(path, b"new")
    assert path.read_bytes() == b"new"
    assert [item.name for item in tmp_path.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_the_old_bytes_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    (path / "in the way").touch()
    with pytest.raises(OSError, match="file"):
        durable.write(path, b"new")
    assert [item.name for item in tmp_path.iterdir()] == ["file"]
