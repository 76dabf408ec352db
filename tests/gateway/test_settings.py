"""Settings: a flag wins over the environment, the environment over the default."""

from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from gateway.settings import Settings
from service import flags


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    return flags.parse(Settings, arguments, environment, program="gateway.main")


def test_defaults_suit_the_local_stack() -> None:
    settings = read_settings([], {})
    assert settings == Settings()
    assert (settings.http_port, settings.grpc_port) == (8080, 8081)
    assert settings.endpoints_folder == Path.home() / ".headrace" / "endpoints"


def test_a_flag_wins_over_the_environment() -> None:
    environment = {"HEADRACE_HTTP_PORT": "1", "HEADRACE_GRPC_PORT": "2"}
    settings = read_settings(["--http-port", "3"], environment)
    assert (settings.http_port, settings.grpc_port) == (3, 2)


def test_folders_follow_the_home_unless_named(tmp_path: Path) -> None:
    settings = read_settings(["--home", str(tmp_path), "--reports", "/elsewhere"], {})
    assert settings.endpoints_folder == tmp_path / "endpoints"
    assert settings.packages_url == (tmp_path / "packages").as_uri()
    assert settings.reports_folder == Path("/elsewhere")


@pytest.mark.parametrize("arguments", [["--triton-grpc", "a:1, b:2,"], ["--triton-grpc=a:1,b:2"]])
def test_addresses_are_a_list(arguments: list[str]) -> None:
    settings = read_settings(arguments, {"HEADRACE_KAFKA_BOOTSTRAP": "k:9"})
    assert settings.triton_grpc == ("a:1", "b:2")
    assert settings.kafka_bootstrap == ("k:9",)


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--http-port", "many"], {}),
        (["--engine", "other"], {}),
        ([], {"HEADRACE_ENGINE": "other"}),
        ([], {"HEADRACE_BATCHES_AHEAD": "x"}),
        (["--unknown", "1"], {}),
    ],
)
def test_a_mistake_ends_the_program_with_a_sentence(
    arguments: list[str], environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        read_settings(arguments, environment)
    assert end.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_help_tells_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(["--help"], {})
    shown = capsys.readouterr().out
    for entry in fields(Settings):
        assert "--" + entry.name.replace("_", "-") in shown


def test_settings_never_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().http_port = 1  # type: ignore[misc]
