"""A made-up installation: endpoints of tenants, their models' packages, what MLflow says of them.

Some endpoints roll out a version that fails every request: from its first window with callers on,
or after two hours in which it was as good as the version before.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import old_rollouts

from contracts.endpoint import (
    Candidate,
    EndpointLimits,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Phase,
    PinnedVersion,
    Precision,
    Route,
)
from contracts.loading import CostPoint, LoadedModel
from contracts.manifest import Lineage, Manifest, PackageFile, TokenizerSpec
from contracts.model import ModelRef
from contracts.rollout import RolloutSpec, WeightStep
from contracts.tasks import Task
from contracts.tensors import Datatype, TensorSpec
from registry.conversions.index import ConversionIndex, options_digest
from registry.conversions.messages import Conditions
from registry.mlflow.model_registry import RegisteredModel, RegisteredVersion
from registry.packages.store import PackageStore, digest

MODELS = 200
TENANTS = 20
INDEX_KEYS = (bytes(range(32)),)  # of the controller that is measured
TIMEOUT_SECONDS = 1.0  # of endpoints: windows are closed so long and 3 s after their end
_BUCKETS = (16, 32, 64, 128, 256, 512)
_BATCHES = (1, 2, 4, 8, 16, 32)
_LABELS = ("no", "yes")


@dataclass(frozen=True)
class Population:
    """So many endpoints, of which ``rollouts`` roll out a version that fails."""

    endpoints: int
    rollouts: int = 20
    rate: float = 0.3  # requests a second of each endpoint, and
    rate_of_rolling: float = 10.0  # those of one that rolls out beside them
    pools: int = 10  # of Tritons; a tenant's endpoints are in one
    fresh: bool = False  # rollouts begin when the controller does; else they are two hours old

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the registered models."""
        return tuple(f"model-{number:03d}" for number in range(min(MODELS, self.endpoints)))

    @property
    def usual_rate(self) -> float:
        """Requests a second that all endpoints share."""
        return self.rate * self.endpoints

    @property
    def rolling_rate(self) -> float:
        """Requests a second that those share that roll out."""
        return self.rate_of_rolling * len(self.rolling)

    @property
    def rolling(self) -> tuple[str, ...]:
        """Names of the endpoints that roll a version out."""
        return tuple(self.name(number) for number in range(min(self.rollouts, len(self.models))))

    def name(self, number: int) -> str:
        """An endpoint's name; a tenant's are together."""
        return f"tenant-{number % TENANTS:02d}-endpoint-{number:04d}"

    def model(self, number: int) -> str:
        """The registered model of an endpoint; several endpoints share one."""
        return self.models[number % len(self.models)]

    def pool(self, number: int) -> str:
        """Of Tritons, for an endpoint; those of one model are all in one."""
        return f"pool-{number % TENANTS * self.pools // TENANTS:02d}"

    def packages(self, pool: str, refs: Mapping[tuple[str, str], ModelRef]) -> tuple[ModelRef, ...]:
        """What the Tritons of a pool hold."""
        models = {model for number, model in enumerate(self.models) if self.pool(number) == pool}
        return tuple(ref for (model, _), ref in refs.items() if model in models)

    def spec(self, number: int) -> EndpointSpec:
        """What an endpoint asks for."""
        rolls = self.name(number) in self.rolling
        steps = (WeightStep(weight=50),)
        return EndpointSpec(
            model=self.model(number),
            pool=self.pool(number),
            limits=EndpointLimits(timeout_seconds=TIMEOUT_SECONDS),
            rollout=RolloutSpec(
                steps=steps,
                deadline=6 * 3600.0,
                bake=3600.0,
                alias=None,
                **({} if self.fresh else {"minimum_step": 3 * 3600.0}),
            ),
            **({} if rolls else {"version": PinnedVersion(pin="1")}),
        )

    def publish(self, folder: Path) -> dict[tuple[str, str], ModelRef]:
        """Publishes all packages and their index; by model and version."""
        store = PackageStore(store_url(folder))
        index = ConversionIndex(store_url(folder), store, INDEX_KEYS)
        source = folder / "source"
        source.mkdir(parents=True, exist_ok=True)
        (source / "tokenizer.json").write_text("{}")
        file = source / "tokenizer.json"
        files = {file.name: PackageFile(sha256=digest(file), bytes=file.stat().st_size)}
        refs = {
            (model, version): store.publish(source, _manifest(model, version, files))
            for model in self.models
            for version in ("1", "2")
        }
        known = registered(self.models)
        wanted = {
            options_digest(self.spec(number), version, Conditions()): refs[
                version.model, version.number
            ]
            for number in range(self.endpoints)
            for version in known[self.model(number)]
        }
        for options, ref in wanted.items():
            index.put(options, ref)
        return refs

    def stored(self, refs: Mapping[tuple[str, str], ModelRef]) -> list[ModelEndpoint]:
        """The endpoints, each serving its first version."""
        made = []
        for number in range(self.endpoints):
            ref = refs[self.model(number), "1"]
            status = EndpointStatus(
                generation=1,
                task=Task.TEXT_CLASSIFICATION,
                routes=(Route.all_callers(ref),),
                packages=(ref,),
                pool=self.pool(number),
            )
            metadata = Metadata(
                name=self.name(number),
                annotations={"headrace.dev/tenant": f"tenant-{number % TENANTS:02d}"},
            )
            made.append(ModelEndpoint(metadata=metadata, spec=self.spec(number), status=status))
        if not self.fresh and self.rolling:
            made[: len(self.rolling)] = self._age(made[: len(self.rolling)], refs)
        return made

    def _age(
        self, rolling: Sequence[ModelEndpoint], refs: Mapping[tuple[str, str], ModelRef]
    ) -> list[ModelEndpoint]:
        """These in the midst of their rollouts: the first one's past is that of all of them."""
        versions = registered(self.models)
        began = [_begun(each, refs, versions) for each in rolling]
        first, start = began[0], int(time.time()) - old_rollouts.SECONDS
        start -= start % old_rollouts.WINDOW_SECONDS
        old = old_rollouts.age(first, _refs(first), start, labels=_LABELS)
        text = old.status.model_dump_json()
        aged = []
        for each in began:
            status = text
            for there, here in zip(_words(first), _words(each), strict=True):
                status = status.replace(there, here)
            read = EndpointStatus.model_validate_json(status)
            aged.append(
                each.model_copy(
                    update={"status": read.model_copy(update={"pool": each.status.pool})}
                )
            )
        return aged


def _begun(
    endpoint: ModelEndpoint,
    refs: Mapping[tuple[str, str], ModelRef],
    versions: Mapping[str, tuple[RegisteredVersion, ...]],
) -> ModelEndpoint:
    """With the second version as its candidate, which every Triton holds."""
    model = endpoint.spec.model
    stable, ref = refs[model, "1"], refs[model, "2"]
    new = next(each for each in versions[model] if each.number == ref.version)
    candidate = Candidate(
        version=ref.version,
        phase=Phase.LOADED,
        ref=ref,
        options=options_digest(endpoint.spec, new, Conditions()),
    )
    status = endpoint.status.model_copy(update={"packages": (stable, ref), "candidate": candidate})
    return endpoint.model_copy(update={"status": status})


def _refs(endpoint: ModelEndpoint) -> tuple[ModelRef, ModelRef]:
    stable, candidate = endpoint.status.packages
    return stable, candidate


def _words(endpoint: ModelEndpoint) -> tuple[str, ...]:
    """What is an endpoint's own in its status."""
    candidate = endpoint.status.candidate
    assert candidate is not None
    packages = [ref.package for ref in endpoint.status.packages]
    shown = [package[:12] for package in packages]  # in Triton's names
    return (*packages, *shown, endpoint.spec.model, endpoint.name, candidate.options)


def refs_of(
    folder: Path, population: Population, numbers: Iterable[int]
) -> dict[str, tuple[ModelRef, ModelRef]]:
    """Stable version and candidate of these endpoints, by name, as ``refs.json`` has them."""
    known = json.loads((folder / "refs.json").read_text())
    refs = {(model, version): ModelRef(**ref) for model, version, ref in known}
    return {
        population.name(number): (
            refs[population.model(number), "1"],
            refs[population.model(number), "2"],
        )
        for number in numbers
    }


def store_url(folder: Path) -> str:
    """Of the packages."""
    return (folder / "packages").absolute().as_uri()


def registered(models: tuple[str, ...]) -> dict[str, tuple[RegisteredVersion, ...]]:
    """Two versions of each model, newest first."""
    return {
        model: tuple(
            RegisteredVersion(model=model, number=number, identity=f"{model}-{number}")
            for number in ("2", "1")
        )
        for model in models
    }


class SimulatedRegistry:
    """MLflow's registry in memory; an answer takes as long as a fast server's."""

    def __init__(self, models: tuple[str, ...], answer_seconds: float = 0.005) -> None:
        self._versions = registered(models)
        self._answer_seconds = answer_seconds
        self.calls = 0

    async def models(self) -> tuple[RegisteredModel, ...]:
        """See ``ModelRegistry``."""
        await self._answered()
        return tuple(RegisteredModel(name=name, changed=1) for name in self._versions)

    async def changed_models(self, since: int) -> tuple[RegisteredModel, ...]:
        """See ``ModelRegistry``."""
        return tuple(model for model in await self.models() if model.changed >= since)

    async def model(self, name: str) -> RegisteredModel | None:
        """See ``ModelRegistry``."""
        await self._answered()
        return RegisteredModel(name=name, changed=1) if name in self._versions else None

    async def versions(self, model: str) -> tuple[RegisteredVersion, ...]:
        """See ``ModelRegistry``."""
        await self._answered()
        return self._versions[model]

    async def set_tag(self, version: RegisteredVersion, key: str, value: str) -> None:
        """See ``ModelRegistry``."""
        del version, key, value
        await self._answered()

    async def set_alias(self, model: str, alias: str, number: str) -> None:
        """See ``ModelRegistry``."""
        del model, alias, number
        await self._answered()

    async def put(self, run_id: str, path: str, data: bytes) -> None:
        """See ``RunArtifacts``."""
        del run_id, path, data
        await self._answered()

    async def _answered(self) -> None:
        self.calls += 1
        await asyncio.sleep(self._answer_seconds)


def loaded(ref: ModelRef, seed: int) -> LoadedModel:
    """A package in Triton with a whole cost table."""
    return LoadedModel(
        ref=ref,
        costs=tuple(
            CostPoint(bucket=bucket, batch=batch, milliseconds=bucket * batch / (7.0 + seed % 13))
            for bucket in _BUCKETS
            for batch in _BATCHES
        ),
        instances=2,
        threads=1,
    )


def _manifest(model: str, version: str, files: dict[str, PackageFile]) -> Manifest:
    return Manifest(
        model=model,
        version=version,
        task=Task.TEXT_CLASSIFICATION,
        labels=_LABELS,
        precision=Precision.FP32,
        max_batch_size=32,
        length_buckets=_BUCKETS,
        tokenizer=TokenizerSpec(max_tokens=512, pad_id=0, vocabulary=10),
        inputs=(TensorSpec(name="input_ids", datatype=Datatype.INT64, shape=(-1, -1)),),
        outputs=(TensorSpec(name="logits", datatype=Datatype.FP32, shape=(-1, 2)),),
        files=files,
        lineage=Lineage(registered_model=model, version=version),
        created_by="bench",
    )
