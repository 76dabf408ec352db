"""What gateways are sent of a rollout that is two hours old, as it lies in a cluster."""

import json

import numpy as np
import pytest
from fake_kubernetes import NAMESPACE, fake_kubernetes
from registry_fakes import endpoint, ref
from rollout_walk import MemoryStatistics

from contracts.endpoint import (
    Arm,
    Candidate,
    EndpointSpec,
    EndpointStatus,
    Phase,
    Route,
)
from contracts.rollout import RolloutSpec
from contracts.windows import CALLER_STRIDE, EndpointWindow, EvidenceCounts, WindowAggregate
from controller.rollouts import JoinedRollouts
from registry.reconcile.rollouts import Surroundings
from registry.stores.cluster_endpoints import KubernetesEndpointStore
from registry.stores.whole_endpoints import WholeEndpoints
from rollout.judge import WindowsJudge
from service.endpoint_records import ClusterRecords

OLD, NEW = ref("1", "a"), ref("2", "b")
HOURS_2, WINDOW, HISTORY = 720, 10, 30
WATCHED_BYTES = 8000


def counts(rng: np.random.Generator, labels: int, requests: int) -> EvidenceCounts:
    who, answered = rng.integers(0, 60, requests), rng.integers(0, labels, requests)
    took, failed = 45 + rng.integers(0, 60, requests), rng.random(requests) < 0.01

    def counted(keys: np.ndarray) -> dict[int, int]:
        found, numbers = np.unique(keys, return_counts=True)
        return dict(zip(found.tolist(), numbers.tolist(), strict=True))

    return EvidenceCounts(
        requests=requests,
        errors=int(failed.sum()),
        latency={16: counted(took)},
        caller_latency={16: counted(who * CALLER_STRIDE + took)},
        caller_requests=counted(who),
        caller_errors=counted(who[failed]),
        labels={f"label number {at}": n for at, n in counted(answered).items()},
        group_requests=counted(who % 32),
        group_errors=counted(who[failed] % 32),
        group_labels={
            f"label number {at}": counted(who[answered == at] % 32) for at in range(labels)
        },
    )


@pytest.mark.slow
@pytest.mark.parametrize("labels", [2, 100])
def test_two_hours_of_a_rollout_are_under_8_kb_for_each_that_watches(labels: int) -> None:
    rng = np.random.default_rng(labels)
    statistics = MemoryStatistics()
    spec = RolloutSpec.model_validate(
        {"steps": [{"weight": 25}], "minimumStep": "3h", "checks": {"drift": None}}
    )
    started = EndpointStatus(
        routes=(Route.all_callers(OLD),),
        packages=(OLD, NEW),
        candidate=Candidate(version="2", phase=Phase.LOADED, ref=NEW, options="o" * 32),
    )
    around = Surroundings(frozenset({OLD, NEW}), {}, "2")
    with fake_kubernetes() as fake:
        store = WholeEndpoints(
            KubernetesEndpointStore(fake.client(), NAMESPACE),
            ClusterRecords(fake.client(), NAMESPACE),
        )
        current = store.put(endpoint(started, spec=EndpointSpec(model="m", rollout=spec)))
        rollouts, largest = JoinedRollouts(WindowsJudge(), statistics), 0
        for number in range(HISTORY + HOURS_2):
            start = number * WINDOW
            arms = [(OLD, Arm.STABLE, 300), (NEW, Arm.CANARY, 100)][: 1 + (number >= HISTORY)]
            aggregates = [
                WindowAggregate(
                    "e", of.version, of.package, arm, start, evidence=counts(rng, labels, requests)
                )
                for of, arm, requests in arms
            ]
            statistics.known.append(EndpointWindow("e", start, WINDOW, aggregates))
            if number < HISTORY - 1 or number % 30:
                continue
            advanced = rollouts.advance(current, around, float(start + WINDOW))
            current = store.put(advanced)
            (item,) = fake.all("modelendpoints")
            largest = max(largest, len(json.dumps(item, separators=(",", ":")).encode()))
        state = current.status.rollout
        assert state is not None
        assert len(state.series) > 100
        assert all(check.figures for check in state.checks)
        assert largest < WATCHED_BYTES
        records = [len(record["text"]) for record in fake.all("endpointrecords")]
        assert max(records) > 2 * WATCHED_BYTES
