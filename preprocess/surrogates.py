"""Finds half of a surrogate pair, which JSON can spell and no UTF-8 can hold."""

import re

_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def find_lone_surrogate(value: object, place: str = "") -> str | None:
    """Where JSON's strings are no text first, as ``.inputs[0]``; None if nowhere."""
    match value:
        case str():
            return None if _LONE_SURROGATE.search(value) is None else place
        case list():
            children = ((item, f"{place}[{i}]") for i, item in enumerate(value))
        case dict():
            for key in value:
                if find_lone_surrogate(key, place) is not None:
                    return place
            children = ((item, f"{place}.{key}") for key, item in value.items())
        case _:
            return None
    found = (find_lone_surrogate(item, child) for item, child in children)
    return next((hit for hit in found if hit is not None), None)
