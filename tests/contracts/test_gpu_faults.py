"""Each row of the table knows the real words that it is of, and no others."""

import pytest
from gpu_messages import MESSAGES, OF_ALL, OF_NO_GPU
from hypothesis import given
from hypothesis import strategies as st

from contracts.gpu_faults import (
    TABLE,
    FaultOf,
    GpuFault,
    Remedy,
    ends_process,
    gpu_fault,
    is_broken,
    is_memory,
)


def test_every_row_has_a_name_of_its_own_a_source_and_real_words() -> None:
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names)
    assert names == list(MESSAGES)
    assert all(row.source for row in TABLE)
    assert all(MESSAGES.values())


@pytest.mark.parametrize(("name", "words"), OF_ALL)
def test_words_are_judged_by_the_row_that_they_are_of(name: str, words: str) -> None:
    row = gpu_fault(words)
    assert row is not None
    assert row.name == name


@pytest.mark.parametrize("words", OF_NO_GPU)
def test_words_of_no_gpu_are_judged_by_no_row(words: str) -> None:
    assert gpu_fault(words) is None
    assert not ends_process(words)
    assert not is_memory(words)


@given(st.sampled_from(OF_ALL), st.sampled_from(["", "engine: ", "[rank0]: "]), st.booleans())
def test_neither_case_nor_what_stands_before_changes_the_verdict(
    known: tuple[str, str], before: str, lower: bool
) -> None:
    name, words = known
    row = gpu_fault(before + (words.lower() if lower else words))
    assert row is not None
    assert row.name == name


@pytest.mark.parametrize("found", TABLE, ids=lambda row: row.name)
def test_what_is_done_fits_what_is_at_fault(found: GpuFault) -> None:
    words = MESSAGES[found.name][0]
    assert is_memory(words) == (found.fault_of is FaultOf.MEMORY)
    assert ends_process(words) == (found.remedy in (Remedy.CORDON, Remedy.RESTART))
    broken = found.fault_of is FaultOf.DEVICE and found.remedy is Remedy.CORDON
    assert is_broken(words) == broken
    # Only a device or its node is repaired, and only memory is waited for.
    assert found.remedy is not Remedy.CORDON or found.fault_of in (
        FaultOf.DEVICE,
        FaultOf.ENVIRONMENT,
    )
    assert (found.remedy is Remedy.RELOAD) == (found.fault_of is FaultOf.MEMORY)
