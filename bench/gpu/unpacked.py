"""Settles what was unpacked on a GPU machine: ``python -P -m bench.gpu.unpacked FOLDER PYTHON``.

The bundle's Python gets torch and the CUDA libraries of the machine's own, and a list of Kafka's
jars where they lie now. Nothing of the machine's own Python is changed.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.peers.model import PreparedModel
from headrace.stack import kafka

PLACE = "bundle.json"  # in the folder of all that was unpacked
_WHERE = """
import json, sys
found = {"python": list(sys.version_info[:2]), "torch": None, "nvidia": None}
try:
    import torch
    found["torch"] = torch.__path__[0]
    found["version"] = torch.__version__
    import nvidia
    found["nvidia"] = list(nvidia.__path__)[0]
except ImportError:
    pass
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Place:
    """A bundle that was unpacked: what a run there finds without a network.

    ``models`` are folders by engine and precision, such as ``packed-fp16``.
    """

    folder: Path
    commit: str
    models: dict[str, str]

    @classmethod
    def around(cls, interpreter: Path = Path(sys.prefix)) -> "Place | None":
        """The bundle that this Python is part of; None if it is of no bundle."""
        told = interpreter.parent / PLACE
        if not told.is_file():
            return None
        read = json.loads(told.read_text(encoding="utf-8"))
        return cls(interpreter.parent, read["commit"], read["models"])

    @property
    def cache(self) -> Path:
        """In the place of the folder of downloads."""
        return self.folder / "cache"

    @property
    def source(self) -> Path:
        """Tests, and what they read of the repository."""
        return self.folder / "source"

    def model(self, name: str) -> PreparedModel | None:
        """A model under test; None if its piece is not here."""
        folder = self.cache / self.models.get(name, name)
        return PreparedModel(folder) if folder.is_dir() else None


def main(words: list[str]) -> int:
    """Settles, and says what is there and what is missing."""
    folder, own = Path(words[0]), words[1]
    packages = next((folder / "python" / "lib").glob("python3.*")) / "site-packages"
    jars = sorted((folder / "cache" / "jars").glob("*.jar"))
    if jars:
        kafka.write_list(folder / "cache", jars)
    place = Place.around(folder / "python")
    models = [] if place is None else [name for name in place.models if place.model(name)]
    told = {
        "models": ", ".join(models) or "none",
        "events": "to Kafka" if jars else "off: Kafka's piece is not here",
        "ONNX Runtime": "yes" if (packages / "onnxruntime").is_dir() else "its piece is not here",
        "torch": _take_torch(packages, own),
    }
    for name, value in told.items():
        print(f"{name}: {value}")
    return 0


def _take_torch(packages: Path, own: str) -> str:
    """Makes the machine's torch importable, behind our own packages; what came of it."""
    try:
        said = subprocess.run(
            [own, "-c", _WHERE], capture_output=True, text=True, timeout=300, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"none: {own} can't be asked ({error})"
    found = json.loads(said.splitlines()[-1])
    ours = list(sys.version_info[:2])
    if found["torch"] is None:
        return f"none: {own} has no torch; name another Python in TORCH_PYTHON"
    if found["python"] != ours:
        return f"none: {own} is Python {found['python']}, and the bundle's is {ours}"
    (packages / "machine.pth").write_text(f"{Path(found['torch']).parent}\n", encoding="utf-8")
    link = packages / "nvidia"  # where ONNX Runtime looks for CUDA
    if found["nvidia"] is not None and not link.is_dir():
        link.unlink(missing_ok=True)
        link.symlink_to(found["nvidia"])
    return f"{found['version']} of {own}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
