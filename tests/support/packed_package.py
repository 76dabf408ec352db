"""A small package, for tests of stores: none of them reads what is in its files."""

from pathlib import Path

from contracts.endpoint import Precision
from contracts.manifest import Lineage, Manifest, PackageFile, TokenizerSpec
from contracts.tasks import Task
from registry.packages.store import digest


def packed(folder: Path, content: bytes = b"weights", version: str = "1") -> Manifest:
    """Writes a package's files and returns the manifest that goes with them."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, data in (("model.onnx", content), ("tokenizer.json", b"{}")):
        (folder / name).write_bytes(data)
        files[name] = PackageFile(sha256=digest(folder / name), bytes=len(data))
    return Manifest(
        model="m",
        version=version,
        task=Task.TEXT_EMBEDDING,
        dimension=2,
        precision=Precision.FP32,
        max_batch_size=8,
        length_buckets=(8,),
        tokenizer=TokenizerSpec(max_tokens=8, pad_id=0, vocabulary=3),
        inputs=(),
        outputs=(),
        files=files,
        lineage=Lineage(registered_model="m", version=version),
        created_by="test",
    )
