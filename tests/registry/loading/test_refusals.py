"""Whose fault a refusal is: words of GPUs by their table, words of models by their list."""

import pytest
from gpu_messages import OF_ALL, OF_SICK_MACHINES

from contracts.gpu_faults import TABLE, FaultOf
from contracts.loading import FailureCause
from registry.loading.refusals import cause_of, is_version_fault

FAULT_OF = {row.name: row.fault_of for row in TABLE}


@pytest.mark.parametrize(("name", "words"), OF_ALL)
def test_words_of_a_gpu_blame_a_version_only_if_their_row_does(name: str, words: str) -> None:
    for said in (words, f"engine: {words}", f"failed to load 'm', INVALID_GRAPH: {words}"):
        assert is_version_fault(said) is (FAULT_OF[name] is FaultOf.VERSION)


@pytest.mark.parametrize("words", OF_SICK_MACHINES)
def test_words_of_a_sick_machine_blame_no_version(words: str) -> None:
    told = "load failed for model 'm-v2': version 1 is at UNAVAILABLE state: Internal: "
    assert not is_version_fault(f"{told}onnx runtime error 6: {words};")


@pytest.mark.parametrize(("name", "words"), OF_ALL)
def test_only_want_of_memory_is_want_of_room(name: str, words: str) -> None:
    room = FAULT_OF[name] is FaultOf.MEMORY
    assert cause_of(words) is (FailureCause.ROOM if room else FailureCause.REFUSED)


def test_words_of_a_model_blame_it() -> None:
    assert is_version_fault("InvalidProtobuf: Protobuf parsing failed")
    assert cause_of("InvalidProtobuf: Protobuf parsing failed") is FailureCause.REFUSED
    assert not is_version_fault("a word that nobody has listed")
