"""Installs the packages that a pyfunc needs into a folder, as its ``requirements.txt`` asks.

From the index that the installer's own variables name (``UV_DEFAULT_INDEX``, ``UV_INDEX``), and
from nowhere else: a requirement that names a place of its own is refused. Only wheels are taken,
since to build one runs code. Requirements with hashes are held to them. It runs nothing of the
version.
"""

import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from registry.convert.errors import EnvironmentFaultError, VersionError

log = logging.getLogger(__name__)

REQUIREMENTS = "requirements.txt"
CONSTRAINTS = "constraints.txt"
# MLflow opens the model, and its pyfunc imports these two whatever the model needs.
_ALWAYS = ("numpy", "pandas")
_MLFLOW = ("mlflow", "mlflow-skinny")
_HASH = re.compile(r"\s--hash[= ]\S+")
_COMMENT = re.compile(r"(^|\s)#.*$")
# Packages whose own tests are large, and imported by nothing else.
_WITH_TESTS = ("numpy", "pandas", "scipy", "sklearn")
_LAST_CHARACTERS = 600
# What the installer says if the requirements themselves are at fault, and not the way to them.
_OF_VERSION = ("No solution found", "Hash mismatch", "hash-checking", "--require-hashes")
_TIMEOUT_SECONDS = 1200.0


def install(model: Path, mlflow_version: str, work: Path) -> Path:
    """The folder of the packages.

    Raises:
        VersionError: its requirements can't be met.
        EnvironmentFaultError: there is no installer, or the index can't be reached.
    """
    wanted, hashed = requirements(model, mlflow_version)
    listed = work / "pyfunc-requirements.txt"
    listed.write_text("\n".join(wanted) + "\n", encoding="utf-8")
    site = work / "pyfunc-site"
    command = [
        _installer(), "pip", "install", "--python", sys.executable, "--target", str(site),
        "--only-binary", ":all:", "--no-config", "--color", "never", "--no-progress", "--quiet",
        *(("--require-hashes",) if hashed else ()),
        *_constraints(model),
        "-r", str(listed),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFaultError(
            f"its requirements were not installed within {_TIMEOUT_SECONDS:g} s"
        ) from error
    if done.returncode:
        said = " ".join(done.stderr.split())[-_LAST_CHARACTERS:]
        at_fault = any(sign in done.stderr for sign in _OF_VERSION)
        raise (VersionError if at_fault else EnvironmentFaultError)(
            f"its requirements ({REQUIREMENTS}) can't be installed: {said}"
        )
    _finish(site)
    log.info("installed the packages of a pyfunc", extra={"requirements": len(wanted)})
    return site


def _finish(site: Path) -> None:
    """Leaves out what nobody runs, and compiles the rest: the folder can't be written later."""
    shutil.rmtree(site / "bin", ignore_errors=True)
    for package in _WITH_TESTS:
        for tests in sorted((site / package).rglob("tests"), reverse=True):
            shutil.rmtree(tests, ignore_errors=True)
    # Right whenever they are unpacked. A module that is for another Python stays as it is.
    how = ["-q", "-q", "--invalidation-mode", "unchecked-hash", str(site)]
    command = [sys.executable, "-I", "-S", "-m", "compileall", *how]
    subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def requirements(model: Path, mlflow_version: str) -> tuple[list[str], bool]:
    """What is to be installed, a line each, and whether it is held to hashes.

    Raises:
        VersionError: a line that is no requirement of a package of the index.
    """
    found: list[str] = []
    named: set[str] = set()
    for line in _lines(model / REQUIREMENTS):
        if line.split() in (["-c", CONSTRAINTS], ["--constraint", CONSTRAINTS]):
            continue
        bare = _HASH.sub("", f" {line}").strip()
        try:
            parsed = Requirement(bare)
        except InvalidRequirement as error:
            raise VersionError(
                f"its {REQUIREMENTS} has {line[:100]!r}: only packages of the index are installed"
            ) from error
        if parsed.url is not None:
            raise VersionError(
                f"its {REQUIREMENTS} takes {parsed.name} from {parsed.url[:100]}: only packages "
                "of the index are installed"
            )
        named.add(parsed.name.lower().replace("_", "-"))
        found.append(line)
    hashed = any(_HASH.search(f" {line}") for line in found)
    missing = [name for name in _ALWAYS if name not in named and "mlflow" not in named]
    if not named & set(_MLFLOW):
        missing.append(f"mlflow-skinny=={mlflow_version}" if mlflow_version else "mlflow-skinny")
    if hashed:
        # All that they ask for is listed too, or the installer says what is not.
        missing = [name for name in missing if name.startswith(_MLFLOW)]
        if missing:
            raise VersionError(
                f"its {REQUIREMENTS} has hashes and does not name mlflow, which opens the model"
            )
    return [*found, *missing], hashed


def _constraints(model: Path) -> tuple[str, ...]:
    if not (model / CONSTRAINTS).is_file():
        return ()
    for line in _lines(model / CONSTRAINTS):
        try:
            if Requirement(_HASH.sub("", f" {line}").strip()).url is None:
                continue
        except InvalidRequirement:
            pass
        raise VersionError(
            f"its {CONSTRAINTS} has {line[:100]!r}: only packages of the index are installed"
        )
    return ("--constraint", str(model / CONSTRAINTS))


def _lines(path: Path) -> list[str]:
    """The lines of a file of requirements, continued ones joined; none if it is not there."""
    if not path.is_file():
        return []
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise VersionError(f"its {path.name} is no text") from error
    joined = re.sub(r"\\\r?\n", " ", text)
    lines = [_COMMENT.sub("", line).strip() for line in joined.splitlines()]
    return [line for line in lines if line]


def _installer() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise EnvironmentFaultError(
            "its packages are to be installed, and uv is missing: install headrace[tables] where "
            "conversions run"
        )
    return found
