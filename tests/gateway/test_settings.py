"""Settings: a flag wins over the environment, the environment over the default."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gateway.settings import Settings
from service import flags


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    return flags.parse(Settings, arguments, environment, program="gateway.main")


def test_defaults_suit_the_local_stack() -> None:
    settings = read_settings([], {})
    assert settings == Settings()
    ports = settings.http_port, settings.grpc_port, settings.operations_port
    assert ports == (8080, 8081, 9310)
    assert settings.endpoints_folder == Path.home() / ".headrace" / "endpoints"


def test_folders_follow_the_home_unless_named(tmp_path: Path) -> None:
    settings = read_settings(["--home", str(tmp_path), "--reports", "/elsewhere"], {})
    assert settings.endpoints_folder == tmp_path / "endpoints"
    assert settings.packages_url == (tmp_path / "packages").as_uri()
    assert settings.reports_folder == Path("/elsewhere")
