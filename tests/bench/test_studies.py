import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from bench.drift import __main__ as drift
from bench.rollouts import __main__ as rollouts
from bench.studies import Found, NoMarkersError, run, written

DOCUMENT = "a\n<!-- simulated: one -->\nold\n<!-- end -->\nb\n<!-- simulated: two -->\n<!-- end -->"


def found(name: str, size: int) -> Found:
    if size == 0:
        raise ArithmeticError(name)
    return Found({"size": size}, {"rows": [name]}, {name: f"| {size} |"}, f"{name}: {size}")


def of_rows(name: str, size: int, rows: tuple[str, ...]) -> Found:
    return replace(found(name, size), rows=rows)


def test_the_programs_refuse_a_study_that_they_do_not_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        drift.main(["tides"])
    assert "there is no study tides: choose from steady, rhythm" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        rollouts.main(["--small", "tides"])
    assert "there is no study tides: choose from caught, late" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        rollouts.main(["worlds", "late", "--rows", "D"])
    assert "--rows goes with copies, harmful" in capsys.readouterr().err


def test_what_was_found_is_kept_beside_other_studies_though_a_later_one_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, document = tmp_path / "results.json", tmp_path / "page.md"
    results.write_text('{"studies": {"older": {"rows": []}}}', encoding="utf-8")
    document.write_text(DOCUMENT, encoding="utf-8")
    with pytest.raises(ArithmeticError, match="two"):
        run({"one": 5, "two": 0}, found, results=results, document=document)
    assert capsys.readouterr().out == "one: 5\n"
    kept = json.loads(results.read_text(encoding="utf-8"))["studies"]
    assert kept.keys() == {"older", "one"}
    assert (kept["one"]["size"], kept["one"]["rows"]) == (5, ["one"])
    assert {"seconds", "machine"} <= kept["one"].keys()
    assert document.read_text(encoding="utf-8") == DOCUMENT.replace("old", "| 5 |")


def test_rows_that_are_made_again_say_how_and_the_others_stay_as_they_were(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    for size, rows in ((5, ()), (6, ("a", "b")), (7, ("b",))):
        made = partial(of_rows, rows=rows)
        run({"one": size}, made, results=results, document=None)
    kept = json.loads(results.read_text(encoding="utf-8"))["studies"]["one"]
    assert kept["size"] == 5
    assert [(each["size"], each["rows"]) for each in kept["later"]] == [(6, ["a"]), (7, ["b"])]
    assert all("machine" in each for each in kept["later"])
    run({"one": 8}, found, results=results, document=None)
    kept = json.loads(results.read_text(encoding="utf-8"))["studies"]["one"]
    assert kept["size"] == 8
    assert "later" not in kept


def test_tables_go_between_their_markers_and_nothing_else_is_touched() -> None:
    assert written(DOCUMENT, {"one": "| new |"}) == DOCUMENT.replace("old", "| new |")
    assert written(DOCUMENT, {"two": "t"}).endswith("two -->\nt\n<!-- end -->")
    with pytest.raises(NoMarkersError, match="three"):
        written(DOCUMENT, {"three": ""})
