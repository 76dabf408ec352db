"""Tables of a document that programs write, between the markers that name them."""

from collections.abc import Mapping


class NoMarkersError(ValueError):
    """The document has no place for a table."""


def written(document: str, tables: Mapping[str, str], marker: str) -> str:
    """The document with these tables between their markers; the rest is people's.

    Args:
        document: markdown.
        tables: name of a table's place in the document -> the table.
        marker: the word before the name, as ``measured`` in ``<!-- measured: core -->``.
    """
    for name, text in tables.items():
        begin, end = f"<!-- {marker}: {name} -->", "<!-- end -->"
        head, found, behind = document.partition(f"{begin}\n")
        _, closed, tail = behind.partition(end)
        if not found or not closed:
            raise NoMarkersError(f"there is no '{begin}' with an '{end}' behind it")
        document = f"{head}{found}{text}\n{closed}{tail}"
    return document
