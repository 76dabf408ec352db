"""Writes what users ask into the endpoint store, without ever losing what others wrote.

Each write is against the revision that was read and is done again from what is there by then, so
that the controller, which writes statuses, and people, who write specs, don't overwrite each other.
Never writes a status.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from contracts.endpoint import EndpointSpec, Metadata, ModelEndpoint
from contracts.validation_errors import show_value
from headrace.errors import BrokenHomeError, RefusedError, RequestFailedError
from registry.errors import EndpointConflictError, EndpointUnreadableError
from registry.stores.endpoints import EndpointStore

# A controller writes a few times a second at most; who loses so often in a row meets a fault.
_ATTEMPTS = 50
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Change:
    """One field before and after."""

    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        before, after = (show_value(value, most=_SHOWN) for value in (self.before, self.after))
        return f"{self.field}: {before} -> {after}"


@dataclass(frozen=True, slots=True)
class EditOutcome:
    """What became of one document."""

    name: str
    what: str  # created | changed | unchanged
    changes: tuple[Change, ...] = ()


def apply(store: EndpointStore, wanted: ModelEndpoint) -> EditOutcome:
    """Makes the stored endpoint ask what ``wanted`` asks; its status stays.

    Annotations of ``wanted`` are added to those that there are.

    Raises:
        RefusedError: ``wanted`` carries a revision that is not the stored one's.
        BrokenHomeError: what is stored can't be read, or can't be written.
    """
    for _ in range(_ATTEMPTS):
        found = find_stored(store, wanted.name)
        _check_revision(wanted, found)
        if found is None:
            notes = Metadata(name=wanted.name, annotations=wanted.metadata.annotations)
            made = ModelEndpoint(metadata=notes, spec=wanted.spec)
            if _put(store, made):
                return EditOutcome(wanted.name, "created")
            continue
        differing = _changes(found.spec, wanted.spec) + _list_noted_changes(found, wanted)
        if not differing:
            return EditOutcome(wanted.name, "unchanged")
        notes = found.metadata.model_copy(
            update={"annotations": {**found.metadata.annotations, **wanted.metadata.annotations}}
        )
        if _put(store, found.model_copy(update={"metadata": notes, "spec": wanted.spec})):
            return EditOutcome(wanted.name, "changed", differing)
    raise RequestFailedError(f"The endpoint {wanted.name} changes too fast. Try again.")


def compare(store: EndpointStore, wanted: ModelEndpoint) -> EditOutcome:
    """What ``apply`` would do now; writes nothing.

    Raises:
        BrokenHomeError: what is stored can't be read.
    """
    found = find_stored(store, wanted.name)
    if found is None:
        return EditOutcome(wanted.name, "created")
    differing = _changes(found.spec, wanted.spec) + _list_noted_changes(found, wanted)
    return EditOutcome(wanted.name, "changed" if differing else "unchanged", differing)


def edit(
    store: EndpointStore, name: str, change: Callable[[ModelEndpoint], ModelEndpoint]
) -> ModelEndpoint:
    """Changes a stored endpoint; ``change`` may be called again with a newer one.

    Raises:
        RequestFailedError: there is no such endpoint.
        BrokenHomeError: what is stored can't be read, or can't be written.
    """
    for _ in range(_ATTEMPTS):
        changed = change(find_existing(store, name))
        if _put(store, changed):
            return changed
    raise RequestFailedError(f"The endpoint {name} changes too fast. Try again.")


def find_existing(store: EndpointStore, name: str) -> ModelEndpoint:
    """A stored endpoint; raises ``RequestFailedError`` or ``BrokenHomeError``."""
    found = find_stored(store, name)
    if found is None:
        names = ", ".join(endpoint.name for endpoint in list_all(store)) or "none yet"
        raise RequestFailedError(f"There is no endpoint {name}; the endpoints are: {names}.")
    return found


def list_all(store: EndpointStore) -> tuple[ModelEndpoint, ...]:
    """All endpoints, by name; raises ``BrokenHomeError``."""
    try:
        return store.list()
    except OSError as error:
        raise BrokenHomeError(f"The endpoints can't be read: {error}.") from error


def find_stored(store: EndpointStore, name: str) -> ModelEndpoint | None:
    """An endpoint, or None if there is none; raises ``BrokenHomeError``."""
    try:
        return store.get(name)
    except EndpointUnreadableError as error:
        raise BrokenHomeError(
            f"What is stored can't be read, so nothing was changed: {error}. Fix it, or "
            f"remove it with headrace delete {name}."
        ) from error
    except OSError as error:
        raise BrokenHomeError(f"The endpoint {name} can't be read: {error}.") from error


def _put(store: EndpointStore, endpoint: ModelEndpoint) -> bool:
    """False when someone else wrote in the meantime."""
    try:
        store.put(endpoint)
    except EndpointConflictError:
        return False
    except OSError as error:
        raise BrokenHomeError(f"The endpoint {endpoint.name} can't be written: {error}.") from error
    return True


def _check_revision(wanted: ModelEndpoint, stored: ModelEndpoint | None) -> None:
    asked = wanted.metadata.revision
    found = "" if stored is None else stored.metadata.revision
    if asked and asked != found:
        raise RefusedError(
            f"The document is for revision {asked} of the endpoint {wanted.name}, which is at "
            f"{found or 'none'} by now. Leave metadata.revision out to change it all the same."
        )


def _list_noted_changes(stored: ModelEndpoint, wanted: ModelEndpoint) -> tuple[Change, ...]:
    before = stored.metadata.annotations
    return tuple(
        Change(f"metadata.annotations.{key}", before.get(key), value)
        for key, value in wanted.metadata.annotations.items()
        if before.get(key) != value
    )


def _changes(before: EndpointSpec, after: EndpointSpec) -> tuple[Change, ...]:
    """The fields that differ, defaults filled in, in the order of the schema; a list is one."""
    old, new = (spec.model_dump(mode="json", by_alias=True) for spec in (before, after))
    return tuple(_find_changes("spec", old, new))


def _find_changes(path: str, old: Any, new: Any) -> Iterator[Change]:  # noqa: ANN401 - any JSON value
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict) and (old.keys() == new.keys()):
        for name in old:
            yield from _find_changes(f"{path}.{name}", old[name], new[name])
        return
    yield Change(path, old, new)
