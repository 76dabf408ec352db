"""Only differences are told, and what is refused holds up nothing else."""

from collections.abc import Mapping

import pytest
from registry_fakes import FakeRegistry, MemoryArtifacts, endpoint, ref

from contracts.rollout import Outcome, RolloutState
from registry.errors import SourceRefusedError, SourceUnavailableError
from registry.mlflow_source import Picture
from registry.projection import AliasOf, EvidenceOf, Projection, VersionTags
from registry.write_back import NO_RUN, WriteBack

TAGS = (VersionTags("m", "1", {"a": "1", "b": ""}),)
ALIAS = (AliasOf("m", "champion", "1"),)
STATE = RolloutState(
    id="r", candidate=ref("1", "a"), stable=ref("0", "b"), began=1.0, step_began=1.0,
    ended_at=2.0, outcome=Outcome.ROLLED_BACK,
)  # fmt: skip
EVIDENCE = (EvidenceOf(endpoint(), STATE),)
ALL = Projection(TAGS, ALIAS, EVIDENCE)


class House:
    def __init__(self) -> None:
        self.time = 0.0
        self.rendered = 0
        self.draws = True
        self.registry = FakeRegistry()
        self.artifacts = MemoryArtifacts()
        self.write_back = WriteBack(
            self.registry, self.artifacts, self.render, clock=lambda: self.time
        )

    async def render(self, evidence: EvidenceOf) -> Mapping[str, bytes]:
        self.rendered += 1
        if not self.draws:
            raise ArithmeticError("a figure that can't be drawn")
        return {"evidence.json": evidence.state.id.encode()}

    async def tell(self, wanted: Projection) -> None:
        """As after a look at MLflow."""
        models = {model.name: model for model in await self.registry.models()}
        versions = {name: await self.registry.versions(name) for name in models}
        await self.write_back.tell(Picture(models, versions), wanted)

    def tags(self) -> Mapping[str, str]:
        return self.registry.listed["m"][0].tags


@pytest.fixture
def house() -> House:
    made = House()
    made.registry.register("m", "1", run_id="run")
    return made


async def test_everything_is_told_once(house: House) -> None:
    await house.tell(ALL)
    assert house.tags() == {
        "a": "1",
        "headrace.e.evidence": "runs:/run/headrace/e/v1",
        "headrace.e.evidence_digest": EVIDENCE[0].digest,
    }
    assert house.registry.aliases == {"m": {"champion": "1"}}
    assert house.artifacts.files == {"run/headrace/e/v1/evidence.json": b"r"}
    house.registry.told.clear()
    await house.tell(ALL)
    assert house.registry.told == []
    assert (house.artifacts.puts, house.rendered) == (1, 1)


async def test_the_picture_that_comes_back_knows_what_was_told(house: House) -> None:
    models = {model.name: model for model in await house.registry.models()}
    picture = Picture(models, {"m": await house.registry.versions("m")})
    after = await house.write_back.tell(picture, Projection(tags=TAGS))
    assert after.versions["m"][0].tags == {"a": "1"}


async def test_a_new_verdict_takes_the_old_reason_away(house: House) -> None:
    await house.tell(Projection(tags=(VersionTags("m", "1", {"a": "0", "b": "why"}),)))
    await house.tell(Projection(tags=TAGS))
    assert house.tags() == {"a": "1", "b": ""}


async def test_nothing_is_told_about_a_version_that_is_gone(house: House) -> None:
    gone = VersionTags("m", "7", {"a": "1"}), VersionTags("other", "1", {"a": "1"})
    await house.tell(Projection(tags=gone, aliases=(AliasOf("m", "champion", "7"),)))
    assert house.registry.told == []


async def test_evidence_that_can_not_be_drawn_holds_up_nothing_else(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.draws = False
    for _ in range(2):
        await house.tell(ALL)
    assert house.tags() == {"a": "1"}
    assert house.registry.aliases == {"m": {"champion": "1"}}
    assert caplog.text.count("MLflow can't be told headrace/e/v1") == 1
    house.draws, house.time = True, 61.0
    await house.tell(ALL)
    assert house.artifacts.files == {"run/headrace/e/v1/evidence.json": b"r"}


async def test_a_version_without_a_run_says_where_its_evidence_is(house: House) -> None:
    house.registry.listed.clear()
    house.registry.register("m", "1")
    await house.tell(ALL)
    assert house.tags()["headrace.e.evidence"] == NO_RUN
    assert house.artifacts.files == {}


async def test_an_mlflow_that_goes_away_is_told_the_rest_later(house: House) -> None:
    house.artifacts.fault = SourceUnavailableError("gone")
    with pytest.raises(SourceUnavailableError):
        await house.tell(ALL)
    house.artifacts.fault = None
    await house.tell(ALL)
    assert house.artifacts.puts == 1
    assert house.tags()["headrace.e.evidence"] == "runs:/run/headrace/e/v1"


@pytest.mark.parametrize("refused", ["a", "champion"])
async def test_a_refusal_holds_up_nothing_else_and_is_tried_again_in_a_minute(
    house: House, refused: str
) -> None:
    house.registry.refuses = {refused}
    await house.tell(ALL)
    assert house.artifacts.puts == 1
    house.registry.refuses = set()
    house.time += 59.0
    await house.tell(ALL)
    assert refused not in {**house.tags(), **house.registry.aliases.get("m", {})}
    house.time += 1.0
    await house.tell(ALL)
    assert refused in {**house.tags(), **house.registry.aliases["m"]}


async def test_evidence_that_its_store_refuses_is_not_said_to_be_there(house: House) -> None:
    house.artifacts.fault = SourceRefusedError("no right to write")
    await house.tell(ALL)
    assert "headrace.e.evidence" not in house.tags()
    house.artifacts.fault = None
    house.time += 60.0
    await house.tell(ALL)
    assert house.artifacts.puts == 1
