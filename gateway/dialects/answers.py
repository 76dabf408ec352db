"""What several dialects say of an answer in the same words: its headers, labels and scores."""

from gateway.calls import Answer

_LISTED_TEXTS = 100  # indices in x-headrace-truncated, before it breaks off with "..."


def answer_headers(answer: Answer) -> list[tuple[bytes, bytes]]:
    """The version and arm that answered, the receipt and, where a text was cut, which ones.

    ``x-headrace-truncated`` lists the indices of the texts that were longer than the model takes.
    """
    headers = [
        (b"x-headrace-version", answer.ref.version.encode()),
        (b"x-headrace-arm", answer.arm.value.encode()),
    ]
    if answer.receipt:
        headers.append((b"x-headrace-receipt", answer.receipt.encode()))
    if any(answer.truncated):
        headers.append((b"x-headrace-truncated", truncated_texts(answer).encode()))
    return headers


def truncated_texts(answer: Answer) -> str:
    """Indices of the texts that were cut, comma-separated: ``0,7``."""
    cut = [str(i) for i, truncated in enumerate(answer.truncated) if truncated]
    return ",".join(cut[:_LISTED_TEXTS] + ["..."] * (len(cut) > _LISTED_TEXTS))


def best(answer: Answer) -> tuple[list[str], list[float]]:
    """Label and score of each text's best class; the first of equal ones.

    Plain lists, for most requests hold one text and few classes, where numpy costs more.
    """
    rows = answer.values.tolist()
    scores: list[float] = [max(row) for row in rows]
    index = [row.index(score) for row, score in zip(rows, scores, strict=True)]
    return [answer.labels[i] for i in index], scores
