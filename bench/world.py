"""A home folder with one endpoint and one package: all that a gateway needs without a Triton.

Suites that measure the gateway alone call ``lay_out``. The package holds the example's tokeniser
and no model, since the engines of those suites compute nothing.
"""

from pathlib import Path

from bench import corpus
from contracts.endpoint import (
    AnswerCache,
    Arm,
    EndpointSpec,
    EndpointStatus,
    Limits,
    Metadata,
    ModelEndpoint,
    Precision,
    Route,
    Serving,
)
from contracts.manifest import TOKENIZER, Lineage, Manifest, PackageFile, TokenizerSpec
from contracts.model import ModelRef
from contracts.rollout import RolloutSpec
from contracts.tasks import ATTENTION_MASK, ENGINE_OUTPUT, INPUT_IDS, Task
from contracts.tensors import Datatype, TensorSpec
from preprocess.buckets import automatic_buckets
from registry.packages.store import PackageStore, digest

ENDPOINT = "bench"
PATH = f"/endpoints/{ENDPOINT}"
_MAX_TOKENS = 512
_A_DAY = 86400.0  # longer than any run
_LABELS = ("negative", "positive")


def lay_out(
    home: Path,
    limits: Limits,
    *,
    shadow: bool = False,
    task: Task = Task.TEXT_CLASSIFICATION,
    cache: AnswerCache | None = None,
) -> None:
    """Publishes the package and writes the endpoint that routes everything to it.

    With ``shadow`` there is a version 2 as well, which gets copies of all requests.
    """
    one = _publish(home, "1", task)
    routes = [Route(arm=Arm.STABLE, ref=one, weight=100)]
    if shadow:
        routes.append(Route(arm=Arm.SHADOW, ref=_publish(home, "2", task), weight=100))
    endpoint = ModelEndpoint(
        metadata=Metadata(name=ENDPOINT, revision="1"),
        # No controller runs here, and copies are sent all the same.
        spec=EndpointSpec(
            model=ENDPOINT,
            limits=limits,
            rollout=RolloutSpec(controller_timeout=_A_DAY),
            serving=Serving(cache=cache),
        ),
        status=EndpointStatus(
            generation=1,
            task=task,
            routes=tuple(routes),
            packages=tuple(route.ref for route in routes),
        ),
    )
    folder = home / "endpoints"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{ENDPOINT}.json").write_text(
        endpoint.model_dump_json(by_alias=True), encoding="utf-8"
    )


def _publish(home: Path, version: str, task: Task) -> ModelRef:
    """A package that no engine computes."""
    source = corpus.folder() / "model" / "tokenizer.json"
    known = corpus.tokenizer()
    embeds = task is Task.TEXT_EMBEDDING
    manifest = Manifest(
        model=ENDPOINT,
        version=version,
        task=task,
        labels=() if embeds else _LABELS,
        dimension=len(_LABELS) if embeds else None,
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
                name=ENGINE_OUTPUT[task].name,
                datatype=Datatype.FP32,
                shape=(-1, len(_LABELS)),
            ),
        ),
        files={TOKENIZER: PackageFile(sha256=digest(source), bytes=source.stat().st_size)},
        lineage=Lineage(registered_model=ENDPOINT, version=version),
        created_by="bench",
    )
    store = PackageStore((home / "packages").absolute().as_uri())
    return store.publish(source.parent, manifest)
