"""What ``headrace status`` says while faults strike: no sentence may be false of the service.

``false_sentences`` is pure; ``World.told`` asks. A fault that lasts is told within seconds, and a
stack that is whole again is told to be well.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from sick_triton import INFER, LOAD

from chaos.schedule import Fault, Kind

PART_SECONDS = 4.0  # after which a part that hangs is known to
COUNTING_SECONDS = 40.0  # after which traffic that nobody counts is: 15 s and what Kafka waits
# By what one knows that a Triton is sick, and after how many seconds that is known: a load is tried
# three times, and a look of the prober comes every 15 s.
SHOWN_BY: Mapping[Kind, tuple[str, float]] = {
    Kind.REFUSES_LOADS: (LOAD, 20.0),
    Kind.NO_MEMORY: (LOAD, 30.0),
    Kind.FAILS: (INFER, 40.0),
    Kind.NAN: (INFER, 40.0),
}
_COUNT = ("fold", "kafka")  # without which nothing is counted
_UNSEEN = ("kafka",)  # which no page tells of


def false_sentences(
    told: Mapping[str, Any], faults: Collection[Fault], held_seconds: float, same: Collection[str]
) -> list[str]:
    """Sentences of the status that hide what is struck.

    Args:
        told: the status as JSON, asked just now.
        faults: that strike now.
        held_seconds: since they began to.
        same: services whose process is still the one that was struck.
    """
    if any(fault.kind is Kind.FULL_DISK for fault in faults):
        return []  # what runs can't be written down then
    if not told["running"]:
        return []  # ``up`` was struck, and it says so
    found = []
    paused = [f.target for f in faults if f.kind is Kind.PAUSE and f.target in same]
    for target in paused:
        known = target in told["stack"]["pages"] and target not in _UNSEEN
        if known and held_seconds >= PART_SECONDS and not told["unwell"].get(target):
            found.append(f"{target} hangs for {held_seconds:.0f} s, and is told to be well")
    counted = told["statistics"]["state"] == "counted"
    if counted and held_seconds >= COUNTING_SECONDS and any(name in _COUNT for name in paused):
        found.append(f"{', '.join(paused)} hangs for {held_seconds:.0f} s, and all is counted")
    return found


def names(told: Mapping[str, Any], loader: str) -> bool:
    """Whether the status says of a Triton, by its loader's name, that it is not well."""
    name = re.compile(rf"(?<![\w-]){re.escape(loader)}(?![\w-])")
    said = [wait["what"] for waits in told["waits"].values() for wait in waits]
    for endpoint in told["endpoints"]:
        said += [*endpoint["status"]["notes"], *endpoint["status"]["cordoned"]]
    return any(name.search(each) for each in said)


def complaints(told: Mapping[str, Any]) -> list[str]:
    """What the status says is wrong; nothing where it says that all is well."""
    if not told["running"]:
        return ["no stack runs"]
    found = [f"{name} {said}" for name, said in told["unwell"].items()]
    found += [f"{name}: {said}" for name, said in told["uncared"].items()]
    if told["statistics"]["state"] != "counted":
        found.append(f"statistics: {told['statistics']['said']}")
    return found
