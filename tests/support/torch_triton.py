"""A real Triton whose Python models find torch, and a packed engine placed in its repository."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import packed_files
from own_servers import TritonProcess

from contracts import gpu_faults
from contracts.tasks import Task
from headrace.stack.triton import TritonFiles, TritonServer
from registry.packages import triton_config
from registry.packages.triton_files import triton_file


class TorchTriton(TritonProcess):
    """Its stub takes packages from the first ``python3`` on PATH: one that finds torch.

    Args:
        files: the program.
        server: where it listens.
        log: what it writes.
        python: a folder for that interpreter, made here.
        packages: the folder that holds torch.
    """

    def __init__(
        self, files: TritonFiles, server: TritonServer, log: Path, python: Path, packages: Path
    ) -> None:
        super().__init__(files, server, log)
        self._bin = python / "bin"
        self._bin.mkdir(parents=True)
        (self._bin / "python3").symlink_to(Path(sys.executable).resolve())
        home = Path(sys.base_prefix) / "bin"
        (python / "pyvenv.cfg").write_text(f"home = {home}\n", encoding="utf-8")
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        site = python / "lib" / version / "site-packages"
        site.mkdir(parents=True)
        (site / "torch.pth").write_text(f"{packages}\n", encoding="utf-8")

    def _run(
        self,
        name: str,
        command: Sequence[str],
        answers: Callable[[], bool],
        *,
        within_seconds: float,
        extended: Callable[[Mapping[str, str]], Mapping[str, str]] = dict,
        cwd: Path | None = None,
    ) -> None:
        def with_torch(base: Mapping[str, str]) -> Mapping[str, str]:
            made = dict(extended(base))
            return {**made, "PATH": os.pathsep.join([str(self._bin), made["PATH"]])}

        super()._run(
            name, command, answers, within_seconds=within_seconds, extended=with_torch, cwd=cwd
        )


def place(repository: Path, name: str, weights: Path, width: int) -> None:
    """Lays a packed engine out as the loader does.

    Args:
        repository: Triton's.
        name: of the model there.
        weights: a folder with what the engine is given, ``packed.json`` included.
        width: of its answers.
    """
    version = repository / name / triton_config.VERSION_FOLDER
    shutil.copytree(weights, version)
    for file in packed_files.FOLDER.glob("*.py"):
        shutil.copyfile(file, version / file.name)
    shutil.copyfile(triton_file("python_model"), version / "python_model.py")
    shutil.copy(gpu_faults.__file__, version)
    config = triton_config.render_packed(
        task=Task.TEXT_EMBEDDING, width=width, type_ids=True, threads=1
    )
    (version.parent / "config.pbtxt").write_text(config, encoding="utf-8")
