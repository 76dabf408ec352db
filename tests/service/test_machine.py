"""What of a machine a process may use, told from files as control groups have them."""

import os
from pathlib import Path

import pytest

from service import machine

V2 = "0::/\n"
V1 = "5:memory:/\n4:cpu,cpuacct:/\n1:name=systemd:/\n0::/\n"
ALL = len(os.sched_getaffinity(0))
PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class Machine:
    """A folder with control groups, and the file that names those of a process."""

    def __init__(self, folder: Path) -> None:
        self.groups, self.own = folder / "groups", folder / "own"

    def write(self, own: str, files: dict[str, str]) -> None:
        self.own.parent.mkdir(parents=True, exist_ok=True)
        self.own.write_text(own)
        for name, content in files.items():
            path = self.groups / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    def cores(self) -> int:
        return machine.cores(self.groups, self.own)

    def memory(self) -> int:
        return machine.memory_bytes(self.groups, self.own)


@pytest.fixture
def faked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with 64 cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("", {}, 64),
        (V2, {"cpu.max": "max 100000\n"}, 64),
        (V2, {"cpu.max": "400000 100000\n"}, 4),
        (V2, {"cpu.max": "450000 100000\n"}, 4),
        (V2, {"cpu.max": "50000 100000\n"}, 1),
        (V2, {"cpu.max": "99999999 100000\n"}, 64),
        (V2, {"cpu.max": "nonsense\n"}, 64),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "max 100000\n"}, 3),
        ("0::/../other\n", {"cpu.max": "200000 100000\n"}, 2),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "1"}, 64),
        (
            V1,
            {"cpu,cpuacct/cpu.cfs_quota_us": "800000", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
            8,
        ),
        (
            "4:cpu,cpuacct:/pod/container\n",
            {
                "cpu,cpuacct/pod/cpu.cfs_quota_us": "200000",
                "cpu,cpuacct/pod/cpu.cfs_period_us": "100000",
            },
            2,
        ),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "100", "cpu,cpuacct/cpu.cfs_period_us": "0"}, 64),
    ],
)
def test_cores_are_those_that_the_machine_and_every_group_allow(
    faked: Machine, own: str, files: dict[str, str], cores: int
) -> None:
    faked.write(own, files)
    assert faked.cores() == cores


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        (V2, {"memory.max": "max\n"}, PHYSICAL),
        (V2, {"memory.max": "1048576\n"}, 1048576),
        (V1, {"memory/memory.limit_in_bytes": "2097152\n"}, 2097152),
        (V1, {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, PHYSICAL),
    ],
)
def test_memory_is_the_least_of_the_machine_and_its_groups(
    faked: Machine, own: str, files: dict[str, str], limit: int
) -> None:
    faked.write(own, files)
    assert faked.memory() == limit


def test_this_machine_has_no_more_than_it_has() -> None:
    assert 1 <= machine.cores() <= ALL
    assert 0 < machine.memory_bytes() <= PHYSICAL
