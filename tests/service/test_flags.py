"""Settings from flags and the environment."""

from dataclasses import dataclass, field, fields
from pathlib import Path

import pytest

from contracts.ceilings import NO_CEILINGS, Ceilings
from controller.settings import ControllerSettings
from gateway.settings import Settings as GatewaySettings
from registry.settings import LoaderSettings
from service.flags import option, parse


@dataclass(frozen=True, slots=True)
class Example:
    """An example."""

    folder: Path = field(metadata={"help": "A folder."})
    wait_seconds: float = option(1.5, "A time.")
    loud: bool = option(default=False, text="A switch.")
    kind: str = option("a", "A choice.", choices=("a", "b"))
    hosts: tuple[str, ...] = option((), "Some hosts.")


def read(*argv: str, **environment: str) -> Example:
    return parse(Example, argv, environment, program="example")


def test_a_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    assert read("--folder=/x") == Example(Path("/x"))
    assert read(HEADRACE_FOLDER="/x", HEADRACE_WAIT_SECONDS="2", HEADRACE_LOUD="yes") == Example(
        Path("/x"), 2.0, True
    )
    assert read("--folder=/x", "--hosts=a:1, b:2,", HEADRACE_HOSTS="c").hosts == ("a:1", "b:2")
    assert read("--folder=/x", HEADRACE_HOSTS="c").hosts == ("c",)
    assert read("--wait-seconds=3", "--folder=/y", HEADRACE_WAIT_SECONDS="2").wait_seconds == 3.0


@pytest.mark.parametrize(
    "argv",
    [[], ["--folder=/x", "--wait-seconds=soon"], ["--folder=/x", "--loud=perhaps"],
     ["--folder=/x", "--kind=c"], ["--folder=/x", "--unknown=1"]],
)  # fmt: skip
def test_what_can_not_be_read_ends_with_a_sentence(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read(*argv)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_a_variable_is_held_to_the_choices_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read("--folder=/x", HEADRACE_KIND="c")
    assert ended.value.code == 2
    assert "HEADRACE_KIND is 'c', not one of a, b" in capsys.readouterr().err


@pytest.mark.parametrize("settings", [ControllerSettings, GatewaySettings, LoaderSettings])
def test_help_names_every_setting_with_its_variable(
    settings: type[ControllerSettings | GatewaySettings | LoaderSettings],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(settings, ["--help"], {}, program="x")
    assert ended.value.code == 0
    text = capsys.readouterr().out.replace("\n", "")
    for item in fields(settings):
        assert f"--{item.name.replace('_', '-')}" in text
        assert f"HEADRACE_{item.name.upper()}"[:20] in text


@dataclass(frozen=True)
class Wished:
    """One value that its own type reads."""

    ceilings: Ceilings = option(NO_CEILINGS, "Most of each.", read=Ceilings.read)


def test_a_value_may_be_read_by_its_own_type_and_refuses_in_its_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert parse(Wished, [], {}, program="p").ceilings == NO_CEILINGS
    found = parse(Wished, [], {"HEADRACE_CEILINGS": "instances=2"}, program="p")
    assert found.ceilings == Ceilings({"instances": 2.0})
    with pytest.raises(SystemExit):
        parse(Wished, ["--ceilings=instances=0"], {}, program="p")
    assert "is at least 1, not 0" in capsys.readouterr().err
