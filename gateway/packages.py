"""Opens packages for the gateway: manifest and tokeniser, verified and ready to encode.

Packages are opened in a thread, before a routing table refers to them. The model itself is never
fetched here, only by the loader. What was fetched stays in a cache folder, so that a gateway can
restart while the store can't be reached.
"""

import hashlib
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import fsspec
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from tokenizers import Tokenizer

from contracts.manifest import CODE, MANIFEST, TOKENIZER, Manifest
from contracts.model import ModelRef
from contracts.tasks import ENGINE_OUTPUT, Task
from preprocess.buckets import bucket_of
from preprocess.encoder import TextEncoder
from preprocess.errors import TokenizerFileError
from preprocess.padding import RowPadder
from preprocess.table import Encoder, Padder, TableEncoder, TablePadder
from preprocess.tasks import HEADS, Head
from service import durable

log = logging.getLogger(__name__)


class PackageError(Exception):
    """A package can't be opened now: the store can't be reached, or its files are not valid."""


@dataclass(frozen=True, eq=False)
class ServedModel:
    """One opened package. Requests in flight keep it, even if the routing table has changed."""

    ref: ModelRef
    manifest: Manifest
    encoder: Encoder
    padder: Padder
    code: bytes | None = None  # that the version brings, as ``preprocess.model_code`` packs it

    @cached_property
    def name(self) -> str:
        """Its name in Triton."""
        return self.ref.triton_model

    @cached_property
    def task(self) -> Task:
        """The model's task."""
        return self.manifest.task

    @cached_property
    def output(self) -> str:
        """The name of the model's result tensor."""
        return ENGINE_OUTPUT[self.manifest.task].name

    @cached_property
    def buckets(self) -> Sequence[int]:
        """Row lengths, ascending."""
        return self.manifest.length_buckets

    @cached_property
    def max_batch_size(self) -> int:
        """The largest batch, in rows."""
        return self.manifest.max_batch_size

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Of a model of texts, what makes text of its tokens."""
        if not isinstance(self.encoder, TextEncoder):
            raise TypeError(f"{self.name} reads no texts")
        return self.encoder.tokenizer

    @cached_property
    def at_once(self) -> int:
        """Batches, or prompts of a model that generates, that one instance runs at once."""
        return self.manifest.max_batch_size if self.manifest.generation else 1

    @cached_property
    def width(self) -> int:
        """Values a text: labels of a classifier, dimension of an embedding.

        0 where the manifest says neither; ``open_package`` refuses that.
        """
        named = len(self.manifest.labels) or self.manifest.dimension or 0
        return named + self.head.further_columns if named else 0

    @cached_property
    def ranges(self) -> NDArray[np.float32] | None:
        """The usual values of each dimension of its vectors, ``[2, dimension]``."""
        kept = self.manifest.ranges
        return None if kept is None else np.array([kept.low, kept.high], np.float32)

    def bucket_of(self, tokens: int) -> int:
        """The row length that so many tokens are padded to."""
        return bucket_of(tokens, self.buckets)

    def encodes_like(self, other: "ServedModel") -> bool:
        """Whether both make the same rows of every text, or of every row of a table.

        Code of their own may change texts.
        """
        if self.code is not None or other.code is not None:
            return False
        ours, theirs = self.manifest, other.manifest
        if ours.features or theirs.features:
            return ours.features == theirs.features
        same_file = ours.files[TOKENIZER].sha256 == theirs.files[TOKENIZER].sha256
        return same_file and ours.tokenizer == theirs.tokenizer

    @cached_property
    def head(self) -> Head:
        """The head of its task."""
        return HEADS[self.manifest.task]

    def decode(
        self, output: NDArray[np.float32], tokens: Sequence[int], counts: Sequence[int]
    ) -> list[NDArray[np.float32]]:
        """A model's output -> the task's values of successive rows, float32 ``[rows, width]``.

        Of labels of tokens, ``[tokens of the rows, width]``.

        Args:
            output: of a batch.
            tokens: of each row.
            counts: how many rows each array of the result is for, in the order of the rows.

        Raises:
            preprocess.errors.EngineOutputError: another shape, NaN or infinity.
        """
        values = self.head.values(output, width=self.width, multi_label=self.manifest.multi_label)
        return self.head.parts(values, tokens, counts)


def open_package(
    ref: ModelRef, manifest_json: bytes, tokenizer_json: bytes = b"", code: bytes | None = None
) -> ServedModel:
    """Opens the package of a reference, after verifying the digests of its files.

    Args:
        ref: whose package it is.
        manifest_json: the manifest's bytes.
        tokenizer_json: the tokeniser's; a package of a model of tables has none.
        code: that it brings; None where it brings none.

    Raises:
        PackageError: the bytes are not those that the reference names, or can't be served.
    """
    name = ref.triton_model
    manifest = _manifest(ref, manifest_json)
    if HEADS[manifest.task].reads_rows != bool(manifest.features):
        raise PackageError(f"{name} does {manifest.task}, which does not go with its features")
    if not manifest.features:
        _prove(manifest, name, TOKENIZER, tokenizer_json)
    if manifest.has_code:
        _prove(manifest, name, CODE, code or b"")
    try:
        encoder, padder = _reader(manifest, tokenizer_json)
        model = ServedModel(
            ref=ref,
            manifest=manifest,
            encoder=encoder,
            padder=padder,
            code=code if manifest.has_code else None,
        )
    except (TokenizerFileError, ValueError) as error:
        raise PackageError(f"{name} can't be served: {error}") from error
    if model.width == 0 or model.buckets[-1] < manifest.tokenizer.max_tokens:
        raise PackageError(f"the manifest of {name} lacks its labels, dimension or buckets")
    return model


def _reader(manifest: Manifest, tokenizer_json: bytes) -> tuple[Encoder, Padder]:
    """What makes rows of texts, or of rows of tables, and tensors of these."""
    if manifest.features:
        features = manifest.features
        return TableEncoder(features), TablePadder(manifest.inputs, len(features))
    encoder = HEADS[manifest.task].encoder(tokenizer_json, manifest.tokenizer)
    return encoder, RowPadder(manifest.inputs, manifest.tokenizer)


def _manifest(ref: ModelRef, manifest_json: bytes) -> Manifest:
    name = ref.triton_model
    if _sha256(manifest_json) != ref.package:
        raise PackageError(f"the manifest of {name} does not have the digest {ref.package}")
    try:
        return Manifest.model_validate_json(manifest_json)
    except ValidationError as error:
        raise PackageError(f"the manifest of {name} can't be read: {error}") from error


def _prove(manifest: Manifest, name: str, file: str, content: bytes) -> None:
    proof = manifest.files.get(file)
    if proof is None or _sha256(content) != proof.sha256:
        raise PackageError(f"{file} of {name} is not the one its manifest lists")


class PackageSource(Protocol):
    """Where packages come from."""

    def open(self, ref: ModelRef) -> ServedModel:
        """The package, verified. May block: never called on the event loop.

        Raises:
            PackageError: it can't be opened now.
        """
        ...

    def forget(self, ref: ModelRef) -> None:
        """Deletes what is cached of a package that is no longer needed. May block."""
        ...


class StorePackages:
    """Packages of a store at any fsspec URL, cached on disk.

    Args:
        store_url: where they are.
        cache: folder of those that were fetched.
        run_code: whether packages are opened that bring code.
    """

    def __init__(self, store_url: str, cache: Path, *, run_code: bool = False) -> None:
        self._store_url = store_url.rstrip("/")
        self._cache = cache
        self._run_code = run_code

    def open(self, ref: ModelRef) -> ServedModel:
        """See ``PackageSource.open``."""
        model = self._cached(ref)
        if model is None:
            files = {MANIFEST: self._fetch(ref, MANIFEST)}
            for name in self._needed(ref, files[MANIFEST]):
                files[name] = self._fetch(ref, name)
            model = self._opened(ref, files)
            self._keep(ref, files)
        return model

    def forget(self, ref: ModelRef) -> None:
        """See ``PackageSource.forget``. In a pod the cache volume has a size limit."""
        shutil.rmtree(self._cache / ref.package, ignore_errors=True)

    def _cached(self, ref: ModelRef) -> ServedModel | None:
        """The package from the cache; None if it is not there completely."""
        folder = self._cache / ref.package
        try:
            files = {MANIFEST: (folder / MANIFEST).read_bytes()}
            for name in self._needed(ref, files[MANIFEST]):
                files[name] = (folder / name).read_bytes()
            return self._opened(ref, files)
        except FileNotFoundError:
            return None
        except (OSError, PackageError) as error:
            log.warning("cached package is not used", extra={"reason": str(error)})
            return None

    def _needed(self, ref: ModelRef, manifest_json: bytes) -> tuple[str, ...]:
        """The files that are needed beside the manifest. A model of tables has no tokeniser."""
        manifest = _manifest(ref, manifest_json)
        needed = () if manifest.features else (TOKENIZER,)
        if not manifest.has_code:
            return needed
        if not self._run_code:
            raise PackageError(
                f"{ref.triton_model} brings code of its own, which this gateway does not run: "
                "--model-code (gateway.modelCode.enabled in the chart) lets it"
            )
        return (*needed, CODE)

    def _opened(self, ref: ModelRef, files: Mapping[str, bytes]) -> ServedModel:
        return open_package(ref, files[MANIFEST], files.get(TOKENIZER, b""), files.get(CODE))

    def _fetch(self, ref: ModelRef, name: str) -> bytes:
        url = f"{self._store_url}/{ref.package}/{name}"
        try:
            with fsspec.open(url, "rb") as file:
                content: bytes = file.read()
        # The errors of a store's driver have no common class (botocore, aiohttp, OSError). All of
        # them mean that the package can't be fetched now, and it is tried again soon.
        except Exception as error:
            raise PackageError(f"{url} can't be fetched: {error!r}") from error
        return content

    def _keep(self, ref: ModelRef, files: dict[str, bytes]) -> None:
        folder = self._cache / ref.package
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                durable.write(folder / name, content)
        except OSError as error:
            # Served all the same: the cache only matters at a restart without a store.
            log.warning("package is not cached", extra={"reason": str(error)})


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
