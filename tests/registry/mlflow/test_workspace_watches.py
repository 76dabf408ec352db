"""A release that follows several workspaces of one MLflow."""

import asyncio
from functools import partial

import pytest
from prometheus_client import REGISTRY
from registry_fakes import FakeRegistry, MemoryArtifacts

from registry.errors import SourceUnavailableError
from registry.mlflow.projection import Projection, RequiredAlias, ShownRollout, VersionTags
from registry.mlflow.watch import SourceWatch
from registry.mlflow.workspaces import WorkspaceWatches
from registry.mlflow.write_back import WriteBack

TEAMS = ("team-a", "team-b")


async def nothing(evidence: ShownRollout) -> dict[str, bytes]:
    raise AssertionError(f"nobody asked for {evidence}")


class Harness:
    def __init__(self, *workspaces: str) -> None:
        self.changed = asyncio.Event()
        self.registries = {each: FakeRegistry() for each in workspaces}
        self.watches = {
            each: SourceWatch(
                registry,
                WriteBack(registry, MemoryArtifacts(), nothing),
                poll_seconds=600.0,
                poll_with_webhooks_seconds=600.0,
                workspace=each,
                changed=self.changed,
            )
            for each, registry in self.registries.items()
        }
        self.all = WorkspaceWatches(self.watches)

    def up(self, workspace: str) -> float | None:
        named = {"workspace": workspace}
        return REGISTRY.get_sample_value("headrace_registry_source_up", named)


@pytest.fixture
def harness() -> Harness:
    made = Harness(*TEAMS)
    for team in TEAMS:
        made.registries[team].register(f"{team}/churn", "1")
    return made


async def test_models_of_one_name_are_two_models(harness: Harness) -> None:
    harness.all.follow({"team-a/churn", "team-b/churn"}, Projection())
    harness.registries["team-b"].register("team-b/churn", "2")
    for watch in harness.watches.values():
        await watch.round()
    assert sorted(harness.all.models()) == ["team-a/churn", "team-b/churn"]
    assert harness.all.find_version("team-b/churn", "2") is not None
    assert harness.all.find_version("team-a/churn", "2") is None
    assert harness.all.find_version("churn", "1") is None


async def test_a_workspace_that_does_not_answer_holds_up_no_other(harness: Harness) -> None:
    harness.registries["team-a"].down = True
    with pytest.raises(SourceUnavailableError):
        await harness.watches["team-a"].round()
    await harness.watches["team-a"].attempt()
    await harness.watches["team-b"].attempt()
    assert harness.all.models() == ["team-b/churn"]
    assert harness.all.snapshot_of("team-a/churn") is None  # not read, which is not gone
    for model, why in (
        ("team-c/churn", "does not follow MLflow's workspace team-c"),
        ("churn", "names no workspace of MLflow, and this release follows team-a, team-b"),
    ):
        other = harness.all.snapshot_of(model)
        assert other is not None
        assert why in other.unfollowed
    assert (harness.up("team-a"), harness.up("team-b")) == (0.0, 1.0)


async def test_a_workspace_is_told_of_its_own_versions_only(harness: Harness) -> None:
    tags = tuple(VersionTags(f"{team}/churn", "1", {"verdict": team}) for team in TEAMS)
    aliases = tuple(RequiredAlias(f"{team}/churn", "champion", "1") for team in TEAMS)
    harness.all.follow({f"{team}/churn" for team in TEAMS}, Projection(tags, aliases))
    for team in TEAMS:
        await harness.watches[team].round()
        (version,) = await harness.registries[team].versions(f"{team}/churn")
        assert version.tags == {"verdict": team}
        (model,) = await harness.registries[team].models()
        assert model.aliases == {"champion": "1"}


@pytest.mark.parametrize(
    ("workspaces", "told", "announced"),
    [
        # Any may be meant, whichever is told.
        (TEAMS, "team-a/churn", {"team-a": ["team-a/churn"], "team-b": ["woken"]}),
        (TEAMS, "team-b/", {"team-a": ["woken"], "team-b": [""]}),
        (TEAMS, "team-c/churn", {"team-a": ["woken"], "team-b": ["woken"]}),
        (TEAMS, "", {"team-a": ["woken"], "team-b": ["woken"]}),
        # The client's own, whatever MLflow calls it.
        (("",), "default/churn", {"": ["churn"]}),
        (("",), "churn", {"": ["churn"]}),
    ],
)
async def test_a_webhook_reaches_the_watch_of_its_workspace(
    workspaces: tuple[str, ...],
    told: str,
    announced: dict[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = Harness(*workspaces)
    found: dict[str, list[str]] = {}
    for each, watch in harness.watches.items():
        names = found.setdefault(each, [])
        monkeypatch.setattr(watch, "announce", names.append)
        monkeypatch.setattr(watch, "wake", partial(names.append, "woken"))
    harness.all.announce(told)
    assert {each: names for each, names in found.items() if names} == announced


async def test_each_workspace_is_read_by_itself(harness: Harness) -> None:
    harness.registries["team-a"].down = True
    running = asyncio.create_task(harness.all.run())
    try:
        async with asyncio.timeout(30):
            await harness.changed.wait()
            assert harness.all.models() == ["team-b/churn"]
            harness.changed.clear()
            harness.registries["team-a"].down = False
            harness.all.announce("team-a/churn")
            await harness.changed.wait()
        assert sorted(harness.all.models()) == ["team-a/churn", "team-b/churn"]
    finally:
        running.cancel()


async def test_gauges_are_there_before_the_first_answer() -> None:
    Harness("team-z")
    for name in ("source_up", "source_round_timestamp_seconds", "source_models", "webhooks_arrive"):
        labels = {"workspace": "team-z"}
        assert REGISTRY.get_sample_value(f"headrace_registry_{name}", labels) == 0.0, name


async def test_a_mistake_of_ours_in_one_round_ends_no_loop(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wrong() -> None:
        raise KeyError("ours")

    monkeypatch.setattr(harness.watches["team-a"], "round", wrong)
    await harness.watches["team-a"].attempt()
    assert harness.up("team-a") == 0.0
