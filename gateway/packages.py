"""Opens packages for the gateway: manifest and tokeniser, verified and ready to encode.

Packages are opened in a thread, before a routing table refers to them. Which tokenisers are opened
here with them is for ``HereOrApart`` to say; those of the others are on the disk, verified, to be
opened in a process of their own. The model itself is never fetched here, only by the loader. What
was fetched stays in a cache folder, so that a gateway can restart while the store can't be reached.
Equal tokenisers of several packages are one object here, and one file on the disk.
"""

import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import fsspec
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from tokenizers import Tokenizer

from contracts.manifest import CODE, MANIFEST, TOKENIZER, EngineKind, Manifest
from contracts.model import ModelRef
from contracts.tasks import ENGINE_OUTPUT, Task
from preprocess.buckets import bucket_of
from preprocess.encoder import TextEncoder
from preprocess.errors import EngineOutputError, TokenizerFileError
from preprocess.packing import RowPacker
from preprocess.padding import RowPadder
from preprocess.table import Encoder, Padder, TableEncoder, TablePadder
from preprocess.tasks import HEADS, Head
from service import durable

log = logging.getLogger(__name__)


class PackageError(Exception):
    """A package can't be opened now: the store can't be reached, or its files are not valid."""


# Their answers are made of single tokens, so that the tokeniser has to be in this process.
READ_HERE = frozenset((Task.TOKEN_CLASSIFICATION, Task.ENTITY_RECOGNITION, Task.TEXT_GENERATION))
# Of its file: what a tokeniser takes here, with the words that it learns. What each really takes
# differs by its kind: measured were 6 to 31 (``docs/scale.md``).
BYTES_OF_A_FILE_BYTE = 20


@dataclass(frozen=True, eq=False)
class ServedModel:
    """One opened package. Requests in flight keep it, even if the routing table has changed.

    ``opened``: what makes its rows; None if that is in a process of its own, and then ``file``
    is the tokeniser's.
    """

    ref: ModelRef
    manifest: Manifest
    opened: Encoder | None
    padder: Padder | RowPacker
    code: bytes | None = None  # that the version brings, as ``preprocess.model_code`` packs it
    file: Path | None = None

    @property
    def encoder(self) -> Encoder:
        """What makes its rows, where that is in this process; raises ``RuntimeError``."""
        if self.opened is None:
            raise RuntimeError(f"the tokeniser of {self.name} is in another process")
        return self.opened

    @cached_property
    def is_packed(self) -> bool:
        """Whether its engine takes rows one after the other: the switch for all that depends on it.

        Its rows are not padded, its batches are sent by ``PackedSchedule``, and its output has no
        dimension of tokens beside that of rows.
        """
        return self.manifest.engine is EngineKind.PACKED

    @cached_property
    def tokeniser_key(self) -> str:
        """The same for all packages whose tokenisers make the same rows in the same way.

        Raises ``KeyError`` for a model of tables, which has none.
        """
        return key_of(self.manifest)

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
    def row_buckets(self) -> Sequence[int]:
        """Rows that its engine fills batches up to, so that fewer cost as much; else empty."""
        return () if self.manifest.fixed is None else self.manifest.fixed.rows

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
        """The row length that this many tokens are padded to: themselves, of a packed engine."""
        return tokens if self.is_packed else bucket_of(tokens, self.buckets)

    def tensors(
        self,
        rows: Sequence[Sequence[int]],
        bucket: int,
        type_rows: Sequence[Sequence[int]] | None = None,
    ) -> Mapping[str, NDArray[Any]]:
        """What the engine takes of a batch.

        Args:
            rows: token ids.
            bucket: the row length that they are padded to; a packed engine pads nothing.
            type_rows: token type ids of the same lengths; all 0 if None.
        """
        if isinstance(self.padder, RowPacker):
            return self.padder.pack(rows, type_rows)
        return self.padder.pad(rows, bucket, type_rows)

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
        head, packed = self.head, self.is_packed
        by_token = packed and head.rank > 2
        wanted = sum(tokens) if by_token else len(tokens)
        if len(output) != wanted:
            what = "tokens" if by_token else "texts"
            raise EngineOutputError(f"{len(output)} rows of answers for {wanted} {what}")
        multi_label = self.manifest.multi_label
        values = head.values(output, width=self.width, multi_label=multi_label, packed=packed)
        return head.parts(values, tokens, counts)


def key_of(manifest: Manifest) -> str:
    """What two packages have in common whose tokenisers are interchangeable."""
    return f"{manifest.task.value}:{manifest.files[TOKENIZER].sha256}:{_spec(manifest)}"


def _spec(manifest: Manifest) -> str:
    return hashlib.sha256(manifest.tokenizer.model_dump_json().encode()).hexdigest()[:16]


class HereOrApart:
    """Decides which tokenisers are opened in this process. From any thread.

    Those that fit into a share of the memory, as long as the gateway is about to start: opening one
    here stops everything else, and so does closing it. Later ones each get a process of their own.

    Args:
        most_bytes: of those that are opened here.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._started = False
        self._shared: dict[str, Encoder] = {}
        self._users: dict[str, set[str]] = {}  # packages of each
        self._sizes: dict[str, int] = {}

    def started(self) -> None:
        """Callers are served from now on."""
        self._started = True

    @property
    def count(self) -> int:
        """Tokenisers that are open here."""
        return len(self._shared)

    @property
    def bytes(self) -> int:
        """What they take, as estimated from their files."""
        return sum(list(self._sizes.values()))

    def known(self, package: str, key: str) -> Encoder | None:
        """The one of another package that is the same."""
        with self._lock:
            if key in self._shared:
                self._users[key].add(package)
            return self._shared.get(key)

    def takes(self, manifest: Manifest) -> bool:
        """Whether one is to be opened here. It then counts."""
        size = manifest.files[TOKENIZER].bytes * BYTES_OF_A_FILE_BYTE
        with self._lock:
            fits = not self._started and self.bytes + size <= self._most_bytes
            if fits or manifest.task in READ_HERE:
                self._sizes[key_of(manifest)] = size
                return True
        return False

    def gave_up(self, manifest: Manifest) -> None:
        """One that was to be opened here can't be."""
        with self._lock:
            if key_of(manifest) not in self._shared:
                self._sizes.pop(key_of(manifest), None)

    def keep(self, package: str, key: str, encoder: Encoder) -> Encoder:
        """One that was opened here, or the same that another thread has opened meanwhile."""
        with self._lock:
            self._users.setdefault(key, set()).add(package)
            return self._shared.setdefault(key, encoder)

    def forget(self, package: str) -> None:
        """A package is no longer needed; its tokeniser goes with the last one that has it."""
        with self._lock:
            for key in [key for key, users in self._users.items() if package in users]:
                self._users[key].discard(package)
                if not self._users[key]:
                    del self._users[key], self._shared[key]
                    self._sizes.pop(key, None)


def open_package(
    ref: ModelRef,
    manifest_json: bytes,
    tokenizer_json: bytes = b"",
    code: bytes | None = None,
    *,
    here: HereOrApart | None = None,
    file: Path | None = None,
) -> ServedModel:
    """Opens the package of a reference, after verifying the digests of its files.

    Args:
        ref: whose package it is.
        manifest_json: the manifest's bytes.
        tokenizer_json: the tokeniser's; a package of a model of tables has none.
        code: that it brings; None if it brings none.
        here: decides whether the tokeniser is opened in this process; None: it is.
        file: where the tokeniser lies; without one it is opened here whatever ``here`` says.

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
        encoder, padder = _reader(ref, manifest, tokenizer_json, here, file)
        model = ServedModel(
            ref=ref,
            manifest=manifest,
            opened=encoder,
            padder=padder,
            code=code if manifest.has_code else None,
            file=file,
        )
    except (TokenizerFileError, ValueError) as error:
        raise PackageError(f"{name} can't be served: {error}") from error
    if model.width == 0 or model.buckets[-1] < manifest.tokenizer.max_tokens:
        raise PackageError(f"the manifest of {name} lacks its labels, dimension or buckets")
    return model


def _reader(
    ref: ModelRef,
    manifest: Manifest,
    tokenizer_json: bytes,
    here: HereOrApart | None,
    file: Path | None,
) -> tuple[Encoder | None, Padder | RowPacker]:
    """What makes rows of texts, or of rows of tables, and tensors of these."""
    if manifest.features:
        features = manifest.features
        return TableEncoder(features), TablePadder(manifest.inputs, len(features))
    padder: RowPadder | RowPacker
    if manifest.engine is EngineKind.PACKED:
        padder = RowPacker(manifest.inputs)
    else:
        padder = RowPadder(manifest.inputs, manifest.tokenizer)
    if here is None:
        return HEADS[manifest.task].encoder(tokenizer_json, manifest.tokenizer), padder
    encoder = here.known(ref.package, key_of(manifest))
    if encoder is None and (here.takes(manifest) or file is None):
        try:
            opened = HEADS[manifest.task].encoder(tokenizer_json, manifest.tokenizer)
        except BaseException:
            here.gave_up(manifest)
            raise
        encoder = here.keep(ref.package, key_of(manifest), opened)
    return encoder, padder


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

    def forget(self, ref: ModelRef) -> None:
        """Deletes what is cached of a package that is no longer needed. May block."""


class StorePackages:
    """Packages of a store at any fsspec URL, cached on disk.

    Args:
        store_url: where they are.
        cache: folder of those that were fetched.
        run_code: whether packages are opened that bring code.
        here: decides which tokenisers are opened in this process; None: all are.
    """

    def __init__(
        self,
        store_url: str,
        cache: Path,
        *,
        run_code: bool = False,
        here: HereOrApart | None = None,
    ) -> None:
        self._store_url = store_url.rstrip("/")
        self._cache = cache
        self._run_code = run_code
        self._here = here
        self._files: dict[str, Path] = {}  # the tokenisers on the disk, by digest

    def open(self, ref: ModelRef) -> ServedModel:
        """See ``PackageSource.open``."""
        model = self._cached(ref)
        if model is None:
            files = {MANIFEST: self._fetch(ref, MANIFEST)}
            for name in self._needed(ref, files[MANIFEST]):
                files[name] = self._held(ref, files[MANIFEST], name) or self._fetch(ref, name)
            proven = self._proven(ref, files)
            model = self._opened(ref, files, self._keep(ref, proven, files))
        return model

    def forget(self, ref: ModelRef) -> None:
        """See ``PackageSource.forget``. In a pod the cache volume has a size limit."""
        shutil.rmtree(self._cache / ref.package, ignore_errors=True)
        if self._here is not None:
            self._here.forget(ref.package)

    def _cached(self, ref: ModelRef) -> ServedModel | None:
        """The package from the cache; None if it is not there completely."""
        folder = self._cache / ref.package
        try:
            files = {MANIFEST: (folder / MANIFEST).read_bytes()}
            for name in self._needed(ref, files[MANIFEST]):
                files[name] = (folder / name).read_bytes()
            path = folder / TOKENIZER if TOKENIZER in files else None
            return self._opened(ref, files, path)
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

    def _opened(self, ref: ModelRef, files: Mapping[str, bytes], file: Path | None) -> ServedModel:
        model = open_package(
            ref,
            files[MANIFEST],
            files.get(TOKENIZER, b""),
            files.get(CODE),
            here=self._here,
            file=file,
        )
        if file is not None:
            self._files[model.manifest.files[TOKENIZER].sha256] = file
        return model

    def _proven(self, ref: ModelRef, files: Mapping[str, bytes]) -> Manifest:
        """The manifest, once each file is the one that it lists; raises ``PackageError``."""
        manifest = _manifest(ref, files[MANIFEST])
        for name in files.keys() - {MANIFEST}:
            _prove(manifest, ref.triton_model, name, files[name])
        return manifest

    def _held(self, ref: ModelRef, manifest_json: bytes, name: str) -> bytes | None:
        """A tokeniser that another package on the disk has too."""
        proof = _manifest(ref, manifest_json).files.get(name)
        path = self._files.get(proof.sha256) if proof is not None and name == TOKENIZER else None
        if path is None or proof is None:
            return None
        try:
            content = path.read_bytes()
        except OSError:  # its package was forgotten meanwhile
            return None
        return content if _sha256(content) == proof.sha256 else None

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

    def _keep(self, ref: ModelRef, manifest: Manifest, files: Mapping[str, bytes]) -> Path | None:
        """Writes the files; returns where the tokeniser lies, None if it does not."""
        folder = self._cache / ref.package
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                if not (name == TOKENIZER and self._linked(manifest, folder / name)):
                    durable.write(folder / name, content)
        except OSError as error:
            # Served all the same: the cache matters at a restart without a store, and to
            # tokenisers that are opened when they are asked for.
            log.warning("package is not cached", extra={"reason": str(error)})
            return None
        return folder / TOKENIZER if TOKENIZER in files else None

    def _linked(self, manifest: Manifest, path: Path) -> bool:
        """Whether the tokeniser is now here too, as another name of the same file."""
        held = self._files.get(manifest.files[TOKENIZER].sha256)
        if held is None or held == path:
            return False
        try:
            path.unlink(missing_ok=True)
            os.link(held, path)
        except OSError:  # forgotten meanwhile, or a disk without links
            return False
        return True


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
