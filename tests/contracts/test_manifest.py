"""A package's id is a function of what is in it, and of nothing else."""

import pytest
from pydantic import ValidationError

from contracts.endpoint import Precision
from contracts.manifest import (
    Lineage,
    Manifest,
    PackageFile,
    TokenizerSpec,
)
from contracts.tasks import Task
from contracts.tensors import Datatype, TensorSpec


def manifest(digest: str = "ab" * 32) -> Manifest:
    return Manifest(
        model="m",
        version="1",
        task=Task.TEXT_CLASSIFICATION,
        labels=("negative", "positive"),
        precision=Precision.FP32,
        max_batch_size=8,
        length_buckets=(16, 32),
        tokenizer=TokenizerSpec(max_tokens=32, pad_id=0, unk_id=1, vocabulary=10),
        inputs=(TensorSpec(name="input_ids", datatype=Datatype.INT64, shape=(-1, -1)),),
        outputs=(TensorSpec(name="logits", datatype=Datatype.FP32, shape=(-1, 2)),),
        files={"model.onnx": PackageFile(sha256=digest, bytes=3)},
        lineage=Lineage(registered_model="m", version="1"),
        created_by="headrace 0.1.0",
    )


def test_another_file_is_another_package() -> None:
    assert manifest("cd" * 32).package_id() != manifest().package_id()


def test_the_id_survives_storing_and_reading() -> None:
    stored = manifest().canonical()
    assert Manifest.model_validate_json(stored).package_id() == manifest().package_id()


def test_the_reference_names_model_version_and_package() -> None:
    ref = manifest().ref()
    assert (ref.model, ref.version, ref.package) == ("m", "1", manifest().package_id())
    assert ref.space == ""


def test_the_reference_names_the_space_of_the_vectors() -> None:
    made = manifest().model_copy(update={"space": "0123456789ab"})
    assert Manifest.model_validate_json(made.canonical()).ref() == made.ref()
    assert (made.ref().space, made.package_id() == manifest().package_id()) == (made.space, False)


@pytest.mark.parametrize("space", ["0123456789aB", "0123456789a", "0123456789abc", "x\n"])
def test_a_space_that_no_header_could_hold_is_refused(space: str) -> None:
    with pytest.raises(ValidationError, match="space"):
        Manifest.model_validate_json(manifest().model_copy(update={"space": space}).canonical())
