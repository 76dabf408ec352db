"""The one model that is served, and the vectors of its fp32 original.

``prepare`` has ``bench.peers.conversion`` make a package of all-MiniLM-L6-v2, int8 unless told, in
the export environment, and keeps it in the cache. The ``model.onnx`` of one for CPUs takes token
ids and ends in a vector a text; one for GPUs holds the weights that the packed engine runs.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import corpus
from contracts.endpoint import Precision
from contracts.loading import DeviceKind
from contracts.manifest import MANIFEST, Manifest
from headrace.stack import install, provision
from registry import convert

MODEL = "all-minilm-l6-v2"
JUDGED = 256  # texts whose answers are compared with the original's
_TIMEOUT_SECONDS = 1800.0


@dataclass(frozen=True)
class PreparedModel:
    """The model on disk. ``folder`` holds all of it."""

    folder: Path

    @property
    def store(self) -> Path:
        """The package store."""
        return self.folder / "packages"

    @property
    def package(self) -> Path:
        """The package: ``model.onnx``, ``tokenizer.json`` and the manifest."""
        return next(self.store.iterdir())

    @property
    def manifest(self) -> Manifest:
        """The package's manifest."""
        return Manifest.model_validate_json((self.package / MANIFEST).read_bytes())

    @property
    def original(self) -> NDArray[np.float32]:
        """What the fp32 original answers to ``judged_texts``: ``[JUDGED, 384]``."""
        vectors: NDArray[np.float32] = np.load(self.folder / "original.npy")
        return vectors


def judged_texts() -> list[str]:
    """The texts whose answers are compared, of all lengths."""
    texts = corpus.replay()
    return texts[:: len(texts) // JUDGED][:JUDGED]


def prepare(
    cache: Path,
    say: Callable[[str], None],
    precision: Precision = Precision.INT8,
    device: DeviceKind = DeviceKind.CPU,
) -> PreparedModel:
    """The model, out of the cache or made now, which takes minutes.

    Args:
        cache: folder of downloads.
        say: is told of what takes long.
        precision: of the package.
        device: for which kind it is made; for a GPU it is the packed engine's.
    """
    packaged = Path(sys.prefix) / "minilm"
    if not packaged.is_dir():
        raise RuntimeError("MiniLM is missing: run make bench BENCH=gpu, which fetches it")
    made_for = "" if device is DeviceKind.CPU else f"{device}-"
    prepared = PreparedModel(cache / f"peers-model-{made_for}{precision}-{_digest()}")
    if prepared.folder.is_dir():
        return prepared
    say(f"Making the {precision} package of all-MiniLM-L6-v2 for a {device}, once")
    export = provision.export_environment(cache, say)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".peers-model-") as aside:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "bench.peers.conversion", aside, precision, device],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(export), str(packaged)])},
            capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"the conversion failed: {done.stderr[-2000:]}")
        (Path(aside) / "made").rename(prepared.folder)
    return prepared


def _digest() -> str:
    """What the package is made from: another means another folder."""
    parts = [install.lock_file("minilm"), install.lock_file("export")]
    parts += [Path(__file__), Path(__file__).with_name("conversion.py")]
    parts += sorted(Path(convert.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()[:12]
