"""What differs between two specs, as people read it. Pure; called by ``headrace apply``."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from contracts.endpoint import EndpointSpec
from headrace.endpoints.validation_errors import shown

_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Change:
    """One field before and after."""

    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        before, after = (shown(value, most=_SHOWN) for value in (self.before, self.after))
        return f"{self.field}: {before} -> {after}"


def changes(before: EndpointSpec, after: EndpointSpec) -> tuple[Change, ...]:
    """The fields that differ, defaults filled in, in the order of the schema; a list is one."""
    old, new = (spec.model_dump(mode="json", by_alias=True) for spec in (before, after))
    return tuple(_differing("spec", old, new))


def _differing(path: str, old: Any, new: Any) -> Iterator[Change]:  # noqa: ANN401 - any JSON value
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict) and (old.keys() == new.keys()):
        for name in old:
            yield from _differing(f"{path}.{name}", old[name], new[name])
        return
    yield Change(path, old, new)
