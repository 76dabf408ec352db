"""``headrace rollout plan``: what it prints of a forecast, and what it reads."""

import json
import math
from dataclasses import replace

import pytest
from evidence_windows import NEW, OLD, aggregate, answered, window
from rich.console import Console

from contracts.endpoint import Arm
from headrace.commands.rollout_plan import document, of_version, picture
from rollout.forecast import Forecast, LabelDelays, StepForecast

SHADOW = StepForecast("shadow", 720.0, 0.0, {"errors, 5 points more": 0.25}, 1.0)
FIVE = StepForecast(
    "5 %", 36.0, 0.51, {"errors, 5 points more": math.inf, "a label, 5 points rarer": 12.25}
)
TOLD = Forecast(720.0, 13.0, 0.0, 24.0, (SHADOW, FIVE))


def shown(told: Forecast) -> list[str]:
    screen = Console(width=100, record=True, file=None, force_terminal=False)
    with screen.capture() as captured:
        screen.print(picture("tone", OLD, told, 7200.0))
    return captured.get().splitlines()


def test_people_see_hours_by_step_and_what_is_never_found() -> None:
    lines = shown(TOLD)
    assert lines[0] == "tone: a rollout against version 1"
    assert "In the last 2h it had 720 requests an hour, of about 13 callers" in lines[1]
    cells = {line.strip().split("  ")[0]: line.split() for line in lines}
    assert cells["errors, 5 points more"][-2:] == ["0.25", "-"]
    assert cells["a label, 5 points rarer"][-1] == "12.2"
    assert cells["an equal version passes"][-2:] == ["1.0", "-"]
    assert any("it would expire" in line for line in lines)


def test_scripts_get_json_without_infinities() -> None:
    found = document("tone", OLD, TOLD, 7200.0)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["steps"][1]["found"]["errors, 5 points more"] is None
    assert (found["passes_hours"], found["callers"]) == (None, 13.0)


def test_people_and_scripts_are_told_how_long_labels_take() -> None:
    delays = LabelDelays(120.0, right=(3600.0, math.inf), wrong=(120.0, 300.0))
    told = replace(TOLD, labels=delays)
    said = " ".join(shown(told))
    assert "Labels: 120 an hour; of those that say right half come within 1h" in said
    assert "more than 30 days" in said
    found = document("tone", OLD, told, 7200.0)["labels"]
    assert (found["right_most_seconds"], found["wrong_half_seconds"]) == (None, 120.0)
    assert document("tone", OLD, TOLD, 7200.0)["labels"] is None
    assert not any("Labels" in line for line in shown(TOLD))


@pytest.mark.parametrize(("version", "starts"), [(OLD, [20, 30]), (NEW, [])])
def test_only_windows_of_the_version_since_then_are_read(
    version: object, starts: list[int]
) -> None:
    made = tuple(
        window(start, aggregate(OLD, Arm.STABLE, start, answered(1, 1))) for start in (10, 20, 30)
    )
    assert [item.start for item in of_version(made, version, 20.0)] == starts  # type: ignore[arg-type]
