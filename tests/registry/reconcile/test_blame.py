"""Who is at fault: a version by proof, or the Triton that refuses what others hold."""

from dataclasses import dataclass
from enum import Enum

import pytest
from gpu_messages import OF_SICK_MACHINES
from hypothesis import given
from hypothesis import strategies as st
from registry_fakes import ref, report

from contracts.endpoint import NAMED_LIMIT
from contracts.gpu_faults import is_memory
from contracts.loading import (
    Device,
    DeviceKind,
    FailureCause,
    LoaderReport,
    LoadFailure,
    Trouble,
    WitnessAnswer,
)
from contracts.model import ModelRef
from registry.loading import refusals
from registry.reconcile import pools
from registry.reconcile.blame import Verdicts, judge

STABLE, NEW = ref("1", "a"), ref("2", "b")
ECC = "CUDA failure 214: uncorrectable ECC error encountered ; GPU=0"
GRAPH = "INVALID_GRAPH : This is an invalid model. Type Error: Type 'x' of input is invalid"


def refusal(
    words: str, witness: WitnessAnswer = WitnessAnswer.LOADS, **fields: object
) -> LoadFailure:
    """As a loader tells it, of a package that was refused again after a witness was loaded."""
    proven = refusals.is_version_fault(words) and witness is WitnessAnswer.LOADS
    failure = LoadFailure(
        ref=NEW,
        reason=words,
        by_version=proven,
        cause=refusals.cause_of(words),
        witness=witness,
        again=True,
    )
    return failure.model_copy(update=fields)


def refusing(name: str, failure: LoadFailure) -> LoaderReport:
    return report(STABLE, loader=name, failed=(failure,))


@pytest.mark.parametrize("others", [(), ("t1",)])
def test_what_a_triton_refused_only_before_its_witness_was_loaded_blames_nobody(
    others: tuple[str, ...],
) -> None:
    # It may have been sick at the one moment, and well at the other.
    reports = tuple(refusing(name, refusal(ECC, again=False)) for name in ("t0", *others))
    assert judge(reports) == Verdicts()
    if others:
        reports = (refusing("t0", refusal(ECC)), *reports[1:])
        assert not judge(reports).at_fault
    reports = tuple(refusing(each.loader, refusal(ECC)) for each in reports)
    assert judge(reports).at_fault.keys() == {NEW}
    in_words = refusing("t0", refusal(GRAPH, again=False))  # the model is blamed at once
    assert judge((in_words, *reports[1:])).at_fault.keys() == {NEW}


@pytest.mark.parametrize("words", OF_SICK_MACHINES)
def test_one_sick_triton_of_three_blames_nobody_and_is_cordoned(words: str) -> None:
    reports = (
        report(STABLE, NEW, loader="t0"),
        report(STABLE, NEW, loader="t1"),
        refusing("t2", refusal(words, WitnessAnswer.REFUSED)),
    )
    found = judge(reports)
    assert not found.at_fault
    assert found.excused == {"t2"}
    assert found.cordoned == (set() if is_memory(words) else {"t2"})  # what is full serves on
    assert words in found.sick["t2"]
    assert [each.loader for each in found.deciding(reports)] == ["t0", "t1"]


def test_a_triton_that_does_not_answer_decides_nothing_while_another_one_is_ready() -> None:
    dead = report(loader="t2", ready=False)
    reports = (report(STABLE, NEW, loader="t0"), report(STABLE, NEW, loader="t1"), dead)
    assert judge(reports) == Verdicts()  # it may be starting
    silent = dead.model_copy(update={"silent": True})
    found = judge((*reports[:2], silent))
    assert [each.loader for each in found.deciding((*reports[:2], silent))] == ["t0", "t1"]
    assert found.cordoned == {"t2"}
    assert "not answered" in found.sick["t2"]
    assert judge((silent, report(loader="t1", ready=False))) == Verdicts()


def test_a_triton_that_does_not_answer_keeps_no_bad_version_from_being_rejected() -> None:
    silent = report(loader="t1", ready=False).model_copy(update={"silent": True})
    assert judge((refusing("t0", refusal("[Errno 71] never heard of")), silent)).at_fault


def test_a_triton_that_does_not_answer_and_is_expected_back_has_yet_to_say_so_too() -> None:
    silent = refusing("t1", refusal(GRAPH)).model_copy(update={"silent": True, "ready": False})
    assert not judge((refusing("t0", refusal(GRAPH)), silent), {"t1"}).at_fault


@pytest.mark.parametrize("words", [GRAPH, "it strays from the original by 0.4"])
def test_words_that_blame_the_model_reject_a_version_once_a_second_triton_refuses_it(
    words: str,
) -> None:
    first = refusing("t0", refusal(words))
    assert not judge((first, report(STABLE, loader="t1"))).at_fault  # t0 may compute wrongly
    for second in (refusal(words), refusal("[Errno 71] never heard of")):
        assert words in judge((first, refusing("t1", second))).at_fault[NEW]
    assert words in judge((first,)).at_fault[NEW]  # there is no other


@pytest.mark.parametrize("cause", ["", "room", "damaged", "away"])
def test_a_second_triton_that_said_nothing_of_a_version_does_not_accuse_it(
    cause: str,
) -> None:
    first = refusing("t0", refusal("it strays from the original by 0.4"))
    mute = refusal("no space left", cause=FailureCause(cause), persists=True)
    assert not judge((first, refusing("t1", mute))).at_fault
    unasked = refusal("whatever", persists=True, witness=WitnessAnswer.UNTRIED)
    assert judge((first, refusing("t1", unasked))).at_fault.keys() == {NEW}


@pytest.mark.parametrize("words", [GRAPH, "[Errno 71] never heard of"])
def test_a_triton_is_not_the_only_one_while_others_are_expected_back(words: str) -> None:
    reports = (refusing("t0", refusal(words)),)
    assert not judge(reports, {"t1", "t2"}).at_fault
    assert judge(reports).at_fault


def test_a_version_that_another_triton_holds_is_never_at_fault() -> None:
    reports = (refusing("t0", refusal(GRAPH)), report(STABLE, NEW, loader="t1"))
    assert judge(reports) == Verdicts()  # once is no more than a hiccup of that Triton
    reports = (refusing("t0", refusal(GRAPH, persists=True)), report(STABLE, NEW, loader="t1"))
    assert judge(reports).cordoned == {"t0"}


def test_a_witness_that_was_not_loaded_accuses_nobody() -> None:
    for witness in (WitnessAnswer.UNTRIED, WitnessAnswer.REFUSED):
        assert not judge((refusing("t0", refusal(GRAPH, witness)),)).at_fault


def test_the_only_triton_rejects_what_it_refuses_in_any_words_if_its_witness_loads() -> None:
    assert judge((refusing("t0", refusal("[Errno 71] never heard of")),)).at_fault


def test_memory_is_no_versions_fault_on_however_many_tritons() -> None:
    told = refusal("onnx runtime error 6: Failed to allocate memory", persists=True)
    found = judge((refusing("t0", told), refusing("t1", told)))
    assert not found.at_fault
    assert not found.sick


def test_a_triton_without_room_is_not_cordoned_and_does_not_hold_the_others_up() -> None:
    told = refusal("out of memory", persists=True)
    found = judge((refusing("t0", told), report(STABLE, NEW, loader="t1")))
    assert found.excused == {"t0"}
    assert not found.cordoned


def test_the_last_that_holds_what_others_can_not_load_is_never_cordoned() -> None:
    old = ref("0", "c")
    sick = report(STABLE, old, loader="t0", failed=(refusal(ECC, WitnessAnswer.REFUSED),))
    full = refusal("out of memory", ref=old)
    assert not judge((sick, report(STABLE, NEW, loader="t1", failed=(full,)))).cordoned
    assert not judge((sick, report(STABLE, NEW, old, loader="t1", ready=False))).cordoned
    assert judge((sick, report(STABLE, NEW, old, loader="t1"))).cordoned == {"t0"}


def failing(loader: str, *loaded: ModelRef, **fields: bool) -> LoaderReport:
    """Of a Triton that fails at the stable version's probe."""
    trouble = Trouble(ref=STABLE, reason="CUDA failure 719", **{"fails": True, **fields})
    return report(STABLE, *loaded, loader=loader).model_copy(update={"troubles": (trouble,)})


def test_one_triton_that_fails_at_what_another_answers_is_cordoned() -> None:
    found = judge((failing("t0"), report(STABLE, loader="t1")))
    assert found.excused == found.cordoned == {"t0"}
    assert "t1" in found.sick["t0"]
    assert "CUDA failure 719" in found.sick["t0"]


def test_of_a_large_pool_few_are_cordoned_and_first_those_that_fail_their_callers() -> None:
    told = refusal(ECC, persists=True)
    refusals = tuple(refusing(f"a{number:02}", told) for number in range(30))
    failures = tuple(failing(f"b{number}") for number in range(5))
    well = tuple(report(STABLE, NEW, loader=f"c{number:02}") for number in range(40))
    found = judge((*refusals, *failures, *well))
    assert len(found.excused) == 35
    assert len(found.cordoned) == NAMED_LIMIT
    assert {each.loader for each in failures} < found.cordoned


def test_what_all_tritons_fail_at_makes_none_sick() -> None:
    assert judge((failing("t0"), failing("t1"))) == Verdicts()
    assert judge((failing("t0"),)) == Verdicts()


def test_one_that_fails_at_what_only_tritons_out_of_service_hold_goes_on() -> None:
    away = report(STABLE, loader="t1", ready=False)
    assert not judge((failing("t0"), away)).cordoned


def test_the_last_that_holds_something_goes_on_though_it_fails_at_something_else() -> None:
    full = refusal("out of memory", persists=True)
    found = judge((failing("t0", NEW), refusing("t1", full)))
    assert found.excused == {"t0"}
    assert not found.cordoned


def test_what_ready_ones_neither_hold_nor_fail_at_keeps_none_that_fails_in_service() -> None:
    # A candidate that they have yet to load, or what nobody wants any more.
    found = judge((failing("t0", NEW), report(STABLE, loader="t1"), report(STABLE, loader="t2")))
    assert found.cordoned == {"t0"}


def test_one_that_fails_its_callers_is_excused_before_one_that_only_lacks_room() -> None:
    full = refusing("t0", refusal("out of memory", persists=True))
    found = judge((full, failing("t1", NEW), report(STABLE, NEW, loader="t2")))
    assert found.sick.keys() == {"t0", "t1"}
    assert found.excused == found.cordoned == {"t1"}


def test_what_only_slows_or_is_users_own_code_makes_no_triton_sick() -> None:
    assert judge((failing("t0", fails=False), report(STABLE, loader="t1"))) == Verdicts()


def test_a_version_under_which_triton_ends_needs_a_second_that_says_so() -> None:
    told = refusal("Triton ended 2 times in a row", cause=FailureCause.CRASHED)
    assert not judge((refusing("t0", told), report(STABLE, loader="t1"))).at_fault
    assert judge((refusing("t0", told), refusing("t1", told))).at_fault
    found = judge((refusing("t0", told), report(STABLE, NEW, loader="t1")))
    assert found.excused == {"t0"}
    assert not found.cordoned  # it serves stable as before


LOST = Device(kind=DeviceKind.GPU, fault="this Triton's GPU can't be used any more: Xid 79")


def test_a_triton_whose_gpu_is_lost_is_cordoned_though_it_refuses_no_load() -> None:
    sick = report(STABLE, NEW, loader="t0", ready=False).model_copy(update={"device": LOST})
    found = judge((sick, report(STABLE, NEW, loader="t1")))
    assert found.cordoned == found.excused == {"t0"}
    assert "Xid 79" in found.sick["t0"]
    assert not found.at_fault


def test_a_triton_whose_gpu_is_lost_does_not_hold_what_the_others_refuse() -> None:
    sick = report(STABLE, NEW, loader="t0", ready=False).model_copy(update={"device": LOST})
    told = refusal(GRAPH, persists=True)
    found = judge((sick, refusing("t1", told), refusing("t2", told)))
    assert found.at_fault.keys() == {NEW}
    assert found.sick.keys() == {"t0"}


def test_a_triton_that_fails_at_a_versions_probe_does_not_hold_it() -> None:
    told, trouble = refusal(GRAPH, persists=True), Trouble(ref=NEW, reason="NaN", fails=True)
    holds = report(STABLE, NEW, loader="t0")
    assert judge((holds, refusing("t1", told))).cordoned == {"t1"}
    fails = holds.model_copy(update={"troubles": (trouble,)})
    assert judge((fails, refusing("t1", told))) == Verdicts()  # nor is a probe a refusal
    assert judge((fails, refusing("t1", told), refusing("t2", told))).at_fault.keys() == {NEW}


def test_the_only_triton_whose_gpu_is_lost_is_named_and_goes_on() -> None:
    sick = report(STABLE, loader="t0", ready=False).model_copy(update={"device": LOST})
    found = judge((sick,))
    assert found.sick.keys() == {"t0"}
    assert not found.cordoned


def test_a_triton_whose_gpu_is_lost_accuses_nobody() -> None:
    sick = refusing("t0", refusal(GRAPH)).model_copy(update={"device": LOST})
    assert not judge((sick, report(STABLE, loader="t1"))).at_fault


def test_a_triton_that_holds_nothing_yet_is_not_sick_for_want_of_its_gpu() -> None:
    starting = report(loader="t0", ready=False).model_copy(update={"device": LOST})
    assert judge((starting, report(STABLE, loader="t1"))) == Verdicts()


class Health(Enum):
    """How a Triton is."""

    WELL = "loads what is good, refuses what is bad"
    SICK = "refuses all, also its witness"
    SELECTIVE = "refuses what is new, and loads its witness"
    FULL = "is out of memory"


@dataclass(frozen=True)
class Pool:
    """Tritons, and what they say of a version in what words."""

    healths: tuple[Health, ...]
    good: bool
    words: str
    sick_words: tuple[str, ...]

    def told(self, place: int) -> tuple[bool, LoadFailure | None]:
        """Whether one holds the version, and what it says if not."""
        health = self.healths[place]
        if health is Health.WELL:
            return self.good, None if self.good else refusal(self.words, persists=True)
        if health is Health.FULL:
            return False, refusal("out of memory", persists=True)
        if health is Health.SELECTIVE:
            return False, refusal(ECC, persists=True)
        return False, refusal(self.sick_words[place], WitnessAnswer.REFUSED, persists=True)


@st.composite
def some_pools(draw: st.DrawFn) -> Pool:
    number = draw(st.integers(1, 6))
    alone = [Health.WELL, Health.SICK, Health.FULL]
    healths = draw(st.tuples(*(st.sampled_from(alone) for _ in range(number))))
    if Health.WELL in healths:  # else nobody could tell a selective one from a bad version
        swap = draw(st.sets(st.integers(0, number - 1)))
        swapped = tuple(
            Health.SELECTIVE if place in swap and health is Health.SICK else health
            for place, health in enumerate(healths)
        )
        healths = swapped
    said = st.sampled_from([ECC, GRAPH, "Read-only file system", "whatever"])
    return Pool(healths, draw(st.booleans()), draw(said), draw(st.tuples(*[said] * number)))


@given(some_pools())
def test_a_good_version_is_never_rejected_and_a_bad_one_is_unless_all_are_sick(
    pool: Pool,
) -> None:
    """As the controller lets them try: some loaders at a time, until nothing changes."""
    number = len(pool.healths)
    tried: dict[int, LoaderReport] = {}
    loading: tuple[str, ...] = ()
    rejected = False
    for _ in range(2 * number + 2):
        reports = tuple(
            tried.get(place, report(STABLE, loader=f"t{place}")) for place in range(number)
        )
        verdicts = judge(reports)
        rejected = rejected or NEW in verdicts.at_fault
        assert not (pool.good and rejected)
        assert len(verdicts.excused) <= number // 2
        assert verdicts.cordoned <= verdicts.excused <= verdicts.sick.keys()
        loading = pools.next_loaders(reports, {NEW}, loading)
        for place in range(number):
            if not loading or f"t{place}" in loading:
                holds, failure = pool.told(place)
                refs = (STABLE, NEW) if holds else (STABLE,)
                failed = () if failure is None else (failure,)
                tried[place] = report(*refs, loader=f"t{place}", failed=failed)
    well = Health.WELL in pool.healths
    # One that has no room has not said what it thinks of a version.
    speaking = sum(one in {Health.WELL, Health.SELECTIVE} for one in pool.healths)
    if (
        not pool.good
        and well
        and (
            Health.FULL not in pool.healths
            or (refusals.is_version_fault(pool.words) and speaking > 1)
        )
    ):
        assert rejected
    if pool.good and well:
        assert any(NEW in {m.ref for m in each.loaded} for each in tried.values())
