"""Takes CUDA out of the torch that PyPI has, for conversion runs on CPUs: two thirds of its size.

``docker/Dockerfile`` calls ``strip_cuda.py SITE_PACKAGES`` once, after the packages are installed
and before they become a layer. PyPI's torch for Linux is linked with NVIDIA's libraries and does
not even load without them, though a CPU never calls them. So each large one gives way to a library
of the same name and functions (by the very symbol versions that torch asks for) that only says what
is missing, and ends the process. What loads by name alone, and the compiler for GPUs, are removed.
The CUDA runtime stays: torch asks it at its start how many GPUs there are. Torch's own files are
left as they are. Needs gcc and readelf.
"""

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Small, and called at torch's start or by its profiler.
KEPT = ("libcudart.so", "libcupti.so")
GPU_COMPILER = "triton"
ENDING = """
#include <stdio.h>
#include <stdlib.h>
static void missing(void) {
  fputs("%s is not in this image: it converts on CPUs alone\\n", stderr);
  abort();
}
"""


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol: ``version`` is empty where it has none, ``size`` in bytes."""

    name: str
    version: str
    is_function: bool
    size: int
    is_defined: bool


def main(packages: Path) -> None:
    """Replaces and removes; prints what became of each library."""
    libraries = sorted(path for path in (packages / "nvidia").rglob("lib*.so*") if path.is_file())
    torch = sorted((packages / "torch" / "lib").glob("*.so"))
    linked = {name for path in torch for name in needed(path)}
    asked = {(each.name, each.version) for path in torch for each in symbols(path)}
    for library in libraries:
        if library.name.startswith(KEPT):
            continue
        if library.name in linked:
            replace(library, [each for each in symbols(library) if is_asked(each, asked)])
            print(f"{library.name} says that it is missing")
        else:
            library.unlink()
            print(f"{library.name} is removed")
    for folder in [*packages.glob("nvidia/**/include"), packages / GPU_COMPILER]:
        shutil.rmtree(folder, ignore_errors=True)


def is_asked(symbol: Symbol, asked: set[tuple[str, str]]) -> bool:
    """Whether a library defines the symbol and torch asks for it."""
    return symbol.is_defined and (symbol.name, symbol.version) in asked


def needed(path: Path) -> list[str]:
    """The names of the libraries that one is linked with."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", _readelf("--dynamic", path))


def symbols(path: Path) -> Iterator[Symbol]:
    """The dynamic symbols of a library, asked for and defined."""
    for line in _readelf("--dyn-syms", path).splitlines():
        words = line.split()
        if len(words) < 8 or not words[0].rstrip(":").isdigit():
            continue
        name, _, version = words[7].replace("@@", "@").partition("@")
        yield Symbol(name, version, words[3] == "FUNC", int(words[2], 0), words[6] != "UND")


def replace(library: Path, wanted: list[Symbol]) -> None:
    """Puts a library in its place that has the wanted symbols and does nothing."""
    source, versions = library.with_suffix(".c"), library.with_suffix(".map")
    source.write_text(ENDING % library.name + "".join(map(_definition, wanted)), encoding="utf-8")
    versions.write_text(_version_script(wanted), encoding="utf-8")
    library.unlink()
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-fno-builtin", "-w", f"-Wl,-soname,{library.name}",
         f"-Wl,--version-script,{versions}", "-o", str(library), str(source)],
        check=True, timeout=60,
    )  # fmt: skip
    source.unlink()
    versions.unlink()


def _definition(symbol: Symbol) -> str:
    if symbol.is_function:
        return f"void {symbol.name}(void) {{ missing(); }}\n"
    return f"char {symbol.name}[{max(symbol.size, 1)}];\n"


def _version_script(wanted: list[Symbol]) -> str:
    by_version: dict[str, list[str]] = defaultdict(list)
    for symbol in wanted:
        by_version[symbol.version].append(symbol.name)
    if set(by_version) == {""}:
        return "{ local: missing; };\n"
    return "".join(
        f"{version} {{ global: {'; '.join(names)}; }};\n"
        for version, names in by_version.items()
        if version
    )


def _readelf(what: str, path: Path) -> str:
    return subprocess.run(
        ["readelf", what, "--wide", str(path)],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
