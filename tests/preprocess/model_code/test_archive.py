"""The code of a version as one file: equal bytes for equal code, and no way out of its folder."""

import io
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.model_code import archive
from preprocess.model_code.archive import ArchiveError, brings_code, pack, unpack

_names = st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8}){0,2}\.(py|txt)", fullmatch=True)


def version(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@given(files=st.dictionaries(_names, st.binary(max_size=200), min_size=1, max_size=5))
def test_what_is_packed_is_unpacked_and_packed_again_to_the_same_bytes(
    files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    first = version(tmp_path_factory.mktemp("first"), files)
    data = pack(first / "code")
    again = tmp_path_factory.mktemp("again")
    unpack(data, again / "code")
    found = {
        path.relative_to(again / "code").as_posix(): path.read_bytes()
        for path in (again / "code").rglob("*")
        if path.is_file()
    }
    assert found == files
    for path in again.rglob("*"):
        os.utime(path, (1, 1))
    assert pack(again / "code") == data


def test_only_the_named_module_makes_it_code_for_gateways(tmp_path: Path) -> None:
    version(tmp_path, {"my_package.py": b""})
    assert not brings_code(tmp_path)
    version(tmp_path, {"headrace_preprocessor.py": b"", "__pycache__/x.pyc": b"x"})
    assert brings_code(tmp_path)
    with zipfile.ZipFile(io.BytesIO(pack(tmp_path / "code"))) as made:
        assert made.namelist() == ["headrace_preprocessor.py", "my_package.py"]


def test_too_much_code_and_links_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version(tmp_path, {"a.py": b"x" * 10, "b.py": b""})
    monkeypatch.setattr(archive, "MOST_FILES", 1)
    with pytest.raises(ArchiveError, match="2 files"):
        pack(tmp_path / "code")
    monkeypatch.setattr(archive, "MOST_FILES", 5)
    (tmp_path / "code" / "c.py").symlink_to("/etc/passwd")
    with pytest.raises(ArchiveError, match=r"a link: c\.py"):
        pack(tmp_path / "code")
    monkeypatch.setattr(archive, "MOST_BYTES", 9)
    with pytest.raises(ArchiveError, match="MB"):
        pack(tmp_path / "code")


@pytest.mark.parametrize("name", ["../out.py", "/tmp/out.py", "a/../../out.py"])
def test_an_archive_that_leads_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr(zipfile.ZipInfo(name), "")
    with pytest.raises(ArchiveError, match="outside"):
        unpack(made.getvalue(), tmp_path / "code")


@pytest.mark.parametrize("data", [b"", b"PK", b"x" * 100])
def test_what_is_no_archive_is_told(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ArchiveError, match="can't be read"):
        unpack(data, tmp_path / "code")


def test_an_archive_that_grows_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pack(version(tmp_path, {"a.py": b"0" * 100_000}) / "code")
    monkeypatch.setattr(archive, "MOST_BYTES", 99_999)
    with pytest.raises(ArchiveError, match="too large"):
        unpack(data, tmp_path / "other")
