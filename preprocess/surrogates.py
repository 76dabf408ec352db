"""Finds half of a surrogate pair, which JSON can spell and no UTF-8 can hold."""

import re

_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def find_lone_surrogate(value: object) -> str | None:
    """Where JSON's strings are no text first, as ``.inputs[0]``; None if nowhere."""
    waiting = [("", value)]  # its last one is next; so it goes deeper than Python's stack
    while waiting:
        place, each = waiting.pop()
        if isinstance(each, str):
            if _LONE_SURROGATE.search(each):
                return place
        elif isinstance(each, list):
            children = [(f"{place}[{i}]", item) for i, item in enumerate(each) if _holds(item)]
            waiting += reversed(children)
        elif isinstance(each, dict):
            if any(map(_LONE_SURROGATE.search, each)):
                return place
            children = [(f"{place}.{key}", item) for key, item in each.items() if _holds(item)]
            waiting += reversed(children)
    return None


def _holds(item: object) -> bool:
    return isinstance(item, list | dict) or (isinstance(item, str) and not item.isascii())
