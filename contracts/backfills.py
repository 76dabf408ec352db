"""What ``headrace backfill`` notes on its endpoint, for people who wait for the cutover."""

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

BACKFILLS: Final = "headrace.dev/backfills"  # an annotation
_MOST = 8  # outputs, the newest


class BackfillProgress(BaseModel):
    """That ``done`` of ``rows`` texts have vectors of ``space`` in an output, at a Unix time."""

    model_config = ConfigDict(frozen=True)

    output: str = Field(max_length=250, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
    space: str
    done: int = Field(ge=0)
    rows: int = Field(ge=0)
    at: float = Field(ge=0, le=1e11)


_noted: TypeAdapter[tuple[BackfillProgress, ...]] = TypeAdapter(tuple[BackfillProgress, ...])


def list_backfills(annotations: Mapping[str, str]) -> tuple[BackfillProgress, ...]:
    """Those that are noted, the newest last; none if the note can't be read."""
    try:
        return _noted.validate_json(annotations.get(BACKFILLS, "[]"))
    except ValidationError:
        return ()


def note_backfill(annotations: Mapping[str, str], new: BackfillProgress) -> dict[str, str]:
    """The annotations, with this in place of what was noted of the same output and space."""
    others = [
        each
        for each in list_backfills(annotations)
        if (each.output, each.space) != (new.output, new.space)
    ]
    return {**annotations, BACKFILLS: _noted.dump_json((*others, new)[-_MOST:]).decode()}
