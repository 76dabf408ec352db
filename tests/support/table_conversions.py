"""Versions of tables on their way to a package, in a registry of their own."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fake_mlflow import FakeMlflow
from numpy.typing import NDArray
from promotable import assert_promotable

from contracts.endpoint import ServingOptions
from contracts.features import ENGINE_FEATURES
from contracts.manifest import Manifest
from contracts.model import ModelRef
from preprocess.table import TableEncoder, TablePadder
from registry.conversions.messages import ConversionRequest
from registry.convert.tracking import TrackingServer
from registry.convert.walk import convert
from registry.packages.store import PackageStore


class TableConversions:
    """A registry with one version, and a store."""

    def __init__(self, fake: FakeMlflow, folder: Path) -> None:
        self.fake, self.folder = fake, folder
        self.version = fake.root / "version"
        self.store = PackageStore((folder / "store").as_uri())
        fake.register("table", "mlflow-artifacts:/version")

    def convert(self, **changes: object) -> Manifest:
        """The manifest of the version's package, which a controller takes."""
        work = self.folder / f"work-{len(list(self.folder.iterdir()))}"
        work.mkdir()
        request = ConversionRequest.model_validate(
            {
                "tracking_uri": self.fake.uri,
                "model": "table",
                "version": "1",
                "store_url": "unused",
                "serving": ServingOptions(),
                "work_dir": str(work),
                **changes,
            }
        )
        ref = self.published(request)
        assert_promotable(request, ref, self.store)
        return self.store.manifest(ref.package)

    def published(self, request: ConversionRequest) -> ModelRef:
        return convert(
            request, TrackingServer(self.fake.uri), self.store, lambda _phase, _words: None
        )

    def file(self, manifest: Manifest, name: str) -> Path:
        """A file of a package."""
        return self.folder / "store" / manifest.package_id() / name


def encoded(manifest: Manifest, rows: Sequence[Any]) -> NDArray[Any]:
    """Rows as callers send them, as gateways give them to the engine."""
    ids = TableEncoder(manifest.features).encode([json.dumps(row) for row in rows]).ids
    padder = TablePadder(manifest.inputs, len(manifest.features))
    return np.asarray(padder.pad(ids, manifest.length_buckets[0])[ENGINE_FEATURES])
