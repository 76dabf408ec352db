"""What a conversion hands over gets into the package store only if it is what was asked for.

A conversion here is a function that does in its own folder what code of a version could do.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conversion_template import request
from registry_fakes import KEYS, manifest

from contracts.endpoint import EngineChoice, Precision, ServingOptions
from contracts.features import Feature, FeatureKind
from contracts.loading import DeviceKind
from contracts.manifest import (
    CODE,
    CONFIG_ONNXRUNTIME,
    CONFIG_PYTHON,
    DEVICE_PROOF,
    MODEL_CONFIG,
    MODEL_ONNX,
    TOKENIZER,
    WEIGHTS,
    EngineKind,
    FixedSpec,
    GenerationSpec,
    Lineage,
    PackageFile,
    PackedDense,
    PackedSpec,
    PyfuncSpec,
    TokenizerSpec,
    TokenRules,
)
from contracts.manifest import Manifest as PackageManifest
from contracts.model import ModelRef
from contracts.tasks import Task, packed_inputs
from contracts.tensors import Datatype, TensorSpec
from preprocess.buckets import automatic_buckets, row_buckets
from registry.conversions.index import signature
from registry.conversions.launcher import OnProgress
from registry.conversions.messages import ConversionFailure, ConversionRequest, PublishedPackage
from registry.conversions.publication import PublishingLauncher, altered_configs, refusal
from registry.conversions.staging import STAGING, StagingFolders, staging_url
from registry.mlflow.model_registry import RegisteredVersion
from registry.packages.store import PackageStore, digest
from registry.packages.triton_config import render, render_generation, render_packed
from registry.pyfunc.process import PyfuncLimits

VERSION = RegisteredVersion("m", "1", "created|s3://a|r", run_id="r", source="s3://a")
BUCKETS = (8,)
PACKED = {"serving": ServingOptions(max_batch_size=8, max_tokens=8, engine=EngineChoice.PACKED)}


class Conversion:
    """Code that runs as a conversion. ``told`` is all that it was asked."""

    def __init__(
        self, act: Callable[[ConversionRequest], PublishedPackage | ConversionFailure]
    ) -> None:
        self._act = act
        self.told: list[ConversionRequest] = []

    async def run(
        self,
        request: ConversionRequest,
        progress: OnProgress,
        *,
        python_path: tuple[Path, ...] = (),
    ) -> PublishedPackage | ConversionFailure:
        del progress, python_path
        self.told.append(request)
        return self._act(request)


class Packing:
    """Makes packages as conversion does, or otherwise where a test says so."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def manifest(self, **changes: Any) -> PackageManifest:
        return manifest().model_copy(
            update={
                "length_buckets": BUCKETS,
                "lineage": Lineage(registered_model="m", version="1", run_id="r", source="s3://a"),
                **changes,
            }
        )

    def write(
        self, made: PackageManifest, extra: dict[str, bytes] | None = None
    ) -> tuple[Path, PackageManifest]:
        """The files that go with a manifest, and the manifest that proves them."""
        self._folder.mkdir(exist_ok=True)
        python, native = render(
            inputs=made.inputs, outputs=made.outputs, max_batch_size=made.max_batch_size, threads=1
        )
        files = {CONFIG_PYTHON: python.encode(), **(extra or {})}
        if made.pyfunc is None:
            files = {MODEL_ONNX: b"graph", CONFIG_ONNXRUNTIME: native.encode(), **files}
        proofs = {}
        for name, data in files.items():
            (self._folder / name).write_bytes(data)
            proofs[name] = PackageFile(sha256=digest(self._folder / name), bytes=len(data))
        return self._folder, made.model_copy(update={"files": proofs})

    def publish(self, url: str, made: PackageManifest, **extra: bytes) -> PublishedPackage:
        named = {name.replace("__", "."): data for name, data in extra.items()}
        folder, proved = self.write(made, named)
        return PublishedPackage(ref=PackageStore(url, write_only=True).publish(folder, proved))


class Promoted:
    """A store, and launchers that publish there what conversions make."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = (folder / "store").as_uri()
        self.store = PackageStore(self.url)
        self.packing = Packing(folder / "made")
        self.registered: RegisteredVersion | None = VERSION

    def request(self, **changes: Any) -> ConversionRequest:
        serving = ServingOptions(max_batch_size=8, max_tokens=8)
        update = {"store_url": self.url, "serving": serving, **changes}
        return request().model_copy(update=update)

    async def run(
        self,
        act: Callable[[ConversionRequest], PublishedPackage | ConversionFailure],
        *,
        most_bytes: int = 1 << 20,
        **changes: Any,
    ) -> PublishedPackage | ConversionFailure:
        launcher = PublishingLauncher(
            Conversion(act),
            self.store,
            staging=StagingFolders(self.url, KEYS),
            keys=KEYS,
            registered=lambda _model, _number: self.registered,
            work_dir=self.folder / "work",
            most_bytes=most_bytes,
        )
        result = await launcher.run(self.request(**changes), lambda _: None)
        assert not list((self.folder / "work").glob("*"))
        assert not list((self.folder / "store" / STAGING).glob("*"))
        return result

    async def refused(
        self, made: PackageManifest, words: str, *, by_version: bool = True, **changes: Any
    ) -> None:
        """What a conversion publishes is refused, and is not in the store."""
        result = await self.run(
            lambda asked: self.packing.publish(asked.store_url, made), **changes
        )
        self.assert_refused(result, words, by_version=by_version)

    def assert_refused(
        self, result: PublishedPackage | ConversionFailure, words: str, *, by_version: bool = True
    ) -> None:
        assert isinstance(result, ConversionFailure)
        assert words in result.reason
        assert result.by_version == by_version
        assert self.store.packages() == []


@pytest.fixture
def promoted(tmp_path: Path) -> Promoted:
    return Promoted(tmp_path)


async def test_a_package_of_that_version_is_published_whole(
    promoted: Promoted, tmp_path: Path
) -> None:
    made = promoted.packing.manifest()
    result = await promoted.run(lambda asked: promoted.packing.publish(asked.store_url, made))
    assert isinstance(result, PublishedPackage)
    assert promoted.store.packages() == [result.ref.package]
    assert promoted.store.fetch(result.ref.package, tmp_path / "got").ref() == result.ref


async def test_a_failure_is_told_as_it_is(promoted: Promoted) -> None:
    failure = ConversionFailure(reason="a strange graph", by_version=True)
    assert await promoted.run(lambda _: failure) == failure


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "of-another-team"},
        {"version": "2"},
        {"lineage": Lineage(registered_model="of-another-team", version="1")},
        {"lineage": Lineage(registered_model="m", version="2", run_id="r", source="s3://a")},
    ],
)
async def test_a_package_of_another_model_or_version_is_refused(
    promoted: Promoted, changes: dict[str, Any]
) -> None:
    await promoted.refused(promoted.packing.manifest(**changes), "it is of version")


async def test_a_result_that_names_another_version_is_refused(promoted: Promoted) -> None:
    """The package is its own, and the line says that it is another team's."""

    def act(asked: ConversionRequest) -> PublishedPackage:
        ref = promoted.packing.publish(asked.store_url, promoted.packing.manifest()).ref
        return PublishedPackage(ref=ModelRef(model="theirs", version="1", package=ref.package))

    promoted.assert_refused(await promoted.run(act), "it is of version")


@pytest.mark.parametrize("registered", [{"run_id": "other"}, {"source": "s3://b"}])
async def test_a_lineage_that_mlflow_does_not_know_is_refused(
    promoted: Promoted, registered: dict[str, Any]
) -> None:
    promoted.registered = dataclasses.replace(VERSION, **registered)
    await promoted.refused(promoted.packing.manifest(), "lineage")


async def test_a_version_that_is_gone_from_mlflow_blames_nobody(promoted: Promoted) -> None:
    promoted.registered = None
    await promoted.refused(promoted.packing.manifest(), "MLflow", by_version=False)


@pytest.mark.parametrize(
    ("made", "asked", "words"),
    [
        ({}, {"task": Task.TEXT_EMBEDDING}, "its task"),
        ({"max_batch_size": 4}, {}, "4 texts"),
        (
            {"precision": Precision.FP16},
            {"serving": ServingOptions(max_batch_size=8, max_tokens=8, precision=Precision.INT8)},
            "fp16",
        ),
        ({"length_buckets": (1, 2, 8)}, {}, "length buckets"),
        (
            {},
            {"serving": ServingOptions(max_batch_size=8, max_tokens=8, length_buckets=(3,))},
            "buckets",
        ),
        ({"has_code": True}, {}, CODE),
    ],
)
async def test_what_was_not_asked_for_is_refused(
    promoted: Promoted, made: dict[str, Any], asked: dict[str, Any], words: str
) -> None:
    await promoted.refused(promoted.packing.manifest(**made), words, **asked)


async def test_what_callers_rely_on_is_held_by_the_controller_too(promoted: Promoted) -> None:
    stable = signature(manifest(labels=("no", "maybe")))
    await promoted.refused(promoted.packing.manifest(), "labels", stable=stable)


async def test_more_tokens_than_were_asked_for_are_refused(promoted: Promoted) -> None:
    tokenizer = manifest().tokenizer.model_copy(update={"max_tokens": 32768})
    made = promoted.packing.manifest(tokenizer=tokenizer, length_buckets=(32768,))
    await promoted.refused(made, "32768 tokens")


@pytest.mark.parametrize("allowed", [False, True])
async def test_code_for_gateways_needs_the_operators_consent(
    promoted: Promoted, *, allowed: bool
) -> None:
    made = promoted.packing.manifest(has_code=True)
    result = await promoted.run(
        lambda asked: promoted.packing.publish(asked.store_url, made, code__zip=b"code"),
        model_code=allowed,
    )
    assert isinstance(result, PublishedPackage if allowed else ConversionFailure)


def pyfunc_of(promoted: Promoted, **changes: Any) -> PackageManifest:
    """As an honest conversion of a pyfunc with two features says."""
    features = tuple(Feature(name=name, kind=FeatureKind.NUMBER) for name in ("a", "b"))
    made = promoted.packing.manifest(
        task=Task.TABULAR_REGRESSION,
        labels=(),
        dimension=1,
        features=features,
        tokenizer=TokenizerSpec(max_tokens=4, pad_id=0, vocabulary=0),
        length_buckets=(4,),
        inputs=(TensorSpec(name="features", datatype=Datatype.FP64, shape=(-1, 2)),),
        outputs=(TensorSpec(name="values", datatype=Datatype.FP32, shape=(-1, 1)),),
        pyfunc=PyfuncSpec(python="3.11", example=(1.0, 2.0), model_bytes=1, site_bytes=1),
    )
    return made.model_copy(update=changes)


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_pyfunc_needs_the_operators_consent(promoted: Promoted, *, allowed: bool) -> None:
    made = pyfunc_of(promoted)
    result = await promoted.run(
        lambda asked: promoted.packing.publish(asked.store_url, made, pyfunc__zip=b"code"),
        pyfunc=PyfuncLimits() if allowed else None,
    )
    if allowed:
        assert isinstance(result, PublishedPackage)
    else:
        promoted.assert_refused(result, "which the operator does not allow")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"features": ()}, "what a row is"),
        (
            {"pyfunc": PyfuncSpec(python="3.11", example=(1.0,), model_bytes=1, site_bytes=1)},
            "what a row is",
        ),
        ({"has_code": True}, "more than a pyfunc"),
        ({"generation": GenerationSpec()}, "more than a pyfunc"),
    ],
)
async def test_a_pyfunc_is_of_tables_and_nothing_more(
    promoted: Promoted, changes: dict[str, Any], reason: str
) -> None:
    made = pyfunc_of(promoted, **changes)
    if not made.features:
        made = made.model_copy(
            update={"length_buckets": BUCKETS, "tokenizer": manifest().tokenizer}
        )
    result = await promoted.run(
        lambda asked: promoted.packing.publish(asked.store_url, made, pyfunc__zip=b"code"),
        pyfunc=PyfuncLimits(),
    )
    promoted.assert_refused(result, reason)


@pytest.mark.parametrize("extra", ["model__onnx", "code__zip", "model__py"])
async def test_a_pyfunc_brings_its_archive_and_no_other_file(
    promoted: Promoted, extra: str
) -> None:
    made = pyfunc_of(promoted)
    result = await promoted.run(
        lambda asked: promoted.packing.publish(
            asked.store_url, made, pyfunc__zip=b"code", **{extra: b"more"}
        ),
        pyfunc=PyfuncLimits(),
    )
    promoted.assert_refused(result, "its files are")


async def test_an_archive_without_the_manifests_word_is_refused(promoted: Promoted) -> None:
    made = promoted.packing.manifest()
    result = await promoted.run(
        lambda asked: promoted.packing.publish(asked.store_url, made, pyfunc__zip=b"code"),
        pyfunc=PyfuncLimits(),
    )
    promoted.assert_refused(result, "its files are")


async def test_a_configuration_that_tells_triton_to_run_something_else_is_refused(
    promoted: Promoted,
) -> None:
    config = b'backend: "python"\nparameters {key: "EXECUTION_ENV_PATH"}'

    def act(asked: ConversionRequest) -> PublishedPackage:
        url, made = asked.store_url, promoted.packing.manifest()
        return promoted.packing.publish(url, made, config__python__pbtxt=config)

    promoted.assert_refused(await promoted.run(act), CONFIG_PYTHON, by_version=False)


async def test_a_file_that_no_package_has_is_refused(promoted: Promoted) -> None:
    made = promoted.packing.manifest()
    result = await promoted.run(
        lambda asked: promoted.packing.publish(asked.store_url, made, model__py=b"import os")
    )
    promoted.assert_refused(result, "model.py")


def test_triton_keeps_to_the_rules_of_the_manifest(promoted: Promoted, tmp_path: Path) -> None:
    kept = GenerationSpec(start_id=2, rules=TokenRules(forced_bos_token_id=0))
    for written, reason in ((kept, ""), (GenerationSpec(start_id=2), CONFIG_PYTHON)):
        text = render_generation(context=8, rows=8, threads=1, generation=written)
        (tmp_path / CONFIG_PYTHON).write_text(text)
        file = PackageFile(sha256=digest(tmp_path / CONFIG_PYTHON), bytes=len(text))
        made = promoted.packing.manifest(generation=kept, files={CONFIG_PYTHON: file})
        assert (made.tokenizer.max_tokens, made.max_batch_size) == (8, 8)
        found = altered_configs(made, tmp_path, threads=1)
        assert (reason in found) if reason else not found


async def test_an_encoder_belongs_to_a_model_that_begins_with_a_token(promoted: Promoted) -> None:
    made = promoted.packing.manifest()
    result = await promoted.run(
        lambda asked: promoted.packing.publish(asked.store_url, made, encoder__onnx=b"graph")
    )
    promoted.assert_refused(result, "encoder.onnx")


async def test_a_file_name_that_leads_out_of_the_folder_is_refused(
    promoted: Promoted, tmp_path: Path
) -> None:
    """By it a package would write an entry of the index, or any file of a loader."""

    def act(asked: ConversionRequest) -> PublishedPackage:
        folder, proved = promoted.packing.write(promoted.packing.manifest())
        proof = PackageFile(sha256=digest(folder / MODEL_ONNX), bytes=5)
        escaping = proved.model_copy(update={"files": {**proved.files, "../../../evil": proof}})
        base = Path(asked.store_url.removeprefix("file://")) / escaping.package_id()
        base.mkdir(parents=True)
        for name in proved.files:
            (base / name).write_bytes((folder / name).read_bytes())
        (base / "manifest.json").write_bytes(escaping.canonical())
        (tmp_path / "store" / "evil").write_bytes(b"graph")
        return PublishedPackage(ref=escaping.ref())

    promoted.assert_refused(await promoted.run(act), "names files", by_version=False)


async def test_files_that_are_not_what_the_manifest_says_are_refused(promoted: Promoted) -> None:
    def act(asked: ConversionRequest) -> PublishedPackage:
        result = promoted.packing.publish(asked.store_url, promoted.packing.manifest())
        folder = Path(asked.store_url.removeprefix("file://"))
        (folder / result.ref.package / MODEL_ONNX).write_bytes(b"other")
        return result

    promoted.assert_refused(await promoted.run(act), MODEL_ONNX, by_version=False)


async def test_a_package_larger_than_the_controller_takes_is_refused(promoted: Promoted) -> None:
    made = promoted.packing.manifest()
    result = await promoted.run(
        lambda asked: promoted.packing.publish(asked.store_url, made), most_bytes=10
    )
    promoted.assert_refused(result, "more than it may", by_version=False)


async def test_a_package_that_lies_elsewhere_is_not_taken(promoted: Promoted) -> None:
    """It writes into the folder of another conversion, or past staging, and names that."""
    made = promoted.packing.manifest()
    elsewhere = f"{promoted.url}/{STAGING}/of-another"

    def act(asked: ConversionRequest) -> PublishedPackage:
        assert asked.store_url != elsewhere
        return promoted.packing.publish(elsewhere, made)

    launcher = PublishingLauncher(
        Conversion(act),
        promoted.store,
        staging=StagingFolders(promoted.url, KEYS),
        keys=KEYS,
        registered=lambda _model, _number: VERSION,
        work_dir=promoted.folder / "work",
    )
    result = await launcher.run(promoted.request(), lambda _: None)
    promoted.assert_refused(result, "holds no package", by_version=False)


async def test_the_folder_of_one_version_does_not_tell_anothers(promoted: Promoted) -> None:
    first = promoted.request()
    second = first.model_copy(update={"version": "2"})
    url = staging_url(first, KEYS[0])
    assert url.startswith(f"{promoted.url}/{STAGING}/")
    # The same after a restart, so that a Job that goes on is found again; no other by its own.
    assert url == staging_url(first.model_copy(update={"work_dir": "/work"}), KEYS[0])
    assert len({url, staging_url(second, KEYS[0]), staging_url(first, b"other key" * 4)}) == 3


async def test_what_a_killed_controller_left_is_removed(promoted: Promoted) -> None:
    left = promoted.folder / "work" / "publication-x"
    left.mkdir(parents=True)
    launcher = PublishingLauncher(
        Conversion(lambda _: ConversionFailure(reason="", by_version=True)),
        promoted.store,
        staging=StagingFolders(promoted.url, KEYS),
        keys=KEYS,
        registered=lambda _model, _number: VERSION,
        work_dir=promoted.folder / "work",
    )
    launcher.clean()
    assert not left.exists()


def packed_of(promoted: Promoted, **changes: Any) -> tuple[PackageManifest, dict[str, bytes]]:
    """A package of a packed engine as conversion makes it, and its files; ``changes`` are of it."""
    spec = PackedSpec(
        loader="AutoModel",
        type_ids=True,
        modes=("mean",),
        dense=(PackedDense(file="dense-0.safetensors", activation="Tanh"),),
    )
    made = promoted.packing.manifest(
        **{
            "task": Task.TEXT_EMBEDDING,
            "labels": (),
            "dimension": 4,
            "precision": Precision.FP16,
            "engine": EngineKind.PACKED,
            "packed": spec,
            "inputs": packed_inputs(type_ids=True),
            "outputs": (TensorSpec(name="embedding", datatype=Datatype.FP32, shape=(-1, 4)),),
            **changes,
        }
    )
    config = render_packed(task=Task.TEXT_EMBEDDING, width=4, type_ids=True, threads=1)
    names = (WEIGHTS, MODEL_CONFIG, DEVICE_PROOF, TOKENIZER, "dense-0.safetensors")
    return made, {**dict.fromkeys(names, b"x"), CONFIG_PYTHON: config.encode()}


def refused_packed(
    promoted: Promoted, made: PackageManifest, files: dict[str, bytes], **asked: Any
) -> str:
    """Why the controller refuses it; empty if it takes it."""
    folder = promoted.folder / "packed"
    folder.mkdir()
    proofs = {}
    for name, data in files.items():
        (folder / name).write_bytes(data)
        proofs[name] = PackageFile(sha256=digest(folder / name), bytes=len(data))
    made = made.model_copy(update={"files": proofs})
    usual = {"device": DeviceKind.GPU, "serving": ServingOptions(max_batch_size=8, max_tokens=8)}
    told = request().model_copy(update={**usual, **asked})
    return refusal(made, made.ref(), told, VERSION) or altered_configs(made, folder, told.threads)


def test_a_packed_engine_is_taken_in_pools_of_gpus_and_where_it_was_asked_for(
    promoted: Promoted,
) -> None:
    assert refused_packed(promoted, *packed_of(promoted)) == ""


@pytest.mark.parametrize(
    ("changes", "asked", "words"),
    [
        ({}, {"device": DeviceKind.CPU}, "packed, which nobody asked for"),
        ({"engine": EngineKind.PADDED}, {}, "two different things of its engine"),
        ({"packed": None, "engine": EngineKind.PADDED}, PACKED, "packed was asked for"),
        ({"packed": PackedSpec(loader="pipeline", type_ids=True)}, {}, "loaded by 'pipeline'"),
        ({"inputs": packed_inputs(type_ids=False)}, {}, "its tensors are not"),
        ({"packed": PackedSpec(loader="AutoModel", type_ids=True)}, {}, "its files are"),
        (
            {
                "packed": PackedSpec(
                    loader="AutoModel",
                    type_ids=True,
                    dense=(PackedDense(file="model.safetensors", activation=""),),
                )
            },
            {},
            "its layers after pooling are not",
        ),
        ({"generation": GenerationSpec()}, {}, "more than a packed engine"),
    ],
)
def test_a_packed_engine_that_is_not_what_was_asked_for_is_refused(
    promoted: Promoted, changes: dict[str, Any], asked: dict[str, Any], words: str
) -> None:
    assert words in refused_packed(promoted, *packed_of(promoted, **changes), **asked)


def test_a_packed_engine_runs_by_the_configuration_of_this_release(promoted: Promoted) -> None:
    made, files = packed_of(promoted)
    files[CONFIG_PYTHON] += b"\n"
    assert "is not what this release writes" in refused_packed(promoted, made, files)


@pytest.mark.parametrize("name", [WEIGHTS, MODEL_CONFIG, DEVICE_PROOF])
def test_a_packed_engine_brings_all_its_files(promoted: Promoted, name: str) -> None:
    made, files = packed_of(promoted)
    del files[name]
    assert "its files are" in refused_packed(promoted, made, files)


def fixed_of(promoted: Promoted, **changes: Any) -> tuple[PackageManifest, dict[str, bytes]]:
    """A package of a fused graph as conversion makes it, and its files; ``changes`` are of it."""
    lengths = automatic_buckets(8)
    made = promoted.packing.manifest(
        **{
            "precision": Precision.FP16,
            "fixed": FixedSpec(rows=row_buckets(8, lengths), fused={"Attention": 2}),
            "length_buckets": lengths,
            **changes,
        }
    )
    config, _ = render(inputs=made.inputs, outputs=made.outputs, max_batch_size=8, threads=1)
    names = (MODEL_ONNX, DEVICE_PROOF, TOKENIZER)
    return made, {**dict.fromkeys(names, b"x"), CONFIG_PYTHON: config.encode()}


def test_a_fused_graph_is_taken_in_pools_of_gpus(promoted: Promoted) -> None:
    assert refused_packed(promoted, *fixed_of(promoted)) == ""


@pytest.mark.parametrize(
    ("changes", "asked", "words"),
    [
        ({}, {"device": DeviceKind.CPU}, "fixed shapes, which only pools of GPUs get"),
        ({"fixed": None}, {}, "its files are"),
        (
            {"fixed": FixedSpec(rows=tuple(range(1, 9)), fused={})},
            {},
            "nobody asked for its numbers of rows",
        ),
        ({"generation": GenerationSpec()}, {}, "more than a graph in fixed shapes"),
    ],
)
def test_a_fused_graph_that_is_not_what_was_asked_for_is_refused(
    promoted: Promoted, changes: dict[str, Any], asked: dict[str, Any], words: str
) -> None:
    assert words in refused_packed(promoted, *fixed_of(promoted, **changes), **asked)
