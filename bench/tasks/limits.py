"""``python -P -m bench.tasks.limits``: how far fp16 and int8 of MiniLM are from fp32, task by task.

The network is all-MiniLM-L6-v2, converted to each precision; the heads behind it are fitted on the
fp32 network's token vectors (``heads.py``) and the same for all, in float32. Figures are those of a
conversion's parity report. Most of them come from the network; a trained head that is quantised as
well adds its own.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from bench import studies
from bench.peers import model as embeddings
from bench.tasks import heads
from bench.tasks.heads import Floats, States
from contracts.endpoint import Precision
from contracts.manifest import MODEL_ONNX, Parity
from contracts.tasks import Task
from preprocess.scores import class_scores
from registry.convert.parity.verify import broken_limit, compare

_PRECISIONS = (Precision.FP32, Precision.FP16, Precision.INT8)
_MEASURED = 96  # texts, and as many pairs
_FITTED = 120  # texts or pairs that heads are fitted on; they are others
_MOST_TOKENS = 256
_NON_ZERO = 0.005  # of the vocabulary: what a SPLADE model's weights are
_TABLE = "embeddings.word_embeddings.weight"


@dataclass(frozen=True)
class Vectors:
    """Token vectors of texts and of pairs, from one precision's network."""

    texts: list[Floats]
    pairs: list[Floats]


Outputs = Callable[[Vectors], Floats]


def main(words: Sequence[str] | None = None) -> int:
    """Measures, prints and writes the table of ``docs/models.md``."""
    parser = argparse.ArgumentParser(prog="python -P -m bench.tasks.limits", description=__doc__)
    parser.add_argument("--document", type=Path, help="markdown whose table is written")
    parser.add_argument(
        "--cache", type=Path, default=os.environ.get("HEADRACE_CACHE", "~/.cache/headrace")
    )
    options = parser.parse_args(words)
    cache = options.cache.expanduser()
    folders = {each: embeddings.prepare(cache, print, each).states for each in _PRECISIONS}
    text = table(measured(folders))
    print(text)
    if options.document is not None:
        document = options.document.read_text(encoding="utf-8")
        written = studies.written(document, {"limits": text}, "measured")
        options.document.write_text(written, encoding="utf-8")
    return 0


def measured(folders: dict[Precision, Path]) -> dict[Task, dict[Precision, Parity]]:
    """The figures of each task and precision, fp32's own left out."""
    networks = {
        each: States(folder, _MOST_TOKENS, half=each is Precision.FP16)
        for each, folder in folders.items()
    }
    words = _word_vectors(folders[Precision.FP32])
    outputs = _heads(networks[Precision.FP32], words)
    texts = heads.texts()[_FITTED : _FITTED + _MEASURED]
    pairs = heads.pairs(_FITTED + _MEASURED)[_FITTED:]
    found = {
        each: Vectors(network.of(texts)[1], network.of(pairs)[1])
        for each, network in networks.items()
    }
    return {
        task: {
            precision: compare(
                task,
                of(found[Precision.FP32]),
                of(found[precision]),
                precision=precision,
                reference="bench.tasks.limits",
                batch_difference=0.0,
                texts=_MEASURED,
            )
            for precision in _PRECISIONS[1:]
        }
        for task, of in outputs.items()
    }


def _heads(network: States, words: Floats) -> dict[Task, Outputs]:
    """What each task makes of token vectors."""
    texts, pairs = heads.texts()[:_FITTED], heads.pairs(_FITTED)
    of_texts, states = network.of(texts)
    of_pairs, both = network.of(pairs)
    tokens, first = np.concatenate(states), _firsts(both)
    labels = heads.fitted(tokens, heads.wanted_labels(texts, of_texts))
    answers = heads.fitted(np.concatenate(both), heads.wanted_answers(pairs, of_pairs))
    entails = heads.fitted(first, heads.entailed(pairs))
    shared = heads.fitted(first, heads.shared_words(pairs))
    known = heads.wanted_labels(texts, of_texts)[:, :1] < 0  # in one of the lists
    told = heads.fitted(tokens, known.astype(np.float32))
    least = np.quantile(np.concatenate([each @ words for each in states[:8]]), 1 - _NON_ZERO)
    return {
        Task.TOKEN_CLASSIFICATION: lambda of: class_scores(
            _linear(np.concatenate(of.texts), labels), multi_label=False
        ),
        Task.QUESTION_ANSWERING: lambda of: _linear(np.concatenate(of.pairs), answers),
        Task.ZERO_SHOT_CLASSIFICATION: lambda of: _linear(_firsts(of.pairs), entails),
        Task.TEXT_RANKING: lambda of: _linear(_firsts(of.pairs), shared),
        Task.SPARSE_EMBEDDING: lambda of: np.array(
            [np.log1p(np.maximum(each @ words - least, 0)).max(axis=0) for each in of.texts]
        ),
        Task.HYBRID_EMBEDDING: lambda of: np.hstack(
            [
                _unit(np.concatenate(of.texts)),
                np.maximum(_linear(np.concatenate(of.texts), told), 0),
            ]
        ),
    }


def _linear(vectors: Floats, head: Floats) -> Floats:
    logits: Floats = vectors @ head[:-1] + head[-1]
    return logits


def _firsts(states: Sequence[Floats]) -> Floats:
    """The vector of each text's first token."""
    return np.array([each[0] for each in states])


def _unit(vectors: Floats) -> Floats:
    lengths: Floats = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / lengths


def _word_vectors(folder: Path) -> Floats:
    """The network's table of tokens, ``[width, vocabulary]``."""
    graph = onnx.load(str(folder / MODEL_ONNX)).graph
    known = next(each for each in graph.initializer if each.name.endswith(_TABLE))
    vectors: Floats = numpy_helper.to_array(known).astype(np.float32).T
    return vectors


def table(found: dict[Task, dict[Precision, Parity]]) -> str:
    """A line for each task and precision: figures, with their limits in brackets."""
    lines = [
        "| task | | largest difference | mean difference | equal labels | least cosine | nearest |",
        "|---|---|---|---|---|---|---|",
    ]
    for task, of_precision in found.items():
        for precision, parity in of_precision.items():
            limits = parity.limits
            cells = [
                _cell(parity.max_abs_difference, limits.get("max_abs_difference")),
                _cell(parity.mean_abs_difference, limits.get("mean_abs_difference")),
                _cell(parity.equal_labels, limits.get("min_equal_labels")),
                _cell(parity.min_cosine, limits.get("min_cosine")),
                _cell(parity.neighbours, limits.get("min_neighbours")),
            ]
            broken = " **over**" if broken_limit(parity) else ""
            lines.append(f"| `{task}` | {precision}{broken} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(figure: float | None, limit: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:.2g}" if limit is None else f"{figure:.3g} ({limit:g})"


if __name__ == "__main__":
    raise SystemExit(main())
