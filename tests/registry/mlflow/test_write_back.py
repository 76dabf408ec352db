"""Only differences are told, and what is refused holds up nothing else."""

from collections.abc import Mapping

import pytest
from registry_fakes import FakeRegistry, MemoryArtifacts, endpoint, ref

from contracts.rollout import Outcome, RolloutState
from registry.errors import SourceRefusedError, SourceUnavailableError
from registry.mlflow.model_registry import MlflowSnapshot
from registry.mlflow.projection import Projection, RequiredAlias, ShownRollout, VersionTags
from registry.mlflow.write_back import NO_RUN, WriteBack

TAGS = (VersionTags("m", "1", {"a": "1", "b": ""}),)
ALIAS = (RequiredAlias("m", "champion", "1"),)
STATE = RolloutState(
    id="r", candidate=ref("1", "a"), stable=ref("0", "b"), began=1.0, step_began=1.0,
    ended_at=2.0, outcome=Outcome.ROLLED_BACK,
)  # fmt: skip
EVIDENCE = (ShownRollout(endpoint(), STATE),)
ALL = Projection(TAGS, ALIAS, EVIDENCE)


class WriteBackHarness:
    def __init__(self) -> None:
        self.time = 0.0
        self.rendered = 0
        self.draws = True
        self.registry = FakeRegistry()
        self.artifacts = MemoryArtifacts()
        self.write_back = WriteBack(
            self.registry, self.artifacts, self.render, clock=lambda: self.time
        )

    async def render(self, evidence: ShownRollout) -> Mapping[str, bytes]:
        self.rendered += 1
        if not self.draws:
            raise ArithmeticError("a figure that can't be drawn")
        return {"evidence.json": evidence.state.id.encode()}

    async def write(self, wanted: Projection) -> None:
        """As after a look at MLflow."""
        models = {model.name: model for model in await self.registry.models()}
        versions = {name: await self.registry.versions(name) for name in models}
        await self.write_back.write(MlflowSnapshot(models, versions), wanted)

    def tags(self) -> Mapping[str, str]:
        return self.registry.listed["m"][0].tags


@pytest.fixture
def harness() -> WriteBackHarness:
    made = WriteBackHarness()
    made.registry.register("m", "1", run_id="run")
    return made


async def test_everything_is_told_once(harness: WriteBackHarness) -> None:
    await harness.write(ALL)
    assert harness.tags() == {
        "a": "1",
        "headrace.e.evidence": "runs:/run/headrace/e/v1",
        "headrace.e.evidence_digest": EVIDENCE[0].digest,
    }
    assert harness.registry.aliases == {"m": {"champion": "1"}}
    assert harness.artifacts.files == {"run/headrace/e/v1/evidence.json": b"r"}
    harness.registry.told.clear()
    await harness.write(ALL)
    assert harness.registry.told == []
    assert (harness.artifacts.puts, harness.rendered) == (1, 1)


async def test_the_picture_that_comes_back_knows_what_was_told(harness: WriteBackHarness) -> None:
    models = {model.name: model for model in await harness.registry.models()}
    snapshot = MlflowSnapshot(models, {"m": await harness.registry.versions("m")})
    after = await harness.write_back.write(snapshot, Projection(tags=TAGS))
    assert after.versions["m"][0].tags == {"a": "1"}


async def test_a_new_verdict_takes_the_old_reason_away(harness: WriteBackHarness) -> None:
    await harness.write(Projection(tags=(VersionTags("m", "1", {"a": "0", "b": "why"}),)))
    await harness.write(Projection(tags=TAGS))
    assert harness.tags() == {"a": "1", "b": ""}


async def test_a_version_that_waits_no_more_is_not_said_to(harness: WriteBackHarness) -> None:
    first = VersionTags("m", "1", {"headrace.e.waits": "other conversions", "headrace.e.phase": ""})
    await harness.write(Projection((first,)))
    assert harness.tags() == {"headrace.e.waits": "other conversions"}
    harness.registry.register("m", "2")
    await harness.write(Projection((VersionTags("m", "2", {"headrace.e.waits": "its turn"}),)))
    listed = {each.number: each.tags for each in harness.registry.listed["m"]}
    assert listed == {"1": {"headrace.e.waits": ""}, "2": {"headrace.e.waits": "its turn"}}


async def test_nothing_is_told_about_a_version_that_is_gone(harness: WriteBackHarness) -> None:
    gone = VersionTags("m", "7", {"a": "1"}), VersionTags("other", "1", {"a": "1"})
    await harness.write(Projection(tags=gone, aliases=(RequiredAlias("m", "champion", "7"),)))
    assert harness.registry.told == []


async def test_evidence_that_can_not_be_drawn_holds_up_nothing_else(
    harness: WriteBackHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.draws = False
    for _ in range(2):
        await harness.write(ALL)
    assert harness.tags() == {"a": "1"}
    assert harness.registry.aliases == {"m": {"champion": "1"}}
    assert caplog.text.count("MLflow can't be told headrace/e/v1") == 1
    harness.draws, harness.time = True, 61.0
    await harness.write(ALL)
    assert harness.artifacts.files == {"run/headrace/e/v1/evidence.json": b"r"}


async def test_a_version_without_a_run_says_where_its_evidence_is(
    harness: WriteBackHarness,
) -> None:
    harness.registry.listed.clear()
    harness.registry.register("m", "1")
    await harness.write(ALL)
    assert harness.tags()["headrace.e.evidence"] == NO_RUN
    assert harness.artifacts.files == {}


async def test_an_mlflow_that_goes_away_is_told_the_rest_later(harness: WriteBackHarness) -> None:
    harness.artifacts.fault = SourceUnavailableError("gone")
    with pytest.raises(SourceUnavailableError):
        await harness.write(ALL)
    harness.artifacts.fault = None
    await harness.write(ALL)
    assert harness.artifacts.puts == 1
    assert harness.tags()["headrace.e.evidence"] == "runs:/run/headrace/e/v1"


@pytest.mark.parametrize("refused", ["a", "champion"])
async def test_a_refusal_holds_up_nothing_else_and_is_tried_again_in_a_minute(
    harness: WriteBackHarness, refused: str
) -> None:
    harness.registry.refuses = {refused}
    await harness.write(ALL)
    assert harness.artifacts.puts == 1
    harness.registry.refuses = set()
    harness.time += 59.0
    await harness.write(ALL)
    assert refused not in {**harness.tags(), **harness.registry.aliases.get("m", {})}
    harness.time += 1.0
    await harness.write(ALL)
    assert refused in {**harness.tags(), **harness.registry.aliases["m"]}


async def test_evidence_that_its_store_refuses_is_not_said_to_be_there(
    harness: WriteBackHarness,
) -> None:
    harness.artifacts.fault = SourceRefusedError("no right to write")
    await harness.write(ALL)
    assert "headrace.e.evidence" not in harness.tags()
    harness.artifacts.fault = None
    harness.time += 60.0
    await harness.write(ALL)
    assert harness.artifacts.puts == 1
