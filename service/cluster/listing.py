"""A copy of a collection, brought up to date by what the API server says. Pure.

Lists and events come in order; what this process wrote itself is learnt from the answer, usually
before the event that says the same. Revisions are compared as numbers, as the API server's own
caches do (KEP-5504); one that is no number is taken on trust.
"""

from collections.abc import Iterable

from service.cluster.collection import Object


class ObjectListing:
    """Objects by name. ``revision`` is where a watch goes on; empty: list first."""

    def __init__(self) -> None:
        self.items: dict[str, Object] = {}
        self.revision = ""
        self._learnt: set[str] = set()  # names of what no list and no event has told yet

    def lacking(self, items: Iterable[Object]) -> frozenset[str]:
        """Names of what was listed or told, and a list lacks."""
        return frozenset(self.items.keys() - {_name(item) for item in items} - self._learnt)

    def replace(
        self, items: Iterable[Object], revision: str, kept: Iterable[str] = frozenset()
    ) -> bool:
        """Takes a whole list; returns whether anything changed.

        What was learnt since the list was made stays, and so does what is ``kept``.
        """
        self._learnt = {
            name for name in self._learnt if _number(self.items[name]) > _as_number(revision)
        }
        fresh = {_name(item): item for item in items}
        fresh |= {name: self.items[name] for name in (*self._learnt, *kept)}
        changed = fresh != self.items
        self.items = fresh
        self.revision = revision
        return changed

    def begin_again(self) -> None:
        """The next thing is a whole list; what is known stays until then."""
        self.revision = ""

    def apply(self, kind: str, item: Object) -> bool:
        """Takes one event of a watch; returns whether anything changed.

        Args:
            kind: ADDED, MODIFIED, DELETED or BOOKMARK.
            item: the object; of a bookmark only its revision.
        """
        self.revision = _revision(item)
        if kind == "BOOKMARK":
            return False
        name = _name(item)
        known = self.items.get(name)
        if kind == "DELETED":
            self._learnt.discard(name)
            return self.items.pop(name, None) is not None
        if known is not None and _number(known) > _number(item) > 0:
            return False
        self._learnt.discard(name)
        self.items[name] = item
        return item != known

    def learn(self, item: Object) -> bool:
        """Takes what a write was answered with; returns whether that was news."""
        if _number(item) <= _as_number(self.revision):
            return False  # events came this far: what is known is no older, or it was deleted
        self.items[_name(item)] = item
        self._learnt.add(_name(item))
        return True


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])


def _revision(item: Object) -> str:
    return str(item["metadata"]["resourceVersion"])


def _number(item: Object) -> int:
    return _as_number(_revision(item))


def _as_number(revision: str) -> int:
    return int(revision) if revision.isdecimal() else 0
