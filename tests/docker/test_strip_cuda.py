"""Libraries of GPUs give way to ones that only say so; what links with them goes on loading."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from loaded_script import loaded

SCRIPT = Path(__file__).parent.parent.parent / "docker" / "conversion" / "strip_cuda.py"

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or shutil.which("readelf") is None,
    reason="gcc and readelf are not installed",
)


def compiled(library: Path, source: str, options: Sequence[str] = ()) -> Path:
    library.parent.mkdir(parents=True, exist_ok=True)
    text = library.with_suffix(".c")
    text.write_text(source)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{library.name}",
         "-o", str(library), str(text), *options],
        check=True, timeout=60,
    )  # fmt: skip
    text.unlink()
    return library


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stripped torch; it was linked with two of NVIDIA's libraries, one of them with versions."""
    folder = make(tmp_path_factory.mktemp("packages"))
    assert call(folder, "on_gpu").stdout == "0\n"
    loaded(SCRIPT).main(folder)
    return folder


def make(folder: Path) -> Path:
    nvidia = folder / "nvidia" / "cu" / "lib"
    versions = folder / "versions"
    versions.write_text("libblas.so.1 { global: multiply; local: *; };")
    blas = compiled(
        nvidia / "libblas.so.1",
        "int multiply(int a) { return 2 * a; }",
        [f"-Wl,--version-script,{versions}"],
    )
    fft = compiled(nvidia / "libfft.so.1", "int table[9]; int transform(int a) { return a; }")
    compiled(nvidia / "libunused.so.1", "int unused;")
    compiled(nvidia / "libcudart.so.1", "int count(void) { return 7; }")
    compiled(
        folder / "torch" / "lib" / "libtorch.so",
        "extern int table[9]; int multiply(int); int transform(int); int count(void);"
        "int on_cpu(void) { return 3; }"
        "int on_gpu(void) { return multiply(transform(table[0])); }"
        "int gpus(void) { return count(); }",
        [str(blas), str(fft), str(nvidia / "libcudart.so.1"), f"-Wl,-rpath,{nvidia}"],
    )
    (folder / "triton").mkdir()
    return folder


def call(packages: Path, function: str) -> "subprocess.CompletedProcess[str]":
    library = packages / "torch" / "lib" / "libtorch.so"
    program = f"import ctypes; print(ctypes.CDLL({str(library)!r}).{function}())"
    return subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_what_a_cpu_runs_goes_on_running(packages: Path) -> None:
    assert call(packages, "on_cpu").stdout == "3\n"


def test_the_cuda_runtime_still_answers_how_many_gpus_there_are(packages: Path) -> None:
    assert call(packages, "gpus").stdout == "7\n"


def test_a_call_to_a_gpu_ends_with_the_library_that_is_missing(packages: Path) -> None:
    ended = call(packages, "on_gpu")
    assert ended.returncode != 0
    assert "libfft.so.1 is not in this image: it converts on CPUs alone" in ended.stderr


def test_what_nothing_links_with_is_removed(packages: Path) -> None:
    left = {path.name for path in (packages / "nvidia").rglob("*") if path.is_file()}
    assert left == {"libblas.so.1", "libfft.so.1", "libcudart.so.1"}
    assert not (packages / "triton").exists()
