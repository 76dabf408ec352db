"""Whatever stands before a real Kafka, a rollout goes to its end: see ``rollout_faults``.

The controller reads it as ``controller.main`` has it, through a proxy. Its other edges are fakes,
which ``test_faults_in_a_rollout.py`` breaks.
"""

import asyncio
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from kafka_proxy import FAULTS, KafkaProxy
from kafka_traffic import KafkaTraffic
from own_servers import KafkaProcess
from rollout_faults import Fault, struck
from rollout_world import opened, served

pytestmark = pytest.mark.real


@pytest.mark.parametrize("good", [True, False], ids=["good", "taken back"])
async def test_a_kafka_that_is_away_in_each_phase_changes_nothing_but_the_time_that_it_takes(
    kafka: KafkaProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture, good: bool
) -> None:
    faults = [Fault("kafka", kind) for kind in FAULTS]
    with (
        pytest.MonkeyPatch.context() as patch,
        served(tmp_path, patch, 5.0) as servers,
        KafkaProxy(kafka.bootstrap) as proxy,
        ExitStack() as stack,
    ):
        make = partial(KafkaTraffic, proxy=proxy, bootstrap=kafka.bootstrap, name=uuid4().hex)
        async with opened(
            servers, tmp_path, traffic=lambda clock: stack.enter_context(closing(make(clock)))
        ) as world:
            await asyncio.wait_for(struck(world, tmp_path, faults, caplog, good=good), 600)
