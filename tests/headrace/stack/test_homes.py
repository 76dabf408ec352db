"""A table of homes: the doctor takes the path, and packages lie below it, for each command."""

import json
from pathlib import Path

import pytest
from registry_fakes import packed
from typer.testing import CliRunner

from headrace.cli import app
from headrace.stack import doctor
from headrace.stack.settings import StackSettings
from headrace.stack.state import Home
from registry.packages.store import PackageStore

NAMES = [
    "a b",
    "Jürgen Müller",
    "日本語",
    "l" * 200,
    "x=y 100 % c#",
    "a%20b",
    "back\\slash",
    "[a]*",
    "$HOME",
]


@pytest.fixture(params=[*NAMES, "a link"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with such a name; the last is a link to another one."""
    found = tmp_path / str(request.param)
    if request.param == "a link":
        (tmp_path / "there").mkdir()
        found.symlink_to(tmp_path / "there")
    found.mkdir(exist_ok=True)
    return found


def test_a_home_that_the_doctor_takes_holds_its_packages(home: Path, tmp_path: Path) -> None:
    settings = StackSettings(
        home=home, cache=tmp_path, kafka_bootstrap="k:1", mlflow_uri="http://m"
    )
    (found,) = (
        one for one in doctor.findings(doctor.examine(settings), settings) if one.name == "home"
    )
    made = Home(home)
    made.marker.touch()
    made.packages.mkdir()
    package = PackageStore(f"file://{made.packages}").publish(
        tmp_path / "made", packed(tmp_path / "made")
    )
    assert found.verdict is doctor.FindingLevel.OK
    assert (made.packages / package.package).is_dir()
    told = CliRunner().invoke(app, ["packages", "verify", "--home", str(home), "-o", "json"])
    assert json.loads(told.stdout) == {"packages": 1, "damaged": {}, "leftovers": []}
