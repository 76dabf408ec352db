"""A home folder with one endpoint and one package: all that a gateway needs without a Triton.

The package holds the example's tokeniser and no model, since an echo computes nothing.
"""

from pathlib import Path

from bench import corpus
from contracts.endpoint import (
    Arm,
    EndpointLimits,
    EndpointSpec,
    EndpointStatus,
    Metadata,
    ModelEndpoint,
    Precision,
    Route,
)
from contracts.manifest import TOKENIZER, Lineage, Manifest, PackageFile, TokenizerSpec
from contracts.model import ModelRef
from contracts.rollout import RolloutSpec
from contracts.tasks import ATTENTION_MASK, ENGINE_OUTPUT, INPUT_IDS, Task
from contracts.tensors import Datatype, TensorSpec
from preprocess.buckets import automatic_buckets
from registry.packages.store import PackageStore, digest
from registry.stores.endpoints import FileEndpointStore

ENDPOINT = "bench"
PATH = f"/endpoints/{ENDPOINT}"
_MAX_TOKENS = 512
_A_DAY = 86400.0  # longer than any run
_VERSION = "1"
_TASK = Task.TEXT_CLASSIFICATION
_LABELS = ("negative", "positive")


def lay_out(home: Path, limits: EndpointLimits) -> None:
    """Publishes the package and writes the endpoint that routes everything to it."""
    folder = home / "endpoints"
    folder.mkdir(parents=True, exist_ok=True)
    FileEndpointStore(folder).put(endpoint(_publish(home), _TASK, limits))


def endpoint(ref: ModelRef, task: Task, limits: EndpointLimits) -> ModelEndpoint:
    """One that is named as its model, and routes everything to one package."""
    return ModelEndpoint(
        metadata=Metadata(name=ref.model),
        # No controller runs here, and copies are sent all the same.
        spec=EndpointSpec(
            model=ref.model, limits=limits, rollout=RolloutSpec(controller_timeout=_A_DAY)
        ),
        status=EndpointStatus(
            generation=1,
            task=task,
            routes=(Route(arm=Arm.STABLE, ref=ref, weight=100),),
            packages=(ref,),
        ),
    )


def _publish(home: Path) -> ModelRef:
    """A package that no engine computes."""
    source = corpus.folder() / "model" / "tokenizer.json"
    known = corpus.tokenizer()
    manifest = Manifest(
        model=ENDPOINT,
        version=_VERSION,
        task=_TASK,
        labels=_LABELS,
        precision=Precision.FP32,
        max_batch_size=64,
        length_buckets=automatic_buckets(_MAX_TOKENS),
        tokenizer=TokenizerSpec(
            max_tokens=_MAX_TOKENS,
            pad_id=known.token_to_id("[PAD]"),
            unk_id=known.token_to_id("[UNK]"),
            vocabulary=known.get_vocab_size(),
        ),
        inputs=tuple(
            TensorSpec(name=name, datatype=Datatype.INT64, shape=(-1, -1))
            for name in (INPUT_IDS, ATTENTION_MASK)
        ),
        outputs=(
            TensorSpec(
                name=ENGINE_OUTPUT[_TASK].name, datatype=Datatype.FP32, shape=(-1, len(_LABELS))
            ),
        ),
        files={TOKENIZER: PackageFile(sha256=digest(source), bytes=source.stat().st_size)},
        lineage=Lineage(registered_model=ENDPOINT, version=_VERSION),
        created_by="bench",
    )
    store = PackageStore((home / "packages").absolute().as_uri())
    return store.publish(source.parent, manifest)
