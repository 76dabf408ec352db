"""The example of code that a version brings, run as its README says."""

import json
from pathlib import Path

import pytest

from headrace.commands import preprocessor
from preprocess.model_code.process import CodeLimits

EXAMPLE = Path(__file__).parents[2] / "examples" / "preprocessor"
# Generous, as tests share their machine.
LIMITS = CodeLimits(call_seconds=60.0, start_seconds=240.0)


def test_signatures_are_left_out_and_asking_for_money_back_decides(
    capsys: pytest.CaptureFixture[str],
) -> None:
    preprocessor.try_out(str(EXAMPLE / "code"), EXAMPLE / "requests.jsonl", LIMITS, as_json=True)
    told = json.loads(capsys.readouterr().out)
    first, second = told["requests"]
    assert first["made"] == ["Lovely film, thank you!"]
    assert first["observed"] == {"signed": ["yes"]}
    assert second["answers"] == [
        {"negative": 1.0, "positive": 0.0},
        pytest.approx({"negative": 0.4, "positive": 0.6}),
    ]
    assert told["failed"] == 0
    assert told["observed"] == {"signed": {"values": 3, "most frequent": {"no": 2, "yes": 1}}}
