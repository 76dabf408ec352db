"""What one Triton should hold, and what may leave it: the loader's decisions, as pure functions.

No clock, no file and no network in it.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from pydantic import BaseModel, ConfigDict

from contracts.backoff import Backoff
from contracts.endpoint import Arm, ModelEndpoint, Phase
from contracts.loading import FailureCause, WitnessAnswer
from contracts.model import DEFAULT_POOL, ModelRef
from registry.loading import crashes
from registry.loading.crashes import CrashCount
from registry.loading.refusals import is_version_fault

RETRIES = Backoff(1.0, 60.0)
CRASH_RETRIES = Backoff(300.0, 86_400.0)  # each ends Triton once more, if it was not chance
# How long a Triton that holds other stable packages is unready for one that it fails to load. It
# may be one that takes the place of a Triton that holds it, so that a store or a disk that is away
# is waited for; a package whose model Triton itself refuses will hardly be loaded later.
REFUSED_GRACE_SECONDS = 60.0
AWAY_GRACE_SECONDS = 600.0

PERSISTENT_ATTEMPTS = 3  # in a row, after which a failure is more than a hiccup


class Role(IntEnum):
    """Why a package is wanted; the order in which packages are loaded."""

    STABLE = 0
    CANDIDATE = 1
    KEPT = 2


_ROLES = {
    Arm.STABLE: Role.STABLE,
    Arm.CANARY: Role.CANDIDATE,
    Arm.SHADOW: Role.CANDIDATE,
    Arm.CONTROL: Role.KEPT,  # it worked, and it is what one would go back to
}


_COMING = frozenset({Phase.LOADING, Phase.BLOCKED})


@dataclass(frozen=True, slots=True)
class Want:
    """A package that some endpoint names.

    ``on_trial``: it has not proven itself yet, so that it is blamed if Triton dies under it. So
    is a candidate, and a stable version in its bake. ``instances``: copies that run at once; None:
    as many as suit Triton's machine. ``waits``: other Tritons of the pool load it first;
    ``rolls_out``: they hold it by now, so that its rollout began.
    ``asleep``: it is idle, so that it need not be loaded until somebody does; ``returns``:
    somebody asks for it, and the status still says that it sleeps.
    """

    ref: ModelRef
    role: Role
    on_trial: bool = False
    instances: int | None = None
    waits: bool = False
    rolls_out: bool = False
    asleep: bool = False
    returns: bool = False


class LedgerEntry(BaseModel):
    """A model that this loader put into Triton, and since when (unix, seconds) nobody wants it.

    Of the time in which it was on trial: ``loads`` counts Triton's ends in a row while it was
    loaded, ``held`` those while Triton held it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    ref: ModelRef
    unwanted_since: float | None = None
    loads: int = 0
    held: CrashCount = CrashCount()


class ModelLedger(BaseModel):
    """All models that this loader put into its Triton, by Triton's name of them.

    ``in_order``: the loader ended as it was told to. What Triton lost meanwhile shows no crash.
    ``usual``: Triton's ends while no model was on trial.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    entries: dict[str, LedgerEntry] = {}
    in_order: bool = False
    usual: CrashCount = CrashCount()

    def place(self, ref: ModelRef) -> "ModelLedger":
        """Returns the ledger with one more model."""
        return self._update(ref, unwanted_since=None)

    def adopt(self, held: Collection[str], wanted: Iterable[Want]) -> "ModelLedger":
        """Adds the wanted models that an earlier loader, whose ledger is lost, had put there.

        Triton's name of a model holds its package's digest: nobody else has put it there.
        """
        ledger = self
        for want in wanted:
            name = want.ref.triton_model
            if name in held and name not in self.entries:
                ledger = ledger.place(want.ref)
        return ledger

    def without(self, name: str) -> "ModelLedger":
        """Returns the ledger with one model less."""
        return self._with({key: item for key, item in self.entries.items() if key != name})

    def count_end_of_load(self, ref: ModelRef) -> "ModelLedger":
        """Returns the ledger with one more end of Triton while it loaded a model on trial."""
        return self._update(ref, loads=self._entry(ref).loads + 1)

    def confirm_loaded(self, ref: ModelRef) -> "ModelLedger":
        """Returns the ledger with a model that was loaded: its loads do not end Triton."""
        return self._update(ref, loads=0)

    def count_end_of_triton(self, trials: Collection[ModelRef]) -> "ModelLedger":
        """Counts one more end of Triton, under these models on trial; usual without any."""
        if not trials:
            return self.model_copy(update={"usual": self.usual.count_end()})
        ledger = self
        for ref in trials:
            ledger = ledger._update(ref, held=ledger._entry(ref).held.count_end())
        return ledger

    def count_trial_seconds(self, trials: Collection[ModelRef], seconds: float) -> "ModelLedger":
        """Adds time in which Triton answered and held these models on trial."""
        if not trials:
            return self.model_copy(update={"usual": self.usual.count_seconds(seconds)})
        ledger = self
        for ref in trials:
            ledger = ledger._update(ref, held=ledger._entry(ref).held.count_seconds(seconds))
        return ledger

    def crash_reason(self, ref: ModelRef) -> str:
        """Why a model on trial is refused for Triton's ends; empty if it is not."""
        entry = self._entry(ref)
        return crashes.reason(entry.loads, entry.held, self.usual)

    def close(self, *, in_order: bool) -> "ModelLedger":
        """Returns the ledger with how the loader ended."""
        return self.model_copy(update={"in_order": in_order})

    def with_unwanted(self, wanted: Iterable[Want], now: float) -> "ModelLedger":
        """Adds the time since when each model is unwanted; equal if nothing changed.

        One that is wanted again later, because a person said so, is on trial again.
        """
        names = {want.ref.triton_model for want in wanted}
        entries = {}
        for name, entry in self.entries.items():
            if name in names:
                entries[name] = entry.model_copy(update={"unwanted_since": None})
            else:
                entries[name] = LedgerEntry(
                    ref=entry.ref, unwanted_since=entry.unwanted_since or now
                )
        return self._with(entries)

    def find_expired(self, now: float, grace_seconds: float) -> tuple[str, ...]:
        """Names of the models that nobody has wanted for so long."""
        return tuple(
            name
            for name, entry in self.entries.items()
            if entry.unwanted_since is not None and now - entry.unwanted_since >= grace_seconds
        )

    def _entry(self, ref: ModelRef) -> LedgerEntry:
        return self.entries.get(ref.triton_model) or LedgerEntry(ref=ref)

    def _update(self, ref: ModelRef, **fields: object) -> "ModelLedger":
        entry = self._entry(ref).model_copy(update=fields)
        return self._with({**self.entries, ref.triton_model: entry})

    def _with(self, entries: dict[str, LedgerEntry]) -> "ModelLedger":
        return self.model_copy(update={"entries": entries})


@dataclass(frozen=True, slots=True)
class PackageFailure:
    """Why a package is not loaded, and when it is tried again, unix seconds.

    ``since`` is the time of the first failure in a row, unix seconds. ``blames_model``: the words
    do. ``witness``: whether Triton has loaded what is known to be good since; it is asked at
    ``witness_at``. ``again``: it was refused once more after a witness was loaded.
    """

    ref: ModelRef
    reason: str
    cause: FailureCause
    blames_model: bool
    attempts: int
    since: float
    retry_at: float
    witness: WitnessAnswer = WitnessAnswer.UNTRIED
    witness_asked: int = 0
    witness_at: float | None = 0.0
    again: bool = False

    @property
    def witness_loaded(self) -> bool:
        """Whether a witness was loaded after this failure, or between two before it."""
        return self.again or self.witness is WitnessAnswer.LOADS

    @property
    def by_version(self) -> bool:
        """Whether the words blame the model, and this Triton loads one that is known to be good."""
        return self.blames_model and self.witness is WitnessAnswer.LOADS

    @property
    def no_room(self) -> bool:
        """Whether it does not fit beside what Triton holds now."""
        return self.cause is FailureCause.ROOM


def list_wanted(
    endpoints: Iterable[ModelEndpoint], pool: str = DEFAULT_POOL, loader: str = ""
) -> tuple[Want, ...]:
    """Every package that an endpoint of the pool names, once, in the order to load them.

    Stable ones come first, but for those of an endpoint that moves to this pool: until all its
    Tritons hold them, callers are answered elsewhere. If two endpoints share a package, the
    larger number of copies that one asks for counts.
    """
    found: dict[str, Want] = {}
    for endpoint in endpoints:
        for want in _of(endpoint, pool, loader):
            known = found.setdefault(want.ref.triton_model, want)
            asked = max(known.instances or 0, want.instances or 0) or None
            first = min(known, want, key=lambda item: item.role)
            found[want.ref.triton_model] = replace(
                first,
                instances=asked,
                waits=known.waits and want.waits,
                asleep=known.asleep and want.asleep,
            )
    return tuple(sorted(found.values(), key=lambda want: (want.role, want.ref.triton_model)))


def count_failure(
    want: Want,
    reason: str,
    previous: PackageFailure | None,
    *,
    cause: FailureCause,
    now: float,
) -> PackageFailure:
    """A failure to load, with the time of the next try.

    A version on trial under which Triton ends is tried ever later: it may end once more. A witness
    that was loaded after an earlier failure of the same kind still counts, but for the second
    refusal: a Triton may have been sick at the first one, and well when its witness was loaded.
    """
    attempts = previous.attempts + 1 if previous else 1
    refused = cause is FailureCause.REFUSED
    blames_model = refused and is_version_fault(reason)
    known = previous if previous and previous.cause is cause else None
    again = refused and known is not None and known.witness_loaded
    if known is not None and again and not (known.again or blames_model):
        known = None  # what a witness does counts from here on
    pauses = CRASH_RETRIES if cause is FailureCause.CRASHED else RETRIES
    return PackageFailure(
        want.ref,
        reason,
        cause,
        blames_model,
        attempts,
        since=previous.since if previous else now,
        retry_at=now + pauses.after(attempts),
        witness=known.witness if known else WitnessAnswer.UNTRIED,
        witness_asked=known.witness_asked if known else 0,
        witness_at=known.witness_at if known else now,
        again=again,
    )


def add_witness(failure: PackageFailure, answer: WitnessAnswer, now: float) -> PackageFailure:
    """A failure with what its witness did since; one that was not loaded is asked again later.

    An answer that could not be had leaves the last one.
    """
    asked = failure.witness_asked + 1
    known = failure.witness if answer is WitnessAnswer.UNTRIED else answer
    again = None if known is WitnessAnswer.LOADS else now + RETRIES.after(asked)
    return replace(failure, witness=known, witness_asked=asked, witness_at=again)


def may_try(want: Want, failure: PackageFailure | None, now: float) -> bool:
    """Whether a package that is not loaded may be tried now.

    One on trial under which Triton ends may not before other Tritons hold it.
    """
    if failure is None:
        return True
    may_end_it = failure.cause is FailureCause.CRASHED
    return now >= failure.retry_at and (want.rolls_out or not may_end_it)


def find_missing_stable(wants: Iterable[Want], loaded: Container[str]) -> tuple[ModelRef, ...]:
    """The stable packages that are not loaded and do not sleep.

    A candidate never makes a Triton unready.
    """
    return tuple(want.ref for want in _awake(wants) if want.ref.triton_model not in loaded)


def find_awaited(
    wants: Iterable[Want],
    loaded: Container[str],
    failures: Mapping[str, PackageFailure],
    now: float,
) -> tuple[ModelRef, ...]:
    """The missing stable packages for which a Triton should get no requests yet.

    None of them if it holds others, and has failed for long to load each of these: what it has
    must not stay unserved for what it can't have. One that holds none is never ready: it could
    take the place of one that does. What comes back after a sleep is waited for by its callers.

    Args:
        wants: what endpoints name.
        loaded: Triton's names of what it holds.
        failures: why a package is not loaded, by Triton's name of it.
        now: unix time, seconds.
    """
    stable = _awake(wants)
    holds_none = len(find_missing_stable(stable, loaded)) == len(stable)
    missing = find_missing_stable((want for want in stable if not want.returns), loaded)
    if holds_none:
        return missing
    return tuple(ref for ref in missing if not _overdue(failures.get(ref.triton_model), now))


def _awake(wants: Iterable[Want]) -> list[Want]:
    return [want for want in wants if want.role is Role.STABLE and not want.asleep]


def _overdue(failure: PackageFailure | None, now: float) -> bool:
    if failure is None:
        return False
    grace = REFUSED_GRACE_SECONDS if failure.blames_model else AWAY_GRACE_SECONDS
    return now - failure.since >= grace


def _of(endpoint: ModelEndpoint, pool: str, loader: str) -> Iterable[Want]:
    status = endpoint.status
    if pool not in status.pools:
        return
    on_trial = status.rollout.candidate if status.rollout else None
    copies = endpoint.spec.serving.instances
    if pool != status.pool:
        # None has proved itself on these Tritons, whatever it did on others.
        waits = _is_later(loader, status.next_loading)
        for ref in status.held_in(pool):
            yield Want(ref, Role.CANDIDATE, on_trial=True, instances=copies, waits=waits)
        return
    sleeper = None if status.asleep is None else status.stable
    for route in status.routes:
        on = route.ref == on_trial
        asleep = route.ref == sleeper
        yield Want(route.ref, _ROLES[route.arm], on, copies, rolls_out=on, asleep=asleep)
    candidate = status.candidate.ref if status.candidate else None
    is_coming = status.candidate is not None and status.candidate.phase in _COMING
    for ref in status.packages:
        coming = ref in {candidate, on_trial}
        waits = ref == candidate and is_coming and _is_later(loader, status.loading)
        role = Role.CANDIDATE if coming else Role.KEPT
        yield Want(ref, role, coming, copies, waits, ref == on_trial, asleep=ref == sleeper)


def _is_later(loader: str, named: tuple[str, ...]) -> bool:
    """Whether it is not this loader's turn yet."""
    return bool(named) and loader not in named
