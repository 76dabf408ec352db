"""Stand-ins for the registry's edges, each satisfying its Protocol, and values to feed them."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.endpoint import (
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Precision,
)
from contracts.loading import (
    FailureCause,
    LoadedModel,
    LoaderReport,
    LoadFailure,
    WitnessAnswer,
)
from contracts.manifest import CONFIG_ONNXRUNTIME, Lineage, Manifest, PackageFile, TokenizerSpec
from contracts.model import DEFAULT_POOL, ModelRef
from contracts.rollout import RolloutState
from contracts.tasks import Task
from contracts.tensors import Datatype, TensorSpec
from registry.conversions.messages import (
    ConversionFailure,
    ConversionProgress,
    ConversionRequest,
    PublishedPackage,
)
from registry.errors import (
    EndpointConflictError,
    ModelProcessGoneError,
    SourceRefusedError,
    SourceUnavailableError,
    TritonRefusedError,
    TritonUnavailableError,
)
from registry.loading.triton_client import ModelInstances, Overrides
from registry.mlflow.model_registry import RegisteredModel, RegisteredVersion
from registry.packages.store import StoreUnavailableError, digest
from registry.reconcile.rollouts import HeldPackages, Surroundings
from rollout import status_size

Progressing = Callable[[ConversionProgress], None]

KEYS = (b"k" * 32,)  # of a controller's index

COPIES, THREADS = "copies", "threads"  # of a model, in what a placement gives to ``FakeTriton``


def ref(version: str = "1", package: str = "a", model: str = "m") -> ModelRef:
    """A reference whose package id is one character repeated."""
    return ModelRef(model=model, version=version, package=package * 64)


def manifest(version: str = "1", *, labels: tuple[str, ...] = ("no", "yes")) -> Manifest:
    """A small classifier's manifest."""
    shape = (-1, -1)
    return Manifest(
        model="m",
        version=version,
        task=Task.TEXT_CLASSIFICATION,
        labels=labels,
        precision=Precision.FP32,
        max_batch_size=8,
        length_buckets=(4, 8),
        tokenizer=TokenizerSpec(max_tokens=8, pad_id=0, vocabulary=10),
        inputs=(
            TensorSpec(name="input_ids", datatype=Datatype.INT64, shape=shape),
            TensorSpec(name="attention_mask", datatype=Datatype.INT64, shape=shape),
        ),
        outputs=(TensorSpec(name="logits", datatype=Datatype.FP32, shape=(-1, 2)),),
        files={
            name: PackageFile(sha256="0" * 64, bytes=0)
            for name in ("model.onnx", CONFIG_ONNXRUNTIME)
        },
        lineage=Lineage(registered_model="m", version=version),
        created_by="test",
    )


def packed(folder: Path, content: bytes = b"weights", version: str = "1") -> Manifest:
    """Writes a small package's files, which no store reads; the manifest that goes with them."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, data in (("model.onnx", content), ("tokenizer.json", b"{}")):
        (folder / name).write_bytes(data)
        files[name] = PackageFile(sha256=digest(folder / name), bytes=len(data))
    return manifest(version).model_copy(update={"files": files})


def report(
    *loaded: ModelRef,
    loader: str = "l",
    at: float = 0.0,
    ready: bool = True,
    failed: tuple[LoadFailure, ...] = (),
) -> LoaderReport:
    """What a loader says of its Triton."""
    held = tuple(LoadedModel(ref=item) for item in loaded)
    return LoaderReport(
        loader=loader, triton_grpc="t:1", at=at, ready=ready, loaded=held, failed=failed
    )


def refusal(
    ref: ModelRef,
    reason: str,
    *,
    by_version: bool = True,
    witness: WitnessAnswer = WitnessAnswer.LOADS,
    persists: bool = False,
) -> LoadFailure:
    """What a loader says of a package that its Triton refused."""
    return LoadFailure(
        ref=ref,
        reason=reason,
        by_version=by_version,
        cause=FailureCause.REFUSED,
        witness=witness,
        persists=persists,
    )


def candidate_of(status: EndpointStatus) -> Candidate:
    """The version on its way."""
    assert status.candidate is not None
    return status.candidate


def endpoint(
    status: EndpointStatus | None = None, *, name: str = "e", spec: EndpointSpec | None = None
) -> ModelEndpoint:
    """An endpoint of the model ``m``."""
    return ModelEndpoint(
        metadata=Metadata(name=name),
        spec=spec or EndpointSpec(model="m"),
        status=status or EndpointStatus(),
    )


def surroundings(
    loaders: Iterable[LoaderReport],
    target: str | None,
    routed: AbstractSet[ModelRef] = frozenset(),
) -> Surroundings:
    """What loaders' reports mean for one endpoint's rollout; see ``HeldInPool.around``."""
    held = HeldPackages()
    held.take(tuple(loaders))
    return held.of(DEFAULT_POOL).around(target, routed)


class MemoryEndpoints:
    """An ``EndpointStore`` in memory. ``broken`` makes reading fail."""

    def __init__(self, *endpoints: ModelEndpoint) -> None:
        self.broken = False
        self.unreadable: frozenset[str] = frozenset()
        self.asked = 0  # how often they were listed
        self.conflicts = 0  # so many writes from now on find that someone else wrote
        self._stored: dict[str, ModelEndpoint] = {}
        for item in endpoints:
            self.put(item)

    def list(self) -> tuple[ModelEndpoint, ...]:
        self.asked += 1
        if self.broken:
            raise OSError("the folder is away")
        return tuple(self._stored.values())

    def get(self, name: str) -> ModelEndpoint | None:
        return self._stored.get(name)

    def put(self, endpoint: ModelEndpoint) -> ModelEndpoint:
        stored = self._stored.get(endpoint.name)
        revision = stored.metadata.revision if stored else ""
        if self.conflicts or endpoint.metadata.revision != revision:
            self.conflicts = max(0, self.conflicts - 1)
            raise EndpointConflictError("someone else wrote")
        metadata = endpoint.metadata.model_copy(update={"revision": str(int(revision or 0) + 1)})
        written = endpoint.model_copy(update={"metadata": metadata})
        self._stored[endpoint.name] = written
        return written

    def delete(self, name: str) -> None:
        self._stored.pop(name, None)

    def tell_refused(self) -> None:
        pass  # what is in memory can be read

    def ask_for(self, instances: int | None, name: str = "e") -> None:
        """Lets the spec ask for so many copies from now on."""
        stored = self._stored[name]
        serving = stored.spec.serving.model_copy(update={"instances": instances})
        spec = stored.spec.model_copy(update={"serving": serving})
        self.put(stored.model_copy(update={"spec": spec}))

    def show(self, status: EndpointStatus, name: str = "e") -> None:
        """Writes a status as the controller would."""
        stored = self._stored[name]
        self.put(stored.model_copy(update={"status": status}))


class MemoryReports:
    """``Reports`` in memory."""

    def __init__(self) -> None:
        self.stored: dict[str, LoaderReport] = {}
        self.disconnected = False
        self.written = 0
        self.left: list[str] = []
        self.news = threading.Event()  # reports are written in a thread

    def list(self) -> tuple[LoaderReport, ...]:
        return tuple(self.stored.values())

    def get(self, loader: str) -> LoaderReport | None:
        return self.stored.get(loader)

    def put(self, report: LoaderReport) -> None:
        self.stored[report.loader] = report
        self.written += 1
        self.news.set()

    def beat(self, report: LoaderReport) -> None:
        self.put(report)

    def leave(self, loader: str) -> None:
        self.left.append(loader)


@dataclass
class FakeTriton:
    """A Triton in memory. Names in ``refuses`` fail to load with the error they map to.

    Those in ``gone`` have no process any more, until they are loaded anew.
    """

    models: set[str] = field(default_factory=set)
    refuses: dict[str, Exception] = field(default_factory=dict)
    fails: dict[str, Exception] = field(default_factory=dict)
    dies_on: set[str] = field(default_factory=set)
    hangs_on: set[str] = field(default_factory=set)
    hung: asyncio.Event = field(default_factory=asyncio.Event)  # it came to one of these
    gone: set[str] = field(default_factory=set)
    down: bool = False
    stays_down: bool = False  # once it has died, until ``restart``
    gpus: int = 0
    device: dict[str, object] = field(default_factory=lambda: {"kind": "cpu"})  # of its probe
    answers: dict[str, NDArray[np.float32]] = field(default_factory=dict)  # ``outputs`` gives
    most_copies: int = 64
    copies: dict[str, int] = field(default_factory=dict)
    threads: dict[str, int] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    shapes: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    request_ids: list[str] = field(default_factory=list)

    def restart(self) -> None:
        """Up again, with nothing loaded."""
        self.models.clear()
        self.gone.clear()
        self.copies.clear()
        self.down = False

    async def held(self, names: Iterable[str]) -> Mapping[str, ModelInstances]:
        self._reach()
        return {name: self.running(name) for name in names if name in self.models}

    def running(self, name: str) -> ModelInstances:
        """How a model is run."""
        copies = self.copies.get(name, 1)
        instances, threads = copies * max(1, self.gpus), self.threads.get(name, 1)
        return ModelInstances("onnxruntime", copies, instances, threads, on_gpu=self.gpus > 0)

    async def load(self, name: str, overrides: Overrides) -> None:
        self._reach()
        self.calls.append(("load", name))
        copies = int(overrides.get(COPIES, "1"))
        if copies > self.most_copies:
            raise TritonRefusedError(f"no room for {copies} copies")
        if name in self.dies_on:
            self.models.clear()
            self.down = self.stays_down
            raise TritonUnavailableError("connection reset")
        if name in self.refuses:
            raise self.refuses[name]
        self.models.add(name)
        self.gone.discard(name)
        self.copies[name] = copies
        self.threads[name] = int(overrides.get(THREADS, "1"))

    async def unload(self, name: str) -> None:
        self._reach()
        self.calls.append(("unload", name))
        self.models.discard(name)

    async def outputs(
        self, name: str, inputs: Mapping[str, NDArray[np.generic]]
    ) -> NDArray[np.float32]:
        self._reach()
        return self.answers[name][: len(inputs["row_starts"]) - 1]

    async def ask(self, name: str) -> bytes:
        self._reach()
        if name not in self.models:
            raise TritonRefusedError("unknown model")
        return json.dumps(self.device).encode()

    async def infer(
        self, name: str, inputs: Mapping[str, NDArray[np.number]], request_id: str = ""
    ) -> tuple[int, int]:
        self._reach()
        self.request_ids.append(request_id)
        shape = inputs["input_ids"].shape
        self.shapes.append((name, shape))
        starts = inputs.get("row_starts")
        if name in self.hangs_on:
            self.hung.set()
            await asyncio.Event().wait()
        if name in self.gone:
            raise ModelProcessGoneError(f"Stub process '{name}_0_0' is not healthy.")
        if name in self.fails:
            raise self.fails[name]
        rows = shape[0] if starts is None else len(starts) - 1
        return rows, 4 * rows

    def loads(self) -> list[str]:
        """Names in the order in which they were loaded."""
        return [name for what, name in self.calls if what == "load"]

    def _reach(self) -> None:
        if self.down:
            raise TritonUnavailableError("connection refused")


class FakeRegistry:
    """A ``ModelRegistry`` in memory. ``down`` makes every question fail."""

    def __init__(self) -> None:
        self.down = False
        self.listed: dict[str, tuple[RegisteredVersion, ...]] = {}
        self.aliases: dict[str, dict[str, str]] = {}
        self.created: dict[str, int] = {}
        self.asked: list[str] = []
        self.models_asked: list[str] = []  # "all" or "changed"
        self.told: list[tuple[str, str, str]] = []
        self.refuses: set[str] = set()  # tags and aliases that it will not write
        self.hangs: set[str] = set()  # models whose versions it does not answer
        self.meanwhile: Callable[[], None] = lambda: None  # happens while it lists models
        self._changed = 0

    def register(self, model: str, number: str, *, identity: str = "", run_id: str = "") -> None:
        """One more version, the newest."""
        self._changed += 1
        version = RegisteredVersion(model, number, identity or f"{model}-{number}", run_id=run_id)
        self.listed[model] = (version, *self.listed.get(model, ()))

    def recreate(self, model: str) -> None:
        """The model is deleted and registered again, without a version."""
        self._changed += 1
        self.listed[model], self.created[model] = (), self.created.get(model, 1) + 1

    def delete(self, model: str, number: str) -> None:
        """One version less."""
        self._changed += 1
        kept = (item for item in self.listed[model] if item.number != number)
        self.listed[model] = tuple(kept)

    async def models(self) -> tuple[RegisteredModel, ...]:
        self._reach()
        self.models_asked.append("all")
        self.meanwhile()
        return self._models()

    async def changed_models(self, since: int) -> tuple[RegisteredModel, ...]:
        self._reach("changed models")
        self.models_asked.append("changed")
        return tuple(model for model in self._models() if model.changed >= since)

    async def model(self, name: str) -> RegisteredModel | None:
        self._reach()
        self.models_asked.append(name)
        return next((model for model in self._models() if model.name == name), None)

    def _models(self) -> tuple[RegisteredModel, ...]:
        return tuple(
            RegisteredModel(
                name, self._changed, self.aliases.get(name, {}), self.created.get(name, 1)
            )
            for name in self.listed
        )

    async def versions(self, model: str) -> tuple[RegisteredVersion, ...]:
        self._reach()
        if model in self.hangs:
            raise SourceUnavailableError(f"the versions of {model}: timed out")
        self.asked.append(model)
        return self.listed.get(model, ())

    async def set_tag(self, version: RegisteredVersion, key: str, value: str) -> None:
        self._reach(key)
        self.told.append((version.number, key, value))
        self.listed[version.model] = tuple(
            replace(item, tags={**item.tags, key: value}) if item.number == version.number else item
            for item in self.listed[version.model]
        )

    async def set_alias(self, model: str, alias: str, number: str) -> None:
        self._reach(alias)
        self.told.append((number, "alias", alias))
        self.aliases[model] = {**self.aliases.get(model, {}), alias: number}

    def _reach(self, what: str = "") -> None:
        if self.down:
            raise SourceUnavailableError("connection refused")
        if what in self.refuses:
            raise SourceRefusedError("answered 400: no such thing", 400)


class MemoryArtifacts:
    """``RunArtifacts`` in memory. ``fault`` is raised instead of writing."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.puts = 0
        self.fault: Exception | None = None

    async def put(self, run_id: str, path: str, data: bytes) -> None:
        if self.fault is not None:
            raise self.fault
        self.puts += 1
        self.files[f"{run_id}/{path}"] = data


class ScriptedRollouts:
    """``Rollouts`` that a test moves: ``next_status`` is what each call makes of a status."""

    def __init__(self) -> None:
        self.next_status: Callable[[EndpointStatus], EndpointStatus] = lambda status: status
        self.around = Surroundings()
        self.answers: frozenset[str] = frozenset()  # annotations that are taken away
        self.breaks_at = ""  # an endpoint's name
        self.spec: EndpointSpec | None = None  # the last one that was seen
        self.closed = 0.0  # up to when windows are closed, unix seconds

    def closed_through(self, endpoint: ModelEndpoint) -> float:
        del endpoint
        return self.closed

    def advance(self, endpoint: ModelEndpoint, around: Surroundings, now: float) -> ModelEndpoint:
        if endpoint.name == self.breaks_at:
            raise ValueError("evidence of another age")
        self.around, self.spec = around, endpoint.spec
        kept = {k: v for k, v in endpoint.metadata.annotations.items() if k not in self.answers}
        metadata = endpoint.metadata.model_copy(update={"annotations": kept})
        status = self.next_status(endpoint.status)
        return endpoint.model_copy(update={"metadata": metadata, "status": status})

    def withdraw(self, endpoint: ModelEndpoint, now: float, reason: str) -> ModelEndpoint:
        status = status_size.withdraw(endpoint.status, now, reason)
        return endpoint.model_copy(update={"status": status})

    def evidence(self, endpoint: ModelEndpoint, state: RolloutState) -> Mapping[str, bytes]:
        return {
            "evidence.json": state.model_dump_json().encode(),
            "report.html": b"<!doctype html>",
        }


class ScriptedLauncher:
    """A ``ConversionLauncher`` that ends each conversion when, and as, a test says."""

    def __init__(self) -> None:
        self.requests: list[ConversionRequest] = []
        self.paths: list[tuple[Path, ...]] = []
        self.cancelled = 0
        self._waiting: list[
            tuple[asyncio.Future[PublishedPackage | ConversionFailure], Progressing]
        ] = []

    async def run(
        self,
        request: ConversionRequest,
        progress: Progressing,
        *,
        python_path: tuple[Path, ...] = (),
    ) -> PublishedPackage | ConversionFailure:
        self.requests.append(request)
        self.paths.append(python_path)
        future: asyncio.Future[PublishedPackage | ConversionFailure] = (
            asyncio.get_running_loop().create_future()
        )
        self._waiting.append((future, progress))
        try:
            return await future
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    @property
    def running(self) -> int:
        """How many have neither ended nor been cancelled."""
        return sum(1 for future, _ in self._waiting if not future.done())

    def say(self, message: ConversionProgress) -> None:
        """The newest conversion's progress."""
        self._waiting[-1][1](message)

    def end(self, result: PublishedPackage | ConversionFailure) -> None:
        """The newest conversion's end."""
        self._waiting[-1][0].set_result(result)


class MemoryPackages:
    """What the index and gc need of a ``PackageStore``."""

    def __init__(self, *manifests: Manifest) -> None:
        self.held = {item.package_id(): item for item in manifests}
        self.away = False

    def packages(self) -> list[str]:
        return sorted(self.held)

    def manifest(self, package: str) -> Manifest:
        if self.away:
            raise StoreUnavailableError("the store is away")
        return self.held[package]

    def leftovers(self) -> list[str]:
        return []

    def delete(self, package: str) -> None:
        del self.held[package]
