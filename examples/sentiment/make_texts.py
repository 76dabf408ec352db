"""Writes the example's texts: what the model is judged on, and what traffic is made of.

Run by a person after ``train.py``; its output is committed. It needs the archive and the trained
tokeniser, and no torch.

    python examples/sentiment/make_texts.py --archive vaderSentiment-3.3.2.tar.gz

- ``texts/held_out.jsonl``: reviews of the test split, of many lengths, for the reference profile.
- ``texts/other_domains.jsonl``: editorials and tweets, which the model never saw: a natural drift.
- ``texts/replay.txt``: one text a line, for load. Lengths follow a log-normal distribution like the
  one that the performance targets name: 10 % under 15 tokens, median 41, 10 % over 111.
"""

import argparse
import json
import math
import random
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path

from corpus import SEEN, UNSEEN, Domain, RatedText, Split, join, passages, read
from tokenizers import Tokenizer

HERE = Path(__file__).parent
SEED = 7
MEDIAN_TOKENS, SIGMA, MOST_TOKENS = 41, 0.777, 500
# Single sentences are this short at most; longer texts are neighbouring sentences of one review.
LONGEST_SENTENCE = 40


def main() -> None:
    """Reads the command line and writes the three files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--archive", type=Path, required=True, help="vaderSentiment-3.3.2.tar.gz")
    parser.add_argument("--tokenizer", type=Path, default=HERE / "model" / "tokenizer.json")
    parser.add_argument("--out", type=Path, default=HERE / "texts")
    arguments = parser.parse_args()
    texts = read(arguments.archive)
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    random_ = random.Random(SEED)
    arguments.out.mkdir(parents=True, exist_ok=True)
    write(arguments.out / "held_out.jsonl", held_out(texts, random_))
    write(arguments.out / "other_domains.jsonl", other_domains(texts, random_))
    lines = replay(texts, tokenizer, random_, 2000)
    (arguments.out / "replay.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def held_out(texts: Sequence[RatedText], random_: random.Random) -> list[RatedText]:
    """500 sentences and up to 100 passages of the review domains' test split, clear ones only."""
    test = [text for text in texts if text.split is Split.TEST and text.domain in SEEN]
    long = [text for text in passages(test, (2, 3, 5, 8, 13)) if text.clear]
    short = [text for text in test if text.clear]
    chosen = random_.sample(short, 500) + random_.sample(long, min(100, len(long)))
    random_.shuffle(chosen)
    return chosen


def other_domains(texts: Sequence[RatedText], random_: random.Random) -> list[RatedText]:
    """300 clear sentences of each domain that the model never saw."""
    chosen: list[RatedText] = []
    for domain in UNSEEN:
        clear = [text for text in texts if text.domain is domain and text.clear]
        chosen += random_.sample(clear, 300)
    return chosen


def replay(
    texts: Sequence[RatedText], tokenizer: Tokenizer, random_: random.Random, count: int
) -> list[str]:
    """Distinct real texts whose token lengths follow the target distribution."""
    reviews = [text for text in texts if text.domain in SEEN]
    stock: dict[int, list[str]] = {}
    for text, length in _candidates(reviews, tokenizer):
        stock.setdefault(length, []).append(text)
    for found in stock.values():
        random_.shuffle(found)
    chosen: list[str] = []
    while len(chosen) < count:
        wanted = round(MEDIAN_TOKENS * math.exp(random_.gauss(0, SIGMA)))
        if wanted <= MOST_TOKENS:
            nearest = min((size for size in stock if stock[size]), key=lambda s: abs(s - wanted))
            chosen.append(stock[nearest].pop())
    return chosen


def _candidates(reviews: Sequence[RatedText], tokenizer: Tokenizer) -> Iterator[tuple[str, int]]:
    """Single short sentences, and every run of neighbouring sentences of a product review."""
    for (domain, _), members in groupby(reviews, key=lambda text: (text.domain, text.group)):
        group = list(members)
        lengths = [len(tokenizer.encode(text.text).ids) - 2 for text in group]
        for start in range(len(group)):
            for size, tokens in enumerate(accumulate(lengths[start:]), start=1):
                if tokens + 2 > MOST_TOKENS:
                    break
                short = size == 1 and tokens <= LONGEST_SENTENCE
                if short or (size > 1 and domain is Domain.PRODUCT_REVIEWS):
                    yield " ".join(join(group[start : start + size]).text.split()), tokens + 2


def write(path: Path, texts: Sequence[RatedText]) -> None:
    """One JSON object a line: text, label, domain, rating."""
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            row = {
                "text": text.text,
                "label": text.label,
                "domain": text.domain.value,
                "rating": round(text.rating, 3),
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
