"""Takes what a conversion made into the package store, once it is shown to be what was asked for.

A conversion runs beside what a stranger registered, so that nothing that it says is believed. It
writes into a folder of its own, ``<store>/staging/<id>/``, and names a package there. The
controller copies that package, proves every byte, and compares it with the request and with what
MLflow says of the version. Only then it publishes the package. The id is keyed: the code of one
version can't guess the folder of another. Graphs and tokenisers are never opened here: what is
wrong in them harms only their own model.
"""

import asyncio
import logging
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from contracts.endpoint import EngineChoice, Precision, ServingOptions
from contracts.loading import DeviceKind
from contracts.manifest import (
    CODE,
    CONFIG_ONNXRUNTIME,
    CONFIG_PYTHON,
    DEVICE_PROOF,
    ENCODER_ONNX,
    MODEL_CONFIG,
    MODEL_ONNX,
    PYFUNC,
    TOKENIZER,
    WEIGHTS,
    EngineKind,
    Manifest,
)
from contracts.model import ModelRef
from contracts.tasks import packed_inputs
from preprocess.buckets import automatic_buckets, cut_buckets, row_buckets
from registry.conversions.index import signature
from registry.conversions.launcher import ConversionLauncher, OnProgress
from registry.conversions.messages import ConversionFailure, ConversionRequest, PublishedPackage
from registry.conversions.staging import StagingFolders, remove, staging_url
from registry.mlflow.model_registry import RegisteredVersion
from registry.packages.store import (
    PackageDamagedError,
    PackageMissingError,
    PackageStore,
    StoreError,
)
from registry.packages.triton_config import render, render_generation, render_packed

log = logging.getLogger(__name__)

MOST_BYTES = 16 << 30
_PUBLISH_SECONDS = 1800.0  # a store that hangs must not hold up other versions for ever
_SCRATCH = "publication-"

_NEEDED = frozenset({MODEL_ONNX, CONFIG_PYTHON})
_KNOWN = _NEEDED | {CONFIG_ONNXRUNTIME, ENCODER_ONNX, TOKENIZER, CODE}
_OF_PYFUNC = frozenset({PYFUNC, CONFIG_PYTHON})
_OF_PACKED = frozenset({WEIGHTS, MODEL_CONFIG, DEVICE_PROOF, TOKENIZER, CONFIG_PYTHON})
_LOADER = re.compile(r"AutoModel(For[A-Za-z]+)?")  # of transformers: these read files and no more
_DENSE = re.compile(r"dense-[0-9]{1,2}\.safetensors")

Registered = Callable[[str, str], RegisteredVersion | None]


class PublishingLauncher:
    """A launcher whose packages are in the store when it says so.

    Args:
        launcher: runs the conversions.
        store: where packages are published.
        staging: the folders that conversions write into.
        keys: of this controller, the newest first.
        registered: what MLflow says of a version, by model and number.
        work_dir: for the copies of packages while they are proved.
        most_bytes: of one package.
    """

    def __init__(
        self,
        launcher: ConversionLauncher,
        store: PackageStore,
        *,
        staging: StagingFolders,
        keys: tuple[bytes, ...],
        registered: Registered,
        work_dir: Path,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._launcher = launcher
        self._store = store
        self._staging = staging
        self._key = keys[0]
        self._registered = registered
        self._work_dir = work_dir
        self._most_bytes = most_bytes

    def clean(self) -> None:
        """Removes what an earlier controller that was killed left on the disk."""
        for scratch in self._work_dir.glob(f"{_SCRATCH}*"):
            shutil.rmtree(scratch, ignore_errors=True)

    async def run(
        self,
        request: ConversionRequest,
        progress: OnProgress,
        *,
        python_path: tuple[Path, ...] = (),
    ) -> PublishedPackage | ConversionFailure:
        """Runs a conversion in its own folder, and publishes its package; see the Protocol."""
        url = staging_url(request, self._key)
        staged = request.model_copy(update={"store_url": url})
        with self._staging.hold(url):
            try:
                result = await self._launcher.run(staged, progress, python_path=python_path)
                if isinstance(result, ConversionFailure):
                    return result
                published = asyncio.to_thread(self._publish, request, result.ref, url)
                return await asyncio.wait_for(published, _PUBLISH_SECONDS)
            except TimeoutError:
                reason = f"its package could not be published within {_PUBLISH_SECONDS:g} s"
                return ConversionFailure(reason=reason, by_version=False)
            finally:
                # Shielded: being cancelled once more must not leave the folder behind.
                await asyncio.shield(asyncio.to_thread(remove, url))

    def _publish(
        self, request: ConversionRequest, ref: ModelRef, url: str
    ) -> PublishedPackage | ConversionFailure:
        version = self._registered(request.model, request.version)
        if version is None:
            reason = "MLflow does not list the version any more"
            return ConversionFailure(reason=reason, by_version=False)
        self._work_dir.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=self._work_dir))
        folder = scratch / ref.package
        try:
            staged = PackageStore(url)
            manifest = staged.fetch(ref.package, folder, most_bytes=self._most_bytes)
            if reason := refusal(manifest, ref, request, version):
                return _refuse(request, reason)
            if reason := altered_configs(manifest, folder, request.threads):
                # Not the version's fault if an operator runs conversions of another release.
                return _refuse(request, reason, by_version=False)
            return PublishedPackage(ref=self._store.publish(folder, manifest))
        except (PackageMissingError, PackageDamagedError) as error:
            # Maybe not the version's fault: others may be able to write there too.
            return _refuse(request, str(error), by_version=False)
        except (StoreError, OSError) as error:
            return ConversionFailure(
                reason=f"its package can't be published: {error}", by_version=False
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def refusal(
    manifest: Manifest, ref: ModelRef, request: ConversionRequest, version: RegisteredVersion
) -> str:
    """Why a package is not the one that was asked for; empty if it is."""
    stable = request.stable
    reasons = (
        _other_version(manifest, ref, version),
        _other_serving(manifest, request),
        _other_lengths(manifest, request.serving),
        _other_packed(manifest, request),
        _other_fixed(manifest, request),
        _other_files(manifest, code_allowed=request.model_code),
        _other_pyfunc(manifest, allowed=request.pyfunc is not None),
        stable.broken_by(signature(manifest)) if stable is not None else "",
    )
    return next(filter(None, reasons), "")


def altered_configs(manifest: Manifest, folder: Path, threads: int) -> str:
    """Why Triton's configurations in ``folder`` are not those that this release writes.

    They name backends, files and parameters, by which Triton would run what it is told to.
    """
    if manifest.generation is not None:
        context, rows = manifest.tokenizer.max_tokens, manifest.max_batch_size
        text = render_generation(
            context=context, rows=rows, threads=threads, generation=manifest.generation
        )
        made = {CONFIG_PYTHON: text}
    elif manifest.packed is not None:
        made = {CONFIG_PYTHON: _packed_config(manifest, threads)}
    else:
        try:
            python, native = render(
                inputs=manifest.inputs,
                outputs=manifest.outputs,
                max_batch_size=manifest.max_batch_size,
                threads=threads,
            )
        except ValueError as error:
            return str(error)
        made = {CONFIG_PYTHON: python}
        if manifest.pyfunc is None and manifest.fixed is None:
            made[CONFIG_ONNXRUNTIME] = native
    for name in (CONFIG_PYTHON, CONFIG_ONNXRUNTIME):
        ours = made.get(name)
        if (name in manifest.files) != (ours is not None) or (
            ours is not None and (folder / name).read_bytes() != ours.encode()
        ):
            return (
                f"its {name} is not what this release writes (it was made by {manifest.created_by})"
            )
    return ""


def _other_version(manifest: Manifest, ref: ModelRef, version: RegisteredVersion) -> str:
    lineage = manifest.lineage
    named = {
        (manifest.model, manifest.version),
        (ref.model, ref.version),
        (lineage.registered_model, lineage.version),
    }
    if named != {(version.model, version.number)}:
        return f"it is of version {manifest.version} of {manifest.model}"
    if (lineage.run_id, lineage.source) != (version.run_id, version.source):
        return "its lineage is not what MLflow says of the version"
    return ""


def _other_serving(manifest: Manifest, request: ConversionRequest) -> str:
    asked = request.serving
    if request.task is not None and manifest.task != request.task:
        return f"its task is {manifest.task}, and {request.task} was asked for"
    if manifest.max_batch_size != asked.max_batch_size:
        return f"it takes {manifest.max_batch_size} texts, and {asked.max_batch_size} was asked for"
    possible = {asked.precision, Precision.FP32}  # to which the others fall back
    if asked.precision is not Precision.AUTO and manifest.precision not in possible:
        return f"it is in {manifest.precision}, and {asked.precision} was asked for"
    return ""


def _other_fixed(manifest: Manifest, request: ConversionRequest) -> str:
    """What may be said of a graph in fixed shapes: it is for GPUs, and the shapes are bounded."""
    spec = manifest.fixed
    if spec is None:
        return ""
    if request.device is not DeviceKind.GPU:
        return "its graph runs in fixed shapes, which only pools of GPUs get"
    if manifest.engine is EngineKind.PACKED or (
        manifest.generation or manifest.features or manifest.pyfunc
    ):
        return "its manifest says that it is more than a graph in fixed shapes"
    try:
        rows = row_buckets(manifest.max_batch_size, manifest.length_buckets)
    except ValueError as error:
        return str(error)
    return "" if spec.rows == rows else f"nobody asked for its numbers of rows, {spec.rows[:20]}"


def _other_lengths(manifest: Manifest, asked: ServingOptions) -> str:
    most = manifest.tokenizer.max_tokens
    if manifest.features:
        buckets: tuple[int, ...] = (most,)
    elif most > asked.max_tokens:
        return f"it takes {most} tokens, and {asked.max_tokens} was asked for"
    elif asked.length_buckets == "auto":
        buckets = automatic_buckets(most)
    else:
        buckets = cut_buckets(asked.length_buckets, most)
    if manifest.length_buckets != buckets:
        return f"nobody asked for its length buckets, {list(manifest.length_buckets)[:20]}"
    return ""


def _other_files(manifest: Manifest, *, code_allowed: bool) -> str:
    names = frozenset(manifest.files)
    if manifest.pyfunc is not None:
        return "" if names == _OF_PYFUNC else f"its files are {', '.join(sorted(names)[:20])}"
    spec = manifest.packed
    if spec is not None:
        needed, known = _OF_PACKED, _OF_PACKED | {CODE, *(layer.file for layer in spec.dense)}
    elif manifest.fixed is not None:
        needed = _NEEDED | {DEVICE_PROOF, TOKENIZER}
        known = needed | {CODE}
    else:
        needed, known = _NEEDED, _KNOWN
    if not needed <= names <= known:
        return f"its files are {', '.join(sorted(names)[:20])}"
    written = manifest.generation
    if (ENCODER_ONNX in names) != (written is not None and written.start_id is not None):
        return f"its manifest and its files say different things of {ENCODER_ONNX}"
    if manifest.has_code != (CODE in names):
        return f"its manifest and its files say different things of {CODE}"
    if manifest.has_code and not code_allowed:
        return "it brings code for gateways, which the operator does not allow"
    return ""


def _other_packed(manifest: Manifest, request: ConversionRequest) -> str:
    """What may be said of a packed engine: how it is loaded, and that it was asked for.

    Its weights are not opened here; Triton's process of the model reads nothing but safetensors.
    """
    spec, asked = manifest.packed, request.serving.engine
    on_gpu = request.device is DeviceKind.GPU
    if (spec is not None) != (manifest.engine is EngineKind.PACKED):
        return "its manifest says two different things of its engine"
    if spec is None:
        lacks = asked is EngineChoice.PACKED
        return "its engine is padded, and packed was asked for" if lacks else ""
    if asked is EngineChoice.PADDED or (asked is EngineChoice.AUTO and not on_gpu):
        return "its engine is packed, which nobody asked for"
    layers = {each.file for each in spec.dense}
    reasons = {
        "its manifest says that it is more than a packed engine": bool(
            manifest.generation or manifest.features or manifest.pyfunc
        ),
        f"nothing is loaded by {spec.loader[:80]!r}": not _LOADER.fullmatch(spec.loader),
        "its layers after pooling are not among its files": not (
            all(map(_DENSE.fullmatch, layers)) and layers <= manifest.files.keys()
        ),
        "its tensors are not those of a packed engine": not (
            len(manifest.outputs) == 1 and manifest.inputs == packed_inputs(type_ids=spec.type_ids)
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _packed_config(manifest: Manifest, threads: int) -> str:
    """Triton's configuration of a packed engine, as this release writes it."""
    spec = manifest.packed
    return render_packed(
        task=manifest.task,
        width=manifest.outputs[0].shape[-1],
        type_ids=spec is not None and spec.type_ids,
        threads=threads,
    )


def _other_pyfunc(manifest: Manifest, *, allowed: bool) -> str:
    """What may be said of a pyfunc: that it is allowed, and that it is of tables.

    Its code and its packages are the version's own, and nothing of them can be proved but that they
    are the bytes that the conversion handed over.
    """
    spec = manifest.pyfunc
    if spec is None:
        return ""
    if not allowed:
        return "it is Python of its users' own, which the operator does not allow"
    more = manifest.generation is not None or manifest.packed is not None
    if manifest.has_code or more:
        return "its manifest says that it is more than a pyfunc"
    if not manifest.features or len(spec.example) != len(manifest.features):
        return "its manifest does not say what a row is"
    return ""


def _refuse(
    request: ConversionRequest, reason: str, *, by_version: bool = True
) -> ConversionFailure:
    what = f"the package that its conversion made is refused: {reason}"
    log.error("version %s of %s: %s", request.version, request.model, what)
    return ConversionFailure(reason=what[:1000], by_version=by_version)
