"""When a sentence of the status hides a fault."""

from typing import Any

import pytest
from chaos.schedule import Fault, Kind
from chaos.sentences import COUNTING_SECONDS, PART_SECONDS, complaints, false_sentences, names

PAUSED = Fault(Kind.PAUSE, "triton-2", 60.0)
FOLD = Fault(Kind.PAUSE, "fold", 60.0)
LATER = COUNTING_SECONDS + 1


def told(*unwell: str, state: str = "counted") -> dict[str, Any]:
    return {
        "running": True,
        "stack": {"pages": {"triton-2": "http://t", "fold": "http://f"}},
        "unwell": dict.fromkeys(unwell, "does not answer"),
        "uncared": {},
        "statistics": {"state": state, "said": "traffic is not counted"},
    }


def test_a_part_that_hangs_and_is_told_to_be_well_is_a_false_sentence() -> None:
    (said,) = false_sentences(told(), [PAUSED], PART_SECONDS, {"triton-2"})
    assert "triton-2 hangs" in said


@pytest.mark.parametrize(
    ("document", "faults", "held", "same"),
    [
        (told("triton-2"), [PAUSED], LATER, {"triton-2"}),
        (told(), [PAUSED], PART_SECONDS - 1, {"triton-2"}),  # it may not be known yet
        (told(), [PAUSED], LATER, set()),  # it was started anew, and is well
        (told(), [PAUSED, Fault(Kind.FULL_DISK, "disk", 9.0)], LATER, {"triton-2"}),
        (told(), [Fault(Kind.KILL, "triton-2")], LATER, {"triton-2"}),
        (told("fold", state="stalled"), [FOLD], LATER, {"fold"}),
        ({"running": False, "statistics": None}, [FOLD], LATER, {"fold"}),
    ],
)
def test_what_is_told_or_can_t_be_known_is_none(
    document: dict[str, Any], faults: list[Fault], held: float, same: set[str]
) -> None:
    assert not false_sentences(document, faults, held, same)


def test_traffic_that_nobody_counts_is_not_counted() -> None:
    (said,) = false_sentences(told("fold"), [FOLD], LATER, {"fold"})
    assert "all is counted" in said


def test_a_status_that_says_that_all_is_well_has_no_complaints() -> None:
    assert not complaints(told())
    assert complaints(told("fold")) == ["fold does not answer"]
    assert complaints(told(state="stalled")) == ["statistics: traffic is not counted"]
    assert complaints({"running": False}) == ["no stack runs"]


@pytest.mark.parametrize(
    ("said", "loader", "is_named"),
    [
        ("Triton local-2 is out of service until it is well again: it refuses", "local-2", True),
        ("Triton local-2 is out of service until it is well again: it refuses", "local", False),
        ("version 3 at local, local-3: CUDA failure 719", "local", True),
        ("version 3 at local, local-3: CUDA failure 719", "local-2", False),
    ],
)
def test_a_triton_is_named_by_its_loaders_whole_name(
    said: str, loader: str, *, is_named: bool
) -> None:
    for place in ("waits", "notes"):
        told = {
            "waits": {"e": [{"what": said if place == "waits" else ""}]},
            "endpoints": [{"status": {"notes": [said] * (place == "notes"), "cordoned": []}}],
        }
        assert names(told, loader) is is_named
