"""What is recorded of each text: encoded texts and their answers -> text records.

It never sees a text.
"""

import numpy as np
from numpy.typing import NDArray

from contracts.events import TextRecord
from contracts.tasks import Task
from preprocess.encoder import EncodedTexts
from preprocess.tasks import HEADS


def answered(
    encoded: EncodedTexts, task: Task, values: NDArray[np.float32], labels: tuple[str, ...] = ()
) -> list[TextRecord]:
    """Records of texts that were answered.

    What a record holds of an answer, the task's head says.

    Args:
        encoded: the texts, as the model saw them.
        task: what was asked.
        values: float32 ``[texts, width]``, as the task's head made them, or
            ``[tokens of all rows, width]`` of a head of rank 3; of one that writes, of its text.
        labels: in the order of the columns; none for vectors.

    Raises:
        ValueError: not one row of values a text.
    """
    head = HEADS[task]
    if not head.generates and len(values) != sum(head.sizes(encoded.tokens)):
        raise ValueError(f"{len(values)} rows of values do not go with {len(encoded)} texts")
    return head.records(encoded, values, labels)


def unanswered(encoded: EncodedTexts) -> list[TextRecord]:
    """Records of texts whose attempt failed: what is known of the texts, and no answer."""
    return [TextRecord(*known) for known in encoded.statistics()]
