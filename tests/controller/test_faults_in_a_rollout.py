"""Whatever stands before MLflow, the object store, Kubernetes or Kafka, a rollout goes to its end.

In each phase something else answers for a while in the place of one of them. Nothing is rejected,
dropped, deleted, converted again or promoted by it, and the metric or the version's reason says
what is away. The alerts that people get are those of the shipped rules, evaluated by Prometheus'
own tool on what the controller exposes meanwhile: the one of what is away fires, and none that
blames another part.

Kafka is none here: its reader is said to have no records. A rollout beside a real Kafka behind a
proxy is in ``test_kafka_faults_in_a_rollout.py``.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_kubernetes import PATIENT_SECONDS
from hypothesis import HealthCheck, example, given, settings
from hypothesis import Phase as Tries
from hypothesis import strategies as st
from rollout_faults import EMPTY, LOST, PARTS, PHASES, UNREAD, Fault, harm, struck, walk
from rollout_world import FOREIGN, SLOW, Servers, opened, served

pytestmark = pytest.mark.slow  # imports clients of MLflow, S3 and Kubernetes

rollouts = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Tries.explicit, Tries.reuse, Tries.generate],  # a rollout takes seconds: none is shrunk
)
DAYS = 40 * 86400.0
# The deadline of an answer in a rollout that meets drips. Who gives up too soon on a busy machine
# asks again.
HASTY_SECONDS = 1.0


# In an order in which any thirteen in a row are before most parts and of most kinds.
FAULTS = st.permutations(
    [
        *(Fault("kafka", UNREAD) for _ in range(6)),
        *(
            Fault(part, kind, flaps)
            for flaps in (False, True)
            for kind in (LOST, EMPTY, *FOREIGN)
            for part in PARTS
        ),
    ]
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with (
        pytest.MonkeyPatch.context() as patch,
        served(tmp_path_factory.mktemp("artifacts"), patch, 5.0) as made,
    ):
        yield made


async def rolled(
    servers: Servers,
    folder: Path,
    faults: list[Fault],
    caplog: pytest.LogCaptureFixture,
    *,
    good: bool,
) -> None:
    """A whole rollout with a fault in each phase."""
    drips = any(fault.kind == SLOW for fault in faults[: PHASES + 1])
    seconds = HASTY_SECONDS if drips else PATIENT_SECONDS
    async with opened(servers, folder, answer_seconds=seconds) as world:
        await struck(world, folder, faults, caplog, good=good)


@settings(rollouts, max_examples=2)
@given(FAULTS, st.booleans())
@example([Fault("kafka", UNREAD)], True)
@example([Fault(part, "a bad gateway") for part in PARTS], True)
@example([Fault("kubernetes", "Kong without a route"), Fault("mlflow", EMPTY)], True)
async def test_a_fault_in_each_phase_changes_nothing_but_the_time_that_it_takes(
    servers: Servers,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    faults: list[Fault],
    good: bool,
) -> None:
    await asyncio.wait_for(rolled(servers, tmp_path, faults, caplog, good=good), 600)


async def test_answers_that_drip_in_each_phase_change_nothing_but_the_time_that_it_takes(
    servers: Servers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The first phase is a conversion, and meets the second of them.
    faults = [Fault(part, SLOW) for part in ("objects", "mlflow", "kubernetes")]
    await asyncio.wait_for(rolled(servers, tmp_path, faults, caplog, good=True), 600)


@pytest.mark.parametrize("ahead", [pytest.param(DAYS, marks=pytest.mark.soak), -DAYS])
async def test_a_clock_that_is_wrong_for_five_minutes_in_each_phase_changes_nothing(
    servers: Servers, tmp_path: Path, ahead: float
) -> None:
    async with opened(servers, tmp_path) as world:
        async for _ in walk(world, good=True):
            before, world.ahead, world.loads = world.seen(), ahead, True
            for _ in range(6):  # looks, of which the first and the last are five minutes apart
                world.time += 60.0
                await world.round()
                await world.collect()
                assert harm(before, world.seen()) == []
            world.ahead = 0.0
            await world.settle()
            assert harm(before, world.seen()) == []
        assert world.status.stable is not None
        assert world.status.stable.version == "2"
        assert not world.status.rejected


@pytest.mark.soak
@settings(rollouts, max_examples=100)
@given(FAULTS, st.booleans())
async def test_a_hundred_rollouts_with_a_fault_in_each_phase(
    servers: Servers,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    faults: list[Fault],
    good: bool,
) -> None:
    await asyncio.wait_for(rolled(servers, tmp_path, faults, caplog, good=good), 600)
