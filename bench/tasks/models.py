"""The two models that are served: a cross-encoder and one that labels tokens, on MiniLM's body.

Each is the int8 graph of the race's package up to its token vectors, as conversion makes it, with a
fitted head (``heads.py``) behind it: what ms-marco-MiniLM-L-6 and a tagger of that size compute.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.peers import model as embeddings
from bench.peers.model import MODEL, Prepared
from bench.tasks import heads
from bench.tasks.heads import Floats, States
from contracts.endpoint import Precision
from contracts.manifest import MODEL_ONNX, TOKENIZER, Lineage, Manifest
from contracts.tasks import ENGINE_OUTPUT, Task
from registry.convert import package
from registry.convert.graph import engine_form
from registry.packages.store import PackageStore

DOCUMENTS = 200  # of a query
_FITTED_TEXTS = 150
_FITTED_PAIRS = 300
_STATES = "last_hidden_state"
_RANKS = Task.TEXT_RANKING


def queries(count: int) -> list[tuple[str, list[str]]]:
    """Queries, the beginnings of texts, each with its documents."""
    known = heads.texts()
    return [
        (
            heads.query_of(known[-1 - at]),
            [known[(at * DOCUMENTS + each) % len(known)] for each in range(DOCUMENTS)],
        )
        for at in range(count)
    ]


def prepare(cache: Path, say: Callable[[str], None], task: Task) -> Prepared:
    """A model as a package, out of the cache or made now."""
    base = embeddings.prepare(cache, say, Precision.INT8)
    digest = hashlib.sha256(
        b"".join(Path(name).read_bytes() for name in (__file__, heads.__file__))
        + base.folder.name.encode()
    ).hexdigest()[:12]
    prepared = Prepared(cache / f"tasks-model-{task}-{digest}")
    if prepared.folder.is_dir():
        return prepared
    say(f"Making the package for {task}, once")
    with tempfile.TemporaryDirectory(dir=cache, prefix=".tasks-model-") as aside:
        _make(base, Prepared(Path(aside) / "made"), task)
        (Path(aside) / "made").rename(prepared.folder)
    return prepared


def _make(base: Prepared, made: Prepared, task: Task) -> None:
    tokenizer = base.manifest.tokenizer
    states = States(base.states, tokenizer.max_tokens)
    ranks = task is _RANKS
    labels = ("relevant",) if ranks else ("O", *heads.LABELS)
    if ranks:
        rows = heads.pairs(_FITTED_PAIRS)
        _, vectors = states.of(rows)
        first = np.array([each[0] for each in vectors])
        head = heads.fitted(first, heads.shared_words(rows))
    else:
        texts = heads.texts()[:_FITTED_TEXTS]
        encodings, vectors = states.of(texts)
        head = heads.fitted(np.concatenate(vectors), heads.wanted_labels(texts, encodings))
    graph = onnx.load(str(base.states / MODEL_ONNX))
    _append(graph, head, ranks=ranks)
    folder = made.folder / "package"
    folder.mkdir(parents=True)
    onnx.save(graph, str(folder / MODEL_ONNX))
    shutil.copy(base.package / TOKENIZER, folder)
    output = ENGINE_OUTPUT[task]
    specs = (output.model_copy(update={"shape": (*output.shape[:-1], len(labels))}),)
    inputs = engine_form.inputs_of(graph)
    rows_a_batch = base.manifest.max_batch_size
    package.write_configs(
        folder, inputs=inputs, outputs=specs, max_batch_size=rows_a_batch, threads=1
    )
    manifest = Manifest(
        model=MODEL,
        version="1",
        task=task,
        labels=labels,
        precision=Precision.INT8,
        max_batch_size=rows_a_batch,
        length_buckets=base.manifest.length_buckets,
        tokenizer=tokenizer,
        inputs=inputs,
        outputs=specs,
        files=package.proofs(folder),
        lineage=Lineage(registered_model=MODEL, version="1"),
        created_by="bench.tasks",
    )
    made.store.mkdir()
    PackageStore(made.store.absolute().as_uri()).publish(folder, manifest)
    _for_pipelines(base, made, labels, ranks=ranks)


def _append(graph: onnx.ModelProto, head: Floats, *, ranks: bool) -> None:
    """A linear layer behind the token vectors; where pairs are ranked, of the first one alone."""
    nodes, source = graph.graph.node, _STATES
    graph.graph.initializer.extend(
        [
            numpy_helper.from_array(head[:-1], "head.weight"),
            numpy_helper.from_array(head[-1], "head.bias"),
        ]
    )
    if ranks:
        graph.graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), "first"))
        nodes.append(helper.make_node("Gather", [_STATES, "first"], ["pooled"], axis=1))
        source = "pooled"
    nodes.append(helper.make_node("MatMul", [source, "head.weight"], ["weighted"]))
    nodes.append(helper.make_node("Add", ["weighted", "head.bias"], ["logits"]))
    del graph.graph.output[:]
    shape = ["batch", *([] if ranks else ["length"]), head.shape[1]]
    graph.graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape))


def _for_pipelines(base: Prepared, made: Prepared, labels: tuple[str, ...], *, ranks: bool) -> None:
    """A folder as transformers reads it, with the package's graph."""
    made.states.mkdir()
    for name in ("tokenizer_config.json", "special_tokens_map.json", TOKENIZER):
        shutil.copy(base.states / name, made.states)
    config = json.loads((base.states / "config.json").read_text(encoding="utf-8"))
    kind = "BertForSequenceClassification" if ranks else "BertForTokenClassification"
    config |= {
        "architectures": [kind],
        "id2label": dict(enumerate(labels)),
        "label2id": {label: at for at, label in enumerate(labels)},
    }
    (made.states / "config.json").write_text(json.dumps(config), encoding="utf-8")
    target = Path("..") / made.package.relative_to(made.folder) / MODEL_ONNX
    (made.states / MODEL_ONNX).symlink_to(target)
