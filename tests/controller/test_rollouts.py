"""The joined parts: what the machine is shown, and a whole way of a version in memory."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import ValidationError
from reachable import count_reachable
from registry_fakes import endpoint, packed, ref
from rollout_walk import FakeJudge, MemoryStatistics, window

from contracts.endpoint import (
    Arm,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    ModelEndpoint,
    Phase,
    Route,
)
from contracts.manifest import Manifest
from contracts.profile import ReferenceProfile
from contracts.rollout import (
    COMMAND_PREFIX,
    CheckResult,
    Command,
    Outcome,
    RolloutSpec,
    RolloutState,
    Verb,
    Verdict,
)
from contracts.tasks import Task
from contracts.windows import ON_THE_WAY_SECONDS, EndpointWindow
from controller.rollouts import JoinedRollouts, PackageProfiles
from registry.packages.store import PackageStore, StoreUnavailableError
from registry.reconcile.rollouts import Surroundings
from registry.stores.endpoints import FileEndpointStore
from registry.stores.whole_endpoints import WholeEndpoints
from service.cluster.errors import ApiRefusedError
from service.endpoint_records import FileRecords

OLD, NEW = ref("1", "a"), ref("2", "b")
BOTH = Surroundings(frozenset({OLD, NEW}), {}, "2")
SPEC = EndpointSpec(
    model="m",
    rollout=RolloutSpec.model_validate(
        {"steps": [{"shadow": 100}, {"weight": 50}], "bake": "60s", "deadline": "1h"}
    ),
)


class RolloutHarness:
    """An endpoint whose candidate is loaded, with stable's history known."""

    def __init__(self) -> None:
        self.statistics = MemoryStatistics()
        self.now = 1000.0
        self.rollouts = JoinedRollouts(FakeJudge(), self.statistics)
        status = EndpointStatus(
            routes=(Route(arm=Arm.STABLE, ref=OLD, weight=100),),
            packages=(OLD, NEW),
            candidate=Candidate(version="2", phase=Phase.LOADED, ref=NEW, options="o"),
        )
        self.endpoint = endpoint(status, spec=SPEC)
        for _ in range(30):
            self.see()

    @property
    def status(self) -> EndpointStatus:
        return self.endpoint.status

    def see(self, verdict: str = "unknown") -> None:
        """Ten seconds pass, with traffic by the routes."""
        made = window(self.endpoint.status.routes, int(self.now), verdict=verdict)
        self.statistics.known.append(made)
        self.now += 10.0

    def step(self, around: Surroundings = BOTH) -> EndpointStatus:
        """One pass, stored and read again as by another process."""
        advanced = self.rollouts.advance(self.endpoint, around, self.now)
        self.endpoint = ModelEndpoint.model_validate_json(advanced.model_dump_json(by_alias=True))
        return self.endpoint.status

    def ask(self, verb: Verb) -> None:
        command = Command(id=verb.value, verb=verb, by="ada", at=self.now)
        notes = {f"{COMMAND_PREFIX}{command.id}": command.model_dump_json()}
        metadata = self.endpoint.metadata.model_copy(update={"annotations": notes})
        self.endpoint = self.endpoint.model_copy(update={"metadata": metadata})


def test_a_loaded_version_walks_to_all_callers() -> None:
    harness = RolloutHarness()
    phases = []
    for _ in range(20):
        status = harness.step()
        phases.append(status.candidate.phase if status.candidate else None)
        harness.see("pass")
    assert list(dict.fromkeys(phases)) == [Phase.SHADOW, Phase.CANARY, Phase.PROMOTED, None]
    assert harness.status.routes == (Route(arm=Arm.STABLE, ref=NEW, weight=100),)
    assert harness.status.last_rollout is not None
    assert harness.status.last_rollout.outcome is Outcome.SETTLED


def test_a_version_that_fails_goes_back_with_its_reason() -> None:
    harness = RolloutHarness()
    harness.step()
    harness.see("fail")
    status = harness.step()
    assert status.routes == (Route(arm=Arm.STABLE, ref=OLD, weight=100),)
    assert [item.version for item in status.rejected] == ["2"]


def test_what_a_triton_refuses_and_what_the_spec_wants_reach_the_machine() -> None:
    harness = RolloutHarness()
    harness.step()
    refused = harness.step(Surroundings(BOTH.loaded, {NEW: "Triton refused it: too large"}, "2"))
    assert refused.rejected[0].reason == "Triton refused it: too large"
    harness = RolloutHarness()
    harness.step()
    harness.step(Surroundings(BOTH.loaded, {}, "3"))
    assert harness.status.last_rollout is not None
    assert harness.status.last_rollout.outcome is Outcome.SUPERSEDED


def test_without_statistics_everything_holds() -> None:
    harness = RolloutHarness()
    harness.step()
    before = harness.status.routes
    harness.statistics.away = True
    harness.now += 600.0
    assert harness.step().routes == before
    assert harness.status.rollout is not None


def test_statistics_are_asked_for_only_where_somebody_looks_at_them() -> None:
    harness = RolloutHarness()
    harness.rollouts.advance(endpoint(), BOTH, harness.now)
    assert harness.statistics.asked == []
    harness.step()
    assert harness.statistics.asked == [("e", 2.0 + ON_THE_WAY_SECONDS)]


def test_a_command_is_answered_once_and_leaves_its_annotation() -> None:
    harness = RolloutHarness()
    harness.step()
    harness.ask(Verb.PAUSE)
    status = harness.step()
    assert [(item.verb, item.accepted) for item in status.commands] == [(Verb.PAUSE, True)]
    assert harness.endpoint.metadata.annotations == {}
    harness.ask(Verb.PAUSE)  # the same one again, as if its annotation could not be taken away
    assert harness.step().commands == status.commands


class NotFinite(FakeJudge):
    """Has a figure that JSON has no word for."""

    def begin(
        self, spec: RolloutSpec, state: RolloutState, history: Sequence[EndpointWindow]
    ) -> RolloutState:
        state = super().begin(spec, state, history)
        check = CheckResult(
            name="x", verdict=Verdict.UNKNOWN, reason="", figures={"evidence": float("inf")}
        )
        return state.model_copy(update={"checks": (check,)})


def test_a_status_that_could_not_be_read_back_is_never_handed_on() -> None:
    harness = RolloutHarness()
    harness.rollouts = JoinedRollouts(NotFinite(), harness.statistics)
    with pytest.raises(ValidationError):
        harness.rollouts.advance(harness.endpoint, BOTH, harness.now)


class NoRecords(FileRecords):
    """Takes no record, as an API server that refuses them."""

    def write(self, endpoint: ModelEndpoint, slot: str, text: str) -> None:
        raise ApiRefusedError("exceeded quota", 403)


def test_a_rollout_whose_record_is_refused_is_ended_without_one(tmp_path: Path) -> None:
    harness = RolloutHarness()
    for _ in range(4):
        harness.step()
        harness.see("pass")
    assert harness.status.rollout is not None
    writes = WholeEndpoints(FileEndpointStore(tmp_path), FileRecords(tmp_path))
    stored = writes.put(harness.endpoint)
    refusing = WholeEndpoints(FileEndpointStore(tmp_path), NoRecords(tmp_path))
    with pytest.raises(ApiRefusedError):
        refusing.put(stored.model_copy(update={"status": harness.step()}))
    stored = refusing.list()[0]  # which it claimed before
    refusing.put(harness.rollouts.withdraw(stored, harness.now, "exceeded quota"))
    found = FileEndpointStore(tmp_path).get("e")
    assert found is not None
    assert found.status.record is None
    assert found.status.routes == (Route.all_callers(OLD),)
    assert found.status.last_rollout is not None
    assert found.status.last_rollout.reason == "exceeded quota"


def test_evidence_is_a_page_and_the_json_behind_it() -> None:
    state = RolloutState(id="r", candidate=NEW, stable=OLD, began=1.0, step_began=1.0)
    files = RolloutHarness().rollouts.evidence(endpoint(), state)
    assert set(files) == {"evidence.json", "report.html"}
    assert json.loads(files["evidence.json"])["version"] == "2"
    assert files["report.html"].startswith(b"<!doctype html>")


def test_a_profile_that_can_not_be_read_is_none_for_now(tmp_path: Path) -> None:
    profiles = PackageProfiles(PackageStore(tmp_path.as_uri()))
    assert profiles(OLD) is None


class AwayStore(PackageStore):
    """Counts how often it is asked."""

    asked = 0

    def manifest(self, package: str) -> Manifest:
        self.asked += 1
        raise StoreUnavailableError(f"{package}: the store hangs")


def test_a_store_that_is_away_is_not_asked_in_every_pass(tmp_path: Path) -> None:
    now = 100.0
    store = AwayStore(tmp_path.as_uri())
    profiles = PackageProfiles(store, lambda: now)
    for _ in range(5):
        assert profiles(OLD) is None
        assert profiles(NEW) is None
    assert store.asked == 1
    now += 60.0
    assert profiles(NEW) is None
    assert store.asked == 2


def test_of_many_versions_the_profiles_of_some_are_kept(tmp_path: Path) -> None:
    store = PackageStore((tmp_path / "store").as_uri())
    profiles = PackageProfiles(store, most=8)
    counts = []
    for number in range(1, 41):
        manifest = packed(tmp_path / "made", version=str(number))
        profile = ReferenceProfile(texts=number, source="evaluation")
        made = store.publish(tmp_path / "made", manifest.model_copy(update={"profile": profile}))
        assert profiles(made) == profile
        counts.append(count_reachable(profiles))
    assert max(counts[20:]) <= max(counts[:20])
    assert len(set(counts[:8])) == 8


def test_no_caller_gets_another_space_as_the_bake_before_it_ends() -> None:
    old, new, other = (
        ref(number, letter).model_copy(update={"space": space * 12})
        for number, letter, space in (("1", "a", "1"), ("2", "b", "1"), ("3", "c", "2"))
    )
    steps = {"steps": [{"weight": 50}], "bake": "60s", "deadline": "1h"}
    harness = RolloutHarness()
    status = EndpointStatus(
        task=Task.TEXT_EMBEDDING,
        routes=(Route.all_callers(new),),
        packages=(new, old, other),
        candidate=Candidate(version="3", phase=Phase.LOADED, ref=other, options="o"),
        rollout=RolloutState(
            id="x", candidate=new, stable=old, began=0, step_began=0, promoted_at=900,
            evidence={"history": 30, "judged": 0},
        ),
    )  # fmt: skip
    spec = EndpointSpec(model="m", rollout=RolloutSpec.model_validate(steps))
    harness.endpoint = endpoint(status, spec=spec)
    for _ in range(30):
        harness.see()
    for _ in range(3):
        found = harness.step(Surroundings(frozenset({old, new, other}), {}, "3"))
        assert found.routes[0] == Route.all_callers(new)
    assert found.rollout is not None
    assert found.rollout.candidate == other
