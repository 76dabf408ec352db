"""How much an object holds, counted in objects: memory of a moment says little of a leak."""

import gc
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType)


def count_reachable(root: object) -> int:
    """Objects that are reached from one, without programs and what they share."""
    seen, waiting = {id(root)}, [root]
    while waiting:
        for found in gc.get_referents(waiting.pop()):
            if id(found) not in seen and not isinstance(found, _SHARED):
                seen.add(id(found))
                waiting.append(found)
    return len(seen)
