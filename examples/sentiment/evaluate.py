"""Says how good the committed model is, a domain at a time, and shows that its export is true.

Run by a person and in tests; needs onnxruntime and tokenizers, and torch for ``--verify`` alone.

    python examples/sentiment/evaluate.py --archive vaderSentiment-3.3.2.tar.gz
    python examples/sentiment/evaluate.py --archive ... --verify build/sentiment

With ``--verify FOLDER`` the logits of ``model.onnx`` are compared, over every test text, with those
of the PyTorch weights in that folder (``train.py`` writes it). It writes ``--write FILE`` alone.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from corpus import SEEN, Domain, RatedText, Split, passages, read
from numpy.typing import NDArray
from tokenizers import Tokenizer

HERE = Path(__file__).parent
LABELS = ("negative", "positive")
TOLERANCE = 1e-4


def main() -> int:
    """Prints a table; returns 1 if the export strays from the original."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--archive", type=Path, required=True, help="vaderSentiment-3.3.2.tar.gz")
    parser.add_argument("--model", type=Path, default=HERE / "model", help="folder of the model")
    parser.add_argument("--verify", type=Path, help="folder with the PyTorch weights")
    parser.add_argument("--write", type=Path, help="JSON file for the accuracies")
    arguments = parser.parse_args()

    sets = test_sets(read(arguments.archive))
    tokenizer = Tokenizer.from_file(str(arguments.model / "tokenizer.json"))
    tokenizer.enable_truncation(512)
    session = onnxruntime.InferenceSession(
        arguments.model / "model.onnx", providers=["CPUExecutionProvider"]
    )
    accuracies: dict[str, float] = {}
    strayed = False
    print(f"{'texts':28} {'clear':>6} {'accuracy':>9} {'always the commoner':>20}")
    for name, texts in sets.items():
        ids = [tokenizer.encode(text.text).ids for text in texts]
        logits = np.concatenate([run_onnx(session, row) for row in ids])
        clear = np.array([text.clear for text in texts])
        positive = np.array([text.label == "positive" for text in texts])
        right = (logits[:, 1] > logits[:, 0]) == positive
        share = positive[clear].mean()
        accuracies[name] = round(float(right[clear].mean()), 4)
        print(f"{name:28} {clear.sum():6} {accuracies[name]:9.1%} {max(share, 1 - share):20.1%}")
        if arguments.verify:
            difference = float(np.abs(logits - run_torch(arguments.verify, ids)).max())
            strayed |= difference > TOLERANCE
            print(f"{'':28} onnx against torch, {len(ids)} texts: at most {difference:.1e}")
    if arguments.write:
        arguments.write.write_text(json.dumps(accuracies, indent=2) + "\n", encoding="utf-8")
    return int(strayed)


def test_sets(texts: Sequence[RatedText]) -> dict[str, list[RatedText]]:
    """The test split of the domains that were trained on, and all of those that were not."""
    sets = {
        domain.value: [
            text
            for text in texts
            if text.domain is domain and (text.split is Split.TEST or domain not in SEEN)
        ]
        for domain in Domain
    }
    sets["product-review-passages"] = passages(sets[Domain.PRODUCT_REVIEWS.value], (2, 3, 5, 8, 13))
    return sets


def run_onnx(session: onnxruntime.InferenceSession, ids: list[int]) -> NDArray[np.float32]:
    """Logits ``[1, 2]`` of one text."""
    row = np.array([ids], dtype=np.int64)
    feeds = {"input_ids": row, "attention_mask": np.ones_like(row)}
    logits: NDArray[np.float32] = session.run(["logits"], feeds)[0]
    return logits


def run_torch(folder: Path, texts: Sequence[list[int]]) -> NDArray[np.float32]:
    """Logits ``[texts, 2]`` of the PyTorch weights in a Hugging Face folder."""
    import torch  # noqa: PLC0415 - only this comparison needs it
    from transformers import AutoModelForSequenceClassification  # noqa: PLC0415

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        rows = [model(input_ids=torch.tensor([ids])).logits.numpy() for ids in texts]
    logits: NDArray[np.float32] = np.concatenate(rows)
    return logits


if __name__ == "__main__":
    sys.exit(main())
