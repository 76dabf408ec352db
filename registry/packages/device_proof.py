"""Tells whether an engine answers as the original does, on the device where it will serve.

A package of a packed engine was proved where it was converted, which may be another device than the
one that serves it. So it carries a few rows with the original's values (``contracts.manifest``:
``DEVICE_PROOF``), which a loader sends through Triton before it says that a version is loaded. What
strays is refused. It runs no engine and reads nothing but that file.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Annotated, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from contracts.manifest import DEVICE_PROOF
from contracts.tasks import INPUT_IDS, ROW_STARTS, TOKEN_TYPE_IDS, Task
from preprocess.errors import EngineOutputError
from preprocess.tasks import HEADS

Floats = NDArray[np.float32]

MOST_ROWS = 32
MOST_VALUES = 1 << 16  # of all rows: sparse vectors and labels of tokens have many
MOST_BYTES = 64 << 20  # of the file; a conversion writes some megabytes at most
_DIFFERENCES = ("max_abs_difference", "mean_abs_difference", "min_cosine")


# What its tensors hold: numpy refuses others by an error that is none of a package's.
_Id = Annotated[int, Field(ge=0, lt=1 << 31)]
_TypeId = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]


class DeviceProofError(Exception):
    """The package's proof can't be read: it is no file of Headrace."""


class ProofRow(BaseModel):
    """One row of tokens, and what callers see of the original's answer.

    ``values`` is float32 ``[1, width]``, or ``[tokens, width]`` of all tokens but ``left_out``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ids: tuple[_Id, ...] = Field(min_length=1)
    type_ids: tuple[_TypeId, ...] | None = Field(None, description="None: all are 0")
    values: tuple[tuple[float, ...], ...] = Field(min_length=1)
    left_out: tuple[_Id, ...] = Field((), exclude_if=lambda places: not places)

    @model_validator(mode="after")
    def _one_type_for_each_id(self) -> Self:
        if self.type_ids is not None and len(self.type_ids) != len(self.ids):
            raise ValueError("type_ids must be as many as ids")
        return self


class DeviceProof(BaseModel):
    """Rows, the original's values of them, and how far an engine's may be from these."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Task
    multi_label: bool = False
    type_ids: bool = Field(description="whether the engine takes token_type_ids")
    scale: float = Field(gt=0, description="what differences are divided by")
    limits: dict[str, float] = Field(description="by the names of the parity report's figures")
    rows: tuple[ProofRow, ...] = Field(min_length=1, max_length=MOST_ROWS)

    def batches(self) -> list[tuple[ProofRow, ...]]:
        """What to run: the shortest and the longest row alone, and all rows together."""
        by_length = sorted(self.rows, key=lambda row: len(row.ids))
        found = [by_length[:1], by_length[-1:], list(self.rows)]
        return [tuple(rows) for rows in (found if len(self.rows) > 1 else found[:1])]

    def tensors(self, rows: Sequence[ProofRow]) -> dict[str, NDArray[np.generic]]:
        """The batch as the packed engine takes it (``contracts.tasks.packed_inputs``)."""
        return packed_batch(
            [row.ids for row in rows],
            [row.type_ids or (0,) * len(row.ids) for row in rows] if self.type_ids else None,
        )

    def check(self, rows: Sequence[ProofRow], output: Floats) -> str:
        """Why an engine's answer can't be trusted, in words; empty if it can.

        Args:
            rows: that were sent together.
            output: float32 ``[rows, width]``, or ``[tokens, width]``: the engine's own.
        """
        original = np.array([each for row in rows for each in row.values], np.float32)
        output = np.asarray(output, np.float32)
        kept = [place not in row.left_out for row in rows for place in range(len(row.ids))]
        if not all(kept) and len(output) == len(kept):
            output = output[kept]
        if output.shape != original.shape:
            return f"it gave {list(output.shape)} values and not {list(original.shape)}"
        head = HEADS[self.task]
        batch = output if output.ndim == head.rank else output[np.newaxis]
        try:
            found = head.values(batch, width=output.shape[-1], multi_label=self.multi_label)
        except EngineOutputError as error:
            return str(error)
        values = head.measured(found.reshape(output.shape))
        return self._broken_limit(original, values)

    def _broken_limit(self, original: Floats, values: Floats) -> str:
        apart = np.abs(original - values) / self.scale
        figures = {"max_abs_difference": apart.max(), "mean_abs_difference": apart.mean()}
        if "min_cosine" in self.limits:
            figures["min_cosine"] = cosines(original, values).min()
        for name, limit in self.limits.items():
            figure = float(figures[name])
            if not (figure >= limit if name.startswith("min_") else figure <= limit):
                words = name.removeprefix("min_").replace("_", " ")
                return f"{words} to the original is {figure:.3g}, and the limit is {limit:g}"
        return ""


class ReferenceRow(NamedTuple):
    """A row of tokens, and the original's ``[n, width]`` of those that are not left out."""

    ids: Sequence[int]
    type_ids: Sequence[int] | None
    values: Floats
    left_out: Sequence[int] = ()


def proof_of(
    references: Sequence[ReferenceRow],
    *,
    task: Task,
    multi_label: bool,
    type_ids: bool,
    scale: float,
    limits: Mapping[str, float],
) -> DeviceProof:
    """A proof of some of the rows, spread over all lengths, the shortest and the longest with them.

    Args:
        references: rows that the engine was compared on, at least one.
        task: whose head tells what callers see.
        multi_label: each class on its own.
        type_ids: whether the engine takes ``token_type_ids``.
        scale: what differences are divided by.
        limits: of the parity report; what needs more texts than a proof has is left out.
    """
    order = sorted(range(len(references)), key=lambda index: len(references[index].ids))
    largest = max(each.values.size for each in references)
    count = max(1, min(len(order), MOST_ROWS, MOST_VALUES // largest))
    picked = [order[place] for place in np.linspace(0, len(order) - 1, count).astype(int)]
    head = HEADS[task]
    rows = []
    for index in picked:
        each = references[index]
        values = head.measured(each.values).astype(np.float64)
        rows.append(
            ProofRow(
                ids=tuple(int(item) for item in each.ids),
                type_ids=None if not any(each.type_ids or ()) else tuple(each.type_ids or ()),
                values=tuple(tuple(float(f"{x:.8g}") for x in line) for line in values.tolist()),
                left_out=tuple(each.left_out),
            )
        )
    return DeviceProof(
        task=task,
        multi_label=multi_label,
        type_ids=type_ids,
        scale=float(f"{scale:.8g}"),
        limits={name: limit for name, limit in limits.items() if name in _DIFFERENCES},
        rows=tuple(rows),
    )


def read(folder: Path) -> DeviceProof | None:
    """The proof of a package in a folder; None of one that has none.

    Raises:
        DeviceProofError: the file is not a proof.
    """
    try:
        if (size := (folder / DEVICE_PROOF).stat().st_size) > MOST_BYTES:
            raise DeviceProofError(f"{DEVICE_PROOF} of the package has {size} bytes: too many")
        return DeviceProof.model_validate_json((folder / DEVICE_PROOF).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise DeviceProofError(f"{DEVICE_PROOF} of the package can't be read: {error}") from error


def packed_batch(
    rows: Sequence[Sequence[int]], type_ids: Sequence[Sequence[int]] | None
) -> dict[str, NDArray[np.generic]]:
    """Rows one after the other, as the packed engine takes them.

    Args:
        rows: token ids of each.
        type_ids: of the same lengths; None for a model without.
    """
    starts = [0, *accumulate(len(row) for row in rows)]
    batch: dict[str, NDArray[np.generic]] = {
        INPUT_IDS: np.fromiter(chain.from_iterable(rows), np.int32, starts[-1]),
        ROW_STARTS: np.array(starts, np.int32),
    }
    if type_ids is not None:
        batch[TOKEN_TYPE_IDS] = np.array([*chain(*type_ids)], np.int32).astype(np.uint8)
    return batch


def cosines(original: Floats, values: Floats) -> Floats:
    """Of each row ``[n]``; 1 if both are nothing but zeros, as two sparse vectors may be."""
    found: Floats = (unit(original) * unit(values)).sum(axis=1)
    found[~original.any(axis=1) & ~values.any(axis=1)] = 1.0
    return found


def unit(vectors: Floats) -> Floats:
    """The rows ``[n, width]`` in length 1; zeros stay zeros."""
    lengths: Floats = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors / lengths
