"""A model and its packages as one file."""

import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.pyfunc.archive import PyfuncArchiveError, pack, unpack


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    for name, content in (("a/MLmodel", "flavors"), ("a/code/m.py", "x"), ("b/numpy/n.so", "\0")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    return {"model": tmp_path / "a", "site": tmp_path / "b"}


def test_what_was_packed_is_unpacked(folders: dict[str, Path], tmp_path: Path) -> None:
    assert pack(folders, tmp_path / "p.zip") == {"model": 8, "site": 1}
    unpack(tmp_path / "p.zip", tmp_path / "out")
    assert (tmp_path / "out" / "model" / "code" / "m.py").read_text() == "x"
    assert (tmp_path / "out" / "site" / "numpy" / "n.so").read_text() == "\0"


def test_the_same_files_make_the_same_archive(folders: dict[str, Path], tmp_path: Path) -> None:
    pack(folders, tmp_path / "one.zip")
    os.utime(folders["model"] / "MLmodel", (1, 1))
    (folders["model"] / "MLmodel").chmod(0o600)
    pack(dict(reversed(folders.items())), tmp_path / "other.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "other.zip").read_bytes()


def test_a_link_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    (folders["site"] / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(PyfuncArchiveError, match="link: site/passwd"):
        pack(folders, tmp_path / "p.zip")


def test_many_may_unpack_at_once_and_all_find_it_whole(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    pack(folders, tmp_path / "p.zip")

    def once(_: int) -> bool:
        unpack(tmp_path / "p.zip", tmp_path / "out")
        return (tmp_path / "out" / "site" / "numpy" / "n.so").is_file()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(once, range(8)))
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "p.zip", "out", "out.lock"}


def test_more_than_was_told_of_is_not_unpacked(folders: dict[str, Path], tmp_path: Path) -> None:
    pack(folders, tmp_path / "p.zip")
    with pytest.raises(PyfuncArchiveError, match="unpacks to 9 bytes, and its package tells of 8"):
        unpack(tmp_path / "p.zip", tmp_path / "out", 8)
    assert not (tmp_path / "out").exists()
    unpack(tmp_path / "p.zip", tmp_path / "out", 9)


@pytest.mark.parametrize("name", ["../out-of-it", "/etc/out-of-it", "site/../../out-of-it"])
def test_a_name_that_leads_out_is_refused_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr(name, "x")
    with pytest.raises(PyfuncArchiveError, match="outside"):
        unpack(tmp_path / "p.zip", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@given(data=st.binary(max_size=200))
def test_what_is_no_archive_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("odd")
    (folder / "p.zip").write_bytes(data)
    with pytest.raises(PyfuncArchiveError, match="can't be read"):
        unpack(folder / "p.zip", folder / "out")
