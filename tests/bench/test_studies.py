import pytest

from bench.rollouts import __main__ as rollouts
from bench.studies import NoMarkersError, written

DOCUMENT = "a\n<!-- simulated: one -->\nold\n<!-- end -->\nb\n<!-- simulated: two -->\n<!-- end -->"


def test_the_program_refuses_a_study_that_it_does_not_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        rollouts.main(["--small", "tides"])
    assert "there is no study tides: choose from identical, harmful, worlds" in (
        capsys.readouterr().err
    )


def test_tables_go_between_their_markers_and_nothing_else_is_touched() -> None:
    assert written(DOCUMENT, {"one": "| new |"}) == DOCUMENT.replace("old", "| new |")
    assert written(DOCUMENT, {"two": "t"}).endswith("two -->\nt\n<!-- end -->")
    with pytest.raises(NoMarkersError, match="three"):
        written(DOCUMENT, {"three": ""})
