import os
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.stack import doctor
from headrace.stack.doctor import FindingLevel, Machine
from headrace.stack.settings import StackSettings

SETTINGS = StackSettings(home=Path("/h"), cache=Path("/c"))
GOOD = Machine(
    system="Linux",
    python=(3, 11),
    disk_free=10**11,
    memory_free=10**10,
    shared_memory_free=10**9,
    cpus=2,
)


def bad(machine: Machine, settings: StackSettings = SETTINGS) -> dict[str, str]:
    found = doctor.findings(machine, settings)
    return {item.name: item.advice for item in found if item.verdict is FindingLevel.BAD}


def test_nothing_is_wrong_with_a_good_machine() -> None:
    found = doctor.findings(GOOD, SETTINGS)
    assert {item.verdict for item in found} == {FindingLevel.OK}
    assert not any(item.advice for item in found)


@pytest.mark.parametrize(
    ("machine", "name", "advice"),
    [
        (replace(GOOD, system="Darwin"), "system", "Linux"),
        (replace(GOOD, python=(3, 10)), "Python", "3.11"),
        (replace(GOOD, python=(3, 14)), "Python", "3.13"),
        (replace(GOOD, triton_lacks=("Install libpython.",)), "Triton", "Install libpython."),
        (replace(GOOD, home_fault="can't be written to: x"), "home", "--home"),
        (replace(GOOD, disk_free=4 * 10**7), "disk", "--home"),
        (replace(GOOD, java=False), "Kafka", "--kafka-bootstrap"),
        (replace(GOOD, uv=False), "uv", "headrace[local]"),
        (replace(GOOD, shared_memory_free=1000), "shared memory", "/dev/shm"),
        (replace(GOOD, shared_memory_free=None), "shared memory", "/dev/shm"),
        (replace(GOOD, taken=(("mlflow", 5000),)), "ports", "--port-mlflow"),
    ],
)
def test_what_is_missing_comes_with_what_to_do(machine: Machine, name: str, advice: str) -> None:
    found = bad(machine)
    assert list(found) == [name]
    assert advice in found[name]


def test_the_ports_of_the_stack_that_runs_on_this_home_are_no_fault() -> None:
    machine = replace(GOOD, taken=(("mlflow", 5000),), own_stack=True)
    (ports,) = (item for item in doctor.findings(machine, SETTINGS) if item.name == "ports")
    assert (ports.verdict, ports.found) == (FindingLevel.OK, "in use by the stack that runs on /h")


def test_little_memory_or_disk_is_said_and_stops_nothing() -> None:
    machine = replace(GOOD, memory_free=10**9, disk_free=10**9)
    tight = {f.name for f in doctor.findings(machine, SETTINGS) if f.verdict is FindingLevel.TIGHT}
    assert tight == {"memory", "disk"}
    assert not bad(machine)


def test_a_home_with_a_comma_is_refused_for_kafka_would_split_it() -> None:
    settings = replace(SETTINGS, home=Path("/a,b"))
    assert "comma" in bad(GOOD, settings)["home"]
    assert not bad(GOOD, replace(settings, kafka_bootstrap="k:1"))


@pytest.mark.parametrize("name", ["a%20b", "who?"])
def test_a_home_that_mlflow_would_look_for_elsewhere_is_refused(name: str) -> None:
    settings = replace(SETTINGS, home=Path("/", name))
    assert "MLflow" in bad(GOOD, settings)["home"]
    assert not bad(GOOD, replace(settings, mlflow_uri="http://m"))
    assert not bad(GOOD, replace(SETTINGS, home=Path("/100 % c#")))


def test_a_home_whose_packages_would_lie_elsewhere_is_refused() -> None:
    settings = replace(SETTINGS, home=Path("/a::b"))
    assert "packages" in bad(GOOD, settings)["home"]
    assert not bad(GOOD, replace(settings, package_store="s3://b"))


def test_a_home_that_can_not_be_is_a_finding_and_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    settings = StackSettings(home=file / "home", cache=tmp_path)
    assert doctor.examine(settings).home_fault == f"can't be made: {file} is no folder"
    assert not doctor.examine(replace(settings, home=tmp_path / "new")).home_fault


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_another_users_home_is_a_finding_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0)
    settings = StackSettings(home=tmp_path / "theirs" / "home", cache=tmp_path)
    assert "another user" in doctor.examine(settings).home_fault


def test_sizes_that_can_not_be_told_are_no_fault() -> None:
    assert not bad(replace(GOOD, memory_free=None, disk_free=None))


def test_an_existing_service_needs_nothing_of_this_machine() -> None:
    settings = replace(SETTINGS, triton_grpc="t:1", kafka_bootstrap="k:1")
    machine = replace(GOOD, uv=True, shared_memory_free=None)
    assert not bad(machine, settings)


def test_more_gateways_and_tritons_want_more_memory_and_shared_memory() -> None:
    several = replace(SETTINGS, gateways=2, tritons=2)
    enough = replace(
        GOOD, memory_free=doctor.MEMORY_BYTES, shared_memory_free=doctor.SHARED_MEMORY_BYTES
    )
    assert {item.verdict for item in doctor.findings(enough, SETTINGS)} == {FindingLevel.OK}
    told = {item.name: item.verdict for item in doctor.findings(enough, several)}
    assert (told["memory"], told["shared memory"]) == (FindingLevel.TIGHT, FindingLevel.BAD)
