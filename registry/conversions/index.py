"""Remembers which package a conversion made, so that no restart converts again.

The key is a digest of all that decides the outcome: the version, the serving options, what is
allowed. Entries lie beside the packages, in ``<store>/index/``, where others than the controller
may be able to write: an entry counts only with a MAC, beside it in ``<options>.mac``, that this
controller's key makes of it. One without a good MAC, whose key was lost, counts if an endpoint's
status, which only the controller writes, names its package already, and gets its MAC then. Any
other entry, and one whose package is gone, counts as none.
"""

import hashlib
import hmac
import json
import logging
from collections.abc import Collection
from pathlib import PurePosixPath

import fsspec
from pydantic import BaseModel, ConfigDict, ValidationError

from contracts.endpoint import EndpointSpec
from contracts.loading import DeviceKind
from contracts.manifest import Manifest
from contracts.model import ModelRef
from registry.conversions.messages import Conditions, Package, Signature
from registry.mlflow.model_registry import RegisteredVersion
from registry.packages.store import (
    PackageDamagedError,
    PackageMissingError,
    PackageStore,
    check_size,
    list_sizes,
    translate_errors,
    write_file,
)

log = logging.getLogger(__name__)

# Raised by hand when conversion changes so much that versions must be converted again.
REVISION = 1
FOLDER = "index"
KEY_FILE = "index-keys"  # in a controller's work folder, where it is told no other
_INDEX = "the index of conversions"
_MAC_CHARACTERS = 64


class _IndexEntry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    ref: ModelRef
    signature: Signature


def options_digest(
    spec: EndpointSpec,
    version: RegisteredVersion,
    conditions: Conditions,
    *,
    device: DeviceKind = DeviceKind.CPU,
) -> str:
    """SHA-256 (hex) of all that decides what a conversion makes of a version, or why it fails.

    ``device`` is what the Tritons of the endpoint's pool compute on: a version has a package for
    each kind. ``instances`` and ``cache`` of ``spec.serving`` are not.
    """
    parts = [
        REVISION,
        version.model,
        version.number,
        version.identity,
        spec.serving.model_dump(mode="json", exclude={"cache", "instances"}),
        spec.task,
        conditions.threads,
        conditions.allow_pickle,
        conditions.allow_remote_code,
        sorted(conditions.sources),
        device.value,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def signature(manifest: Manifest) -> Signature:
    """What callers of a package rely on."""
    return Signature(
        task=manifest.task,
        labels=manifest.labels,
        dimension=manifest.dimension,
        prompts=tuple(sorted(manifest.tokenizer.prompts)),
        features=manifest.features,
        answers=manifest.answers,
    )


class ConversionIndex:
    """Entries under one store's URL. Every call blocks."""

    def __init__(self, store_url: str, store: PackageStore, keys: tuple[bytes, ...]) -> None:
        if not keys:
            raise ValueError("the index of conversions needs a key")
        self._files, root = fsspec.core.url_to_fs(store_url)
        self._root = f"{root.rstrip('/')}/{FOLDER}"
        self._store = store
        self._keys = keys

    def get(self, options: str, named: Collection[ModelRef] = ()) -> Package | None:
        """The package of an earlier conversion, if it still is in the store.

        Args:
            options: the conversion's key.
            named: packages of this very version that an endpoint's status names: an entry that
                leads to one of them counts whatever its MAC, and is signed.

        Raises:
            StoreUnavailableError: the store can't be read.
        """
        with translate_errors(_INDEX):
            self._store.check_mounted()
            try:
                entry = self._entry(options)
                manifest = self._store.manifest(entry.ref.package)
            except (FileNotFoundError, PackageMissingError, PackageDamagedError, ValidationError):
                return None  # convert again: that mends a damaged package or entry too
            ref = manifest.ref()
            if ref != entry.ref:
                return None
            stored = self._mac_of(options)
            good = [hmac.compare_digest(mac(key, options, ref), stored) for key in self._keys]
            if not any(good):
                if ref not in named:
                    log.warning("an entry of the index is not signed by us: %s", options)
                    return None
                log.info("the entry of version %s of %s is signed", ref.version, ref.model)
            if not good[0]:
                self._sign(options, ref)
        return Package(ref, signature(manifest))

    def forget(self, options: str) -> None:
        """Removes an entry, so that its version is converted again; harmless if there is none.

        Raises:
            StoreUnavailableError: the store can't be written.
        """
        with translate_errors(_INDEX):
            for kind in ("json", "mac"):
                try:
                    self._files.rm(self._path(options, kind))
                except FileNotFoundError:
                    continue

    def prove(self, ref: ModelRef) -> None:
        """Reads a whole package; raises ``StoreError`` if it is missing, damaged, or away."""
        self._store.verify(ref.package)

    def signature(self, ref: ModelRef) -> Signature:
        """What callers of a package rely on; raises ``StoreError``."""
        return signature(self._store.manifest(ref.package))

    def put(self, options: str, ref: ModelRef) -> Package:
        """Remembers a conversion.

        Raises:
            StoreError: the store can't be written, or does not hold the package.
        """
        found = self.signature(ref)
        entry = _IndexEntry(ref=ref, signature=found).model_dump_json().encode()
        with translate_errors(_INDEX):
            self._sign(options, ref)
            write_file(self._files, self._path(options), entry)
        return Package(ref, found)

    def _entry(self, options: str) -> _IndexEntry:
        """An entry; raises ``FileNotFoundError`` and ``ValidationError``."""
        data = self._files.cat_file(self._path(options))
        try:
            return _IndexEntry.model_validate_json(data)
        except ValidationError:
            self._check_size(f"{options}.json", data)
            raise

    def _check_size(self, name: str, data: bytes) -> None:
        check_size(name, len(data), list_sizes(self._files, self._root))

    def _sign(self, options: str, ref: ModelRef) -> None:
        made = mac(self._keys[0], options, ref)
        write_file(self._files, self._path(options, "mac"), made.encode())

    def _mac_of(self, options: str) -> str:
        """An entry's MAC as it is stored; empty if there is none."""
        try:
            data = self._files.cat_file(self._path(options, "mac"))
        except FileNotFoundError:
            return ""
        if len(data) != _MAC_CHARACTERS:
            self._check_size(f"{options}.mac", data)
        return str(data, "ascii", "ignore").strip()

    def _path(self, options: str, kind: str = "json") -> str:
        return str(PurePosixPath(self._root, f"{options}.{kind}"))


def mac(key: bytes, options: str, ref: ModelRef) -> str:
    """HMAC-SHA256 (hex) of an entry.

    JSON keeps its parts apart; the first says what is signed, so that no other use of the key fits.
    """
    parts = ["headrace/index/1", options, ref.model, ref.version, ref.package]
    return hmac.digest(key, json.dumps(parts).encode(), "sha256").hex()
