"""Whose fault an error of a library is, by what lies behind it."""

import errno
import os
from itertools import pairwise

import pytest
from gpu_messages import MESSAGES

from contracts.gpu_faults import FaultOf, gpu_fault
from registry.convert.errors import EnvironmentFaultError, VersionError, find_machine_fault
from registry.pyfunc.process import PyfuncError


def caught(*causes: BaseException) -> VersionError:
    """As the code raises it: of a library's error, which may have one of its own behind it."""
    made = VersionError(f"the library can't read the version: {causes[0]}")
    for error, cause in pairwise((made, *causes)):
        error.__cause__ = cause
    return made


@pytest.mark.parametrize(
    "number",
    [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENOMEM, errno.EAGAIN],
)
def test_a_disk_and_limits_of_the_machine_are_not_the_versions(number: int) -> None:
    error = OSError(number, os.strerror(number))
    assert find_machine_fault(caught(error)) is error
    assert find_machine_fault(caught(RuntimeError("can't write the graph"), error)) is error


@pytest.mark.parametrize("error", [MemoryError(), TimeoutError()])
def test_memory_and_time_are_not_the_versions(error: Exception) -> None:
    assert find_machine_fault(caught(ValueError("whatever"), error)) is error


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_what_gpus_say_is_the_versions_only_if_the_table_says_so(name: str) -> None:
    for words in MESSAGES[name]:
        row = gpu_fault(words)
        assert row is not None
        found = find_machine_fault(caught(RuntimeError(words)))
        assert (found is None) == (row.fault_of is FaultOf.VERSION), words


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "config.json"),
        IsADirectoryError(errno.EISDIR, "vocab.txt"),
        KeyError("hidden_size"),
        RuntimeError("size mismatch for classifier.weight"),
    ],
)
def test_files_that_are_wrong_are_the_versions(error: Exception) -> None:
    assert find_machine_fault(caught(error)) is None


def test_our_own_words_blame_no_machine_nor_do_those_of_a_versions_code() -> None:
    assert find_machine_fault(caught(PyfuncError("It failed: no CUDA GPUs are available"))) is None
    assert find_machine_fault(VersionError("its label is called out of memory")) is None
    assert find_machine_fault(EnvironmentFaultError("out of memory")) is None
