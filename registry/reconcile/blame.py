"""Who is at fault if a Triton did not load a package: the version, or that Triton. Pure.

Loaders report facts: what failed, in whose words, and whether their Triton has loaded a package
since then that is known to be good (its witness). Only here is a version blamed, and never by the
word of a Triton whose witness does not load, nor while any Triton holds the version. What some
Tritons refuse and others hold is the refusing ones' own: they do not decide, and are cordoned if
the others can load all they hold. So are those that fail at inferences, or answer NaN, on what
others answer, a Triton that holds packages and whose GPU is lost, and one that does not answer.
The design is in ``docs/decisions/0084-blame-by-proof.md``.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from contracts.endpoint import NAMED_LIMIT
from contracts.loading import FailureCause, LoaderReport, LoadFailure, WitnessAnswer
from contracts.model import ModelRef

# Of failures in which Triton itself said no; all others are of a store, a disk or memory.
_SPOKEN = frozenset({FailureCause.REFUSED, FailureCause.CRASHED})


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What the reports of one pool's loaders show.

    ``at_fault``: versions, and why. ``sick``: loaders whose Triton refuses what is good, and why,
    in sentences that begin after its name. ``excused`` decide nothing meanwhile; ``cordoned`` of
    them get no callers either.
    """

    at_fault: Mapping[ModelRef, str] = field(default_factory=dict)
    sick: Mapping[str, str] = field(default_factory=dict)
    excused: frozenset[str] = frozenset()
    cordoned: frozenset[str] = frozenset()

    def deciding(self, loaders: Iterable[LoaderReport]) -> tuple[LoaderReport, ...]:
        """The loaders that decide whether a version goes on."""
        return tuple(each for each in loaders if each.loader not in self.excused)


_NOTHING_FAILED = Verdicts()


def judge(reports: Sequence[LoaderReport], absent: Collection[str] = ()) -> Verdicts:
    """Who is at fault for what the Tritons of one pool did not load.

    Args:
        reports: of all loaders of the pool that gave a sign of life lately.
        absent: of the pool, silent now, or its Triton, and expected back: without them no version
            is at fault because every Triton says so.
    """
    useless = {
        **_find_failing(reports),
        **{
            report.loader: f"can compute nothing: {report.device.fault}"
            for report in reports
            if report.device is not None and report.device.fault and report.loaded
        },
        **{
            report.loader: "has not answered its loader for minutes"
            for report in reports
            if report.silent and any(each.ready for each in reports)
        },
    }
    if not useless and not any(report.failed for report in reports):
        return _NOTHING_FAILED
    holders: dict[ModelRef, set[str]] = {}
    refusals: dict[ModelRef, dict[str, LoadFailure]] = {}
    for report in reports:
        if report.loader in useless:
            continue
        fails = {trouble.ref for trouble in report.troubles if trouble.fails}
        for failure in report.failed:
            refusals.setdefault(failure.ref, {})[report.loader] = failure
            fails.add(failure.ref)
        for model in report.loaded:
            if model.ref not in fails:
                holders.setdefault(model.ref, set()).add(report.loader)
    unproven = {
        report.loader
        for report in reports
        if any(failure.witness is WitnessAnswer.REFUSED for failure in report.failed)
    }
    sound = ({report.loader for report in reports} - unproven - useless.keys()) | {*absent}
    at_fault = {
        ref: f"Triton refused it: {reason}"
        for ref, told in refusals.items()
        if ref not in holders and (reason := _accusation(told, sound))
    }
    sick = _sick(refusals, holders) | useless
    excused = _find_excused(reports, sick, useless)
    refusing = {
        loader
        for told in refusals.values()
        for loader, failure in told.items()
        if failure.cause is FailureCause.REFUSED
    }
    cordoned = _find_cordoned(reports, excused, refusing, useless)
    return Verdicts(at_fault, sick, frozenset(excused), cordoned)


def _accusation(told: Mapping[str, LoadFailure], sound: set[str]) -> str:
    """Why a version that no Triton holds is at fault, if that is proven.

    Where there are several Tritons, a second one must say so: one that computes wrongly or runs
    another release finds fault with every model, and one without room or its store says nothing of
    it. Two that refuse it, in whatever words, or end under it are enough if the words of one blame
    the model, or if its Triton ended; in any other words, all whose word counts, and each of them
    again after its witness was loaded: what was sick for a moment does not refuse it then.
    """
    spoken = {
        loader: failure
        for loader, failure in told.items()
        if failure.cause in _SPOKEN and loader in sound
    }
    accusers = {
        loader: failure
        for loader, failure in spoken.items()
        if failure.witness is WitnessAnswer.LOADS
        and (failure.by_version or failure.again or failure.cause is FailureCause.CRASHED)
    }
    if not accusers:
        return ""
    telling = [
        accusers[loader]
        for loader in sorted(accusers)
        if accusers[loader].by_version or accusers[loader].cause is FailureCause.CRASHED
    ]
    failing = [each for each in spoken if each in accusers or spoken[each].persists]
    if telling and len(failing) >= min(2, len(sound)):
        return telling[0].reason
    return accusers[min(accusers)].reason if accusers.keys() >= sound else ""


def _sick(
    refusals: Mapping[ModelRef, Mapping[str, LoadFailure]], holders: Mapping[ModelRef, set[str]]
) -> dict[str, str]:
    """Why a Triton's refusals are its own, by its loader.

    A failure of a store or a disk counts once it goes on while others hold the package.
    """
    found: dict[str, str] = {}
    for ref in sorted(refusals, key=lambda each: each.triton_model):
        for loader, failure in refusals[ref].items():
            if failure.witness is WitnessAnswer.REFUSED:
                found[loader] = (
                    f"refuses {ref.triton_model}, and a package that is known to be good too: "
                    f"{failure.reason}"
                )
            elif ref in holders and failure.lasts:
                others = ", ".join(sorted(holders[ref])[:3])
                found.setdefault(
                    loader,
                    f"fails at {ref.triton_model}, which {others} can hold: {failure.reason}",
                )
    return found


def _find_failing(reports: Sequence[LoaderReport]) -> dict[str, str]:
    """Why a Triton is sick that fails at what a ready one answers, by its loader."""
    troubled = {(report.loader, each.ref) for report in reports for each in report.troubles}
    asked = {each.ref for report in reports for each in report.troubles if each.fails}
    if not asked:
        return {}
    answering: dict[ModelRef, list[str]] = {}
    for report in reports:
        for model in report.loaded:
            if report.ready and model.ref in asked and (report.loader, model.ref) not in troubled:
                answering.setdefault(model.ref, []).append(report.loader)
    return {
        report.loader: (
            f"fails at inferences on {trouble.ref.triton_model}, which "
            f"{', '.join(sorted(answering[trouble.ref])[:3])} can run: {trouble.reason}"
        )
        for report in reports
        for trouble in report.troubles
        if trouble.fails and trouble.ref in answering
    }


def _find_excused(
    reports: Sequence[LoaderReport], sick: Iterable[str], useless: Collection[str]
) -> tuple[str, ...]:
    """The sick that do not decide: at most half of the pool, so that the others can serve it."""
    return tuple(sorted(sick, key=lambda one: (one not in useless, one)))[: len(reports) // 2]


def _find_cordoned(
    reports: Sequence[LoaderReport],
    excused: tuple[str, ...],
    refusing: Collection[str],
    useless: Collection[str],
) -> frozenset[str]:
    """Those that are taken out of service, unless they hold what ready Tritons can't load.

    A ready one holds all that serves but what it fails at: what else it lacks has yet to be loaded,
    or nobody wants it any more. Only those whose Triton itself refuses, fails, or has lost its GPU
    are: what is short of memory serves what it has. Of more than a status names, the ``refusing``
    go on: they answer with what they hold, and the ``useless``, which come first, do not.
    """
    ready = [each for each in reports if each.ready and each.loader not in excused]
    served = {model.ref for report in ready for model in report.loaded}
    lacked = {failure.ref for report in ready for failure in report.failed} - served
    kept = {each.loader for each in reports if any(model.ref in lacked for model in each.loaded)}
    chosen = [one for one in excused if (one in refusing or one in useless) and one not in kept]
    return frozenset(chosen[: min(len(ready), NAMED_LIMIT)])
