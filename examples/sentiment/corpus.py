"""The human-rated texts of Hutto & Gilbert (2014), read from the archive that carries them.

It reads one archive and computes; it downloads nothing and writes nothing.

The archive is PyPI's source distribution ``vaderSentiment-3.3.2.tar.gz``. In it lies
``additional_resources/hutto_ICWSM_2014.tar.gz``, in that one text file a domain: id, mean rating
of at least 15 people from -4 (most negative) to 4 (most positive), text, separated by tabs.
"""

import hashlib
import html
import io
import re
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path

ARCHIVE_SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
INNER_ARCHIVE = "additional_resources/hutto_ICWSM_2014.tar.gz"
LEXICON = "vader_sentiment_lexicon.txt"
# Between these ratings people do not agree on a side: such texts teach and prove nothing.
CLEAR_RATING = 0.5


class Domain(StrEnum):
    """Where a text comes from, and its file in the archive."""

    MOVIE_REVIEWS = "movie-reviews"
    PRODUCT_REVIEWS = "product-reviews"
    EDITORIALS = "editorials"
    TWEETS = "tweets"

    @property
    def file(self) -> str:
        """Name of the domain's file in the inner archive."""
        return {
            Domain.MOVIE_REVIEWS: "movieReviewSnippets_GroundTruth.txt",
            Domain.PRODUCT_REVIEWS: "amazonReviewSnippets_GroundTruth.txt",
            Domain.EDITORIALS: "nytEditorialSnippets_GroundTruth.txt",
            Domain.TWEETS: "tweets_GroundTruth.txt",
        }[self]


# The model learns from reviews alone; the other two stay unseen and make a natural drift.
SEEN = (Domain.MOVIE_REVIEWS, Domain.PRODUCT_REVIEWS)
UNSEEN = (Domain.EDITORIALS, Domain.TWEETS)


class Split(StrEnum):
    """What a text may be used for."""

    TRAIN = "train"
    DEV = "dev"
    TEST = "test"


@dataclass(frozen=True)
class RatedText:
    """A text with the mean of its human ratings, -4 to 4.

    ``group`` names the review or article that the sentence is from; a group is never split.
    """

    text: str
    rating: float
    domain: Domain
    group: str
    split: Split

    @property
    def label(self) -> str:
        """``positive`` or ``negative``: the side of zero on which people put it."""
        return "positive" if self.rating > 0 else "negative"

    @property
    def clear(self) -> bool:
        """Whether people agree enough for the text to count in an accuracy."""
        return abs(self.rating) >= CLEAR_RATING


def read(archive: Path) -> list[RatedText]:
    """All rated texts, in the archive's order; raises ``ValueError``."""
    inner = _inner(archive)
    return [text for domain in Domain for text in _texts(domain, inner[domain.file])]


def read_lexicon(archive: Path) -> list[tuple[str, float]]:
    """Single words with their mean human rating; emoticons and the like left out."""
    rows = (line.split("\t") for line in _inner(archive)[LEXICON].splitlines())
    return [(row[0], float(row[1])) for row in rows if re.fullmatch(r"[a-z][a-z'-]+", row[0])]


def passages(texts: Iterable[RatedText], lengths: Sequence[int]) -> list[RatedText]:
    """Longer texts: neighbouring sentences of one review or article, joined.

    Args:
        texts: sentences in their order; those of one group must stand together.
        lengths: sentences a passage, used in turn.

    Returns:
        Passages whose rating is the mean of their sentences' ratings.
    """
    joined: list[RatedText] = []
    for _, members in groupby(texts, key=lambda text: (text.domain, text.group)):
        rest = list(members)
        while len(rest) > 1:
            size = lengths[len(joined) % len(lengths)]
            part, rest = rest[:size], rest[size:]
            joined.append(join(part))
    return joined


def join(part: Sequence[RatedText]) -> RatedText:
    """One text of several sentences of the same group, rated by their mean."""
    first = part[0]
    return RatedText(
        text=" ".join(text.text for text in part),
        rating=sum(text.rating for text in part) / len(part),
        domain=first.domain,
        group=first.group,
        split=first.split,
    )


def split_of(domain: Domain, group: str) -> Split:
    """Where a group belongs, by a hash of its name: 80 % train, 5 % dev, 15 % test."""
    digest = hashlib.sha256(f"{domain}/{group}".encode()).digest()
    percent = int.from_bytes(digest[:8], "big") * 100 >> 64
    if percent < 80:
        return Split.TRAIN
    return Split.DEV if percent < 85 else Split.TEST


def _inner(archive: Path) -> dict[str, str]:
    data = archive.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != ARCHIVE_SHA256:
        raise ValueError(f"{archive} has SHA-256 {found}, not {ARCHIVE_SHA256}")
    with tarfile.open(fileobj=io.BytesIO(data)) as outer:
        member = next(name for name in outer.getnames() if name.endswith(INNER_ARCHIVE))
        inner = _bytes_of(outer, member)
    with tarfile.open(fileobj=io.BytesIO(inner)) as tar:
        return {
            Path(name).name: _text_of(_bytes_of(tar, name))
            for name in tar.getnames()
            if name.endswith(("GroundTruth.txt", LEXICON))
        }


def _bytes_of(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise ValueError(f"{name} in the archive is not a file")
    return file.read()


def _text_of(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:  # the lexicon alone, for a few emoticons
        return data.decode("latin-1")


def _texts(domain: Domain, content: str) -> list[RatedText]:
    texts = []
    for line in content.splitlines():
        identity, rating, text = line.split("\t")
        text = html.unescape(text).strip()
        # Sentences of products and editorials are numbered <review>_<sentence>; the others stand
        # alone, and are grouped by their words so that a repeated text stays on one side.
        sentence = "_" in identity
        group = identity.split("_")[0] if sentence else " ".join(text.lower().split())
        texts.append(RatedText(text, float(rating), domain, group, split_of(domain, group)))
    return texts
