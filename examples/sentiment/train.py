"""Trains the example's sentiment classifier from nothing, and exports it to ONNX.

Run by a person, once; its output is committed, so that nobody else needs torch. The steps: learn a
vocabulary, learn the ratings, find a temperature, export. It sees the training and development
splits of the two review domains, and a lexicon of rated words, and never another text.

    pip download --no-binary :all: --no-deps vaderSentiment==3.3.2
    python examples/sentiment/train.py --archive vaderSentiment-3.3.2.tar.gz --out build/sentiment

Needs torch, transformers, tokenizers, onnx and onnxscript. Takes about 6 minutes on two cores.
"""

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from corpus import ARCHIVE_SHA256, SEEN, Split, passages, read, read_lexicon
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from torch.nn import functional
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedTokenizerFast,
)

LABELS = ("negative", "positive")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, CLS, SEP, MASK = (SPECIAL.index(token) for token in ("[PAD]", "[CLS]", "[SEP]", "[MASK]"))
OPSET = 18


@dataclass(frozen=True)
class Recipe:
    """Everything that was chosen, so that a run can be repeated."""

    seed: int = 7
    vocabulary: int = 8000
    layers: int = 2
    width: int = 128
    heads: int = 4
    positions: int = 512
    batch: int = 64
    epochs: int = 9
    rate: float = 1e-3
    dropped_tokens: float = 0.3
    weight_decay: float = 0.1
    dropout: float = 0.25
    # A rating this far from zero counts as a certain answer; nearer ones teach in proportion.
    certain_rating: float = 2.0
    averaged_share: float = 0.35
    passage_sentences: tuple[int, ...] = (2, 4, 8, 16)


@dataclass(frozen=True)
class Example:
    """Token ids of a text and the probability, 0 to 1, that people call it positive."""

    ids: list[int]
    positive: float


def main() -> None:
    """Reads the command line, trains, writes the model folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--archive", type=Path, required=True, help="vaderSentiment-3.3.2.tar.gz")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model into")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    arguments = parser.parse_args()
    recipe = Recipe()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(recipe.seed)
    started = time.monotonic()

    texts = [text for text in read(arguments.archive) if text.domain in SEEN]
    train = [text for text in texts if text.split is Split.TRAIN]
    train += passages(train, recipe.passage_sentences)
    lexicon = read_lexicon(arguments.archive)
    tokenizer = learn_vocabulary(recipe, [text.text for text in train] + [w for w, _ in lexicon])

    def example(text: str, rating: float) -> Example:
        certainty = max(-1.0, min(1.0, rating / recipe.certain_rating))
        ids = tokenizer.encode(text).ids
        return Example(
            [*ids[: recipe.positions - 1], SEP] if len(ids) > recipe.positions else ids,
            0.5 + certainty / 2,
        )

    examples = [example(text.text, text.rating) for text in train]
    words = [example(word, rating) for word, rating in lexicon]
    dev = [text for text in texts if text.split is Split.DEV and text.clear]
    checks = [example(text.text, text.rating) for text in dev]
    answers = torch.tensor([LABELS.index(text.label) for text in dev])

    model = build(recipe)
    learn_ratings(recipe, model, examples + words, lambda: report(model, checks, answers))
    temperature = fit_temperature(logits_of(model, checks), answers)
    seconds = time.monotonic() - started
    save(arguments.out, model, tokenizer, recipe, temperature=temperature, seconds=seconds)


def learn_vocabulary(recipe: Recipe, texts: Sequence[str]) -> Tokenizer:
    """A lower-case WordPiece tokeniser in BERT's manner, learned from ``texts``."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=recipe.vocabulary, special_tokens=SPECIAL, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    return tokenizer


def build(recipe: Recipe) -> DistilBertForSequenceClassification:
    """A small DistilBERT with fresh weights."""
    config = DistilBertConfig(
        vocab_size=recipe.vocabulary,
        max_position_embeddings=recipe.positions,
        dim=recipe.width,
        hidden_dim=4 * recipe.width,
        n_layers=recipe.layers,
        n_heads=recipe.heads,
        dropout=recipe.dropout,
        attention_dropout=recipe.dropout,
        seq_classif_dropout=2 * recipe.dropout,
        pad_token_id=PAD,
        id2label=dict(enumerate(LABELS)),
        label2id={label: index for index, label in enumerate(LABELS)},
    )
    return DistilBertForSequenceClassification(config)


def learn_ratings(
    recipe: Recipe,
    model: DistilBertForSequenceClassification,
    examples: Sequence[Example],
    watch: Callable[[], None],
) -> None:
    """Teaches the whole model people's ratings, and keeps the average of its last weights."""
    average = torch.optim.swa_utils.AveragedModel(model)

    def loss(ids: torch.Tensor, mask: torch.Tensor, positive: torch.Tensor) -> torch.Tensor:
        dropped = (torch.rand(ids.shape) < recipe.dropped_tokens) & (ids >= len(SPECIAL))
        logits = model(input_ids=torch.where(dropped, MASK, ids), attention_mask=mask).logits
        return functional.cross_entropy(logits, torch.stack([1 - positive, positive], dim=1))

    def after(epoch: int) -> None:
        if epoch >= recipe.epochs * (1 - recipe.averaged_share):
            average.update_parameters(model)
        watch()

    fit(recipe, model, examples, loss, after)
    model.load_state_dict(average.module.state_dict())
    watch()


def fit(
    recipe: Recipe,
    model: DistilBertForSequenceClassification,
    examples: Sequence[Example],
    loss: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
    after: Callable[[int], None],
) -> None:
    """AdamW with a warm-up and a cosine; ``after`` is called with the epochs done, 1, 2, ..."""
    random_ = random.Random(recipe.seed)
    parameters = [*model.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=recipe.rate, weight_decay=recipe.weight_decay)
    steps = recipe.epochs * math.ceil(len(examples) / recipe.batch)
    warm_up = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda step: min((step + 1) / warm_up, 0.02 + math.cos(step / steps * math.pi / 2) ** 2),
    )
    for epoch in range(1, recipe.epochs + 1):
        model.train()
        total, count, began = 0.0, 0, time.monotonic()
        for ids, mask, positive in batches(examples, recipe.batch, random_):
            value = loss(ids, mask, positive)
            optimiser.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step()
            schedule.step()
            total, count = total + value.item(), count + 1
        print(
            f"epoch {epoch}: loss {total / count:.4f}, {time.monotonic() - began:.0f} s", flush=True
        )
        after(epoch)


def batches(
    examples: Sequence[Example], size: int, random_: random.Random | None
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Batches of similar lengths as (ids, mask, positive); in random order if ``random_`` is given.

    A batch of long texts is cut into several, so that none holds more than ``size`` * 64 tokens.
    """
    order = list(range(len(examples)))
    if random_ is not None:
        jitter = [len(examples[i].ids) * random_.uniform(0.85, 1.15) for i in order]
        order.sort(key=lambda i: jitter[i])
    chunks: list[list[int]] = [[]]
    for index in order:
        longest = max((len(examples[i].ids) for i in [*chunks[-1], index]), default=0)
        if len(chunks[-1]) == size or longest * (len(chunks[-1]) + 1) > size * 64:
            chunks.append([])
        chunks[-1].append(index)
    if random_ is not None:
        random_.shuffle(chunks)
    for chunk in chunks:
        rows = [examples[i].ids for i in chunk]
        length = max(map(len, rows))
        ids = torch.tensor([row + [PAD] * (length - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
        yield ids, mask, torch.tensor([examples[i].positive for i in chunk])


def logits_of(
    model: DistilBertForSequenceClassification, examples: Sequence[Example]
) -> torch.Tensor:
    """Logits ``[examples, 2]`` without dropout, in order."""
    model.eval()
    with torch.no_grad():
        found = [
            model(input_ids=i, attention_mask=m).logits for i, m, _ in batches(examples, 64, None)
        ]
    return torch.cat(found)


def report(
    model: DistilBertForSequenceClassification, examples: Sequence[Example], answers: torch.Tensor
) -> None:
    """Prints the accuracy on the development split."""
    right = (logits_of(model, examples).argmax(dim=1) == answers).float().mean().item()
    print(f"  development accuracy {right:.4f} of {len(examples)}", flush=True)


def fit_temperature(logits: torch.Tensor, answers: torch.Tensor) -> float:
    """The temperature that makes ``softmax(logits / t)`` likeliest (Guo et al., ICML 2017)."""
    candidates = [0.2 * 1.02**i for i in range(160)]
    return min(candidates, key=lambda t: functional.cross_entropy(logits / t, answers).item())


def save(
    out: Path,
    model: DistilBertForSequenceClassification,
    tokenizer: Tokenizer,
    recipe: Recipe,
    **record: float,
) -> None:
    """Writes the Hugging Face layout, ``model.onnx`` and ``training.json``, ``record`` in it."""
    out.mkdir(parents=True, exist_ok=True)
    model.eval()
    model.save_pretrained(out)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=recipe.positions,
        model_input_names=["input_ids", "attention_mask"],
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(out)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=recipe.positions)}
    sample = {
        "input_ids": torch.full((2, 16), MASK),
        "attention_mask": torch.ones((2, 16), dtype=torch.int64),
    }
    torch.onnx.export(
        model,
        (),
        out / "model.onnx",
        kwargs=sample,
        input_names=[*sample],
        output_names=["logits"],
        dynamic_shapes=dict.fromkeys(sample, sizes),
        opset_version=OPSET,
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    training = {
        "recipe": asdict(recipe),
        "archive_sha256": ARCHIVE_SHA256,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "torch": torch.__version__,
        **{name: round(value, 4) for name, value in record.items()},
    }
    (out / "training.json").write_text(json.dumps(training, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
