import json
import time

import pytest
import typer
from typer.testing import CliRunner

from headrace.cli import app
from headrace.commands.recount import tell
from headrace.errors import RefusedError
from headrace.options import moment
from measures.recounting import CountDifference, GatewaySent
from stats.recounting.counters import CounterRecount
from stats.recounting.recount import Recount, RecountScope

ASKED = RecountScope(100.0, 200.0)
WRONG = (3, 64, CountDifference("tone 1 stable 100 answered", 7, 5))


def test_agreement_is_told_with_its_size(capsys: pytest.CaptureFixture[str]) -> None:
    tell(ASKED, Recount(ranges=4, events=900, numbers=5000), as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "900 events in 4 ranges were counted again: all 5000 numbers" in said


def test_every_difference_is_told_and_ends_in_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RefusedError, match="1 numbers are not what the raw events say"):
        tell(ASKED, Recount(ranges=1, events=9, numbers=50, differences=[WRONG]), as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["agrees"] is False
    assert document["differences"] == [
        {
            "partition": 3,
            "offset": 64,
            "where": "tone 1 stable 100 answered",
            "written": 7,
            "counted": 5,
        }
    ]


def test_what_is_in_no_window_is_no_agreement() -> None:
    with pytest.raises(RefusedError, match="7 messages are in no window"):
        tell(ASKED, Recount(ranges=1, unfolded=7), as_json=False)


def test_the_exporter_is_told_too(capsys: pytest.CaptureFixture[str]) -> None:
    counted = Recount(ranges=1, events=1, numbers=9)
    tell(ASKED, counted, CounterRecount(since=60.0, numbers=77), as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "All 77 numbers of the exporter are those of the windows since 1970-01-01T00:01" in said
    wrong = CounterRecount(numbers=77, differences=(CountDifference("tone 1 stable texts", 3, 2),))
    with pytest.raises(RefusedError, match="1 numbers of the exporter"):
        tell(ASKED, counted, wrong, as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document["agrees"] is True
    assert document["exporter"]["differences"] == [
        {"where": "tone 1 stable texts", "shown": 3, "counted": 2}
    ]


def test_an_exporter_that_can_t_be_compared_is_no_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell(ASKED, Recount(), CounterRecount(why_not="it has not begun"), as_json=False)
    assert "can't be compared: it has not begun" in capsys.readouterr().out


def test_missing_messages_and_losses_are_told_by_gateway(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sent = (
        GatewaySent("gateway-a", 0, 9, (3, 4), {"tone": {"buffer_full": 5}}, 150.0, ended=False),
        GatewaySent("gateway-b", 4, 9, (), {}, 160.0, ended=True),
    )
    tell(ASKED, Recount(ranges=1, events=9, numbers=50, gateways=sent), as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "Of 2 starts of gateways 2 messages are missing" in said
    assert "they say that they lost 5 events" in said
    assert "gateway-a: messages 3, 4" in said
    assert "gateway-a: lost of tone: 5 buffer_full" in said
    tell(ASKED, Recount(ranges=1, events=9, numbers=50, gateways=sent), as_json=True)
    told = json.loads(capsys.readouterr().out)["gateways"]
    assert [(each["gateway"], each["missing"], each["ended"]) for each in told] == [
        ("gateway-a", [3, 4], False),
        ("gateway-b", [], True),
    ]


def test_nothing_to_count_is_not_called_agreement(capsys: pytest.CaptureFixture[str]) -> None:
    tell(ASKED, Recount(gone=2, other_topic=1), as_json=False)
    said = capsys.readouterr().out
    assert "No events of this time can be counted again." in said
    assert "2 ranges can't be counted" in said
    assert "agree" not in said


def test_times_are_read_as_people_write_them() -> None:
    assert moment("15m", "--from") == pytest.approx(time.time() - 900, abs=60)
    assert moment("now", "--to") == pytest.approx(time.time(), abs=60)
    assert moment("1970-01-02", "--to") == 86400.0
    assert moment("1970-01-01T02:00+02:00", "--to") == 0.0
    assert moment("12.5", "--to") == 12.5
    for wrong in ("yesterday", "-5", "inf", "15 m"):
        with pytest.raises(typer.BadParameter):
            moment(wrong, "--to")


def test_a_time_that_ends_before_it_begins_is_refused() -> None:
    done = CliRunner().invoke(app, ["recount", "--from", "1m", "--to", "2m"])
    assert done.exit_code == 2
