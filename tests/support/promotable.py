"""What an honest conversion makes must be what the controller takes."""

import tempfile
from pathlib import Path

from contracts.model import ModelRef
from registry.conversions.messages import ConversionRequest
from registry.conversions.publication import altered_configs, refusal
from registry.convert.tracking import TrackingServer
from registry.mlflow.model_registry import RegisteredVersion
from registry.packages.store import PackageStore


def assert_promotable(request: ConversionRequest, ref: ModelRef, store: PackageStore) -> None:
    """A package that a conversion left in ``store`` belongs to the version of its request."""
    known = TrackingServer(request.tracking_uri).version(request.model, request.version)
    version = RegisteredVersion(
        request.model, request.version, "", run_id=known.run_id, source=known.source
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, ref.package)
        manifest = store.fetch(ref.package, folder)
        assert refusal(manifest, ref, request, version) == ""
        assert altered_configs(manifest, folder, request.threads) == ""
