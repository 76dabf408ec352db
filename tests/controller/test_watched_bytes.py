"""What gateways are sent of a rollout that is two hours old, as it lies in a cluster."""

import json

import old_rollouts
import pytest
from fake_kubernetes import NAMESPACE, fake_kubernetes
from registry_fakes import endpoint, ref

from contracts.endpoint import Candidate, EndpointSpec, EndpointStatus, ModelEndpoint, Phase, Route
from contracts.rollout import RolloutSpec
from registry.stores.cluster_endpoints import KubernetesEndpointStore
from registry.stores.whole_endpoints import WholeEndpoints
from service.endpoint_records import ClusterRecords

OLD, NEW = ref("1", "a"), ref("2", "b")
WATCHED_BYTES = 8000


@pytest.mark.slow
@pytest.mark.parametrize("labels", [pytest.param(2, marks=pytest.mark.soak), 100])
def test_two_hours_of_a_rollout_are_under_8_kb_for_each_that_watches(labels: int) -> None:
    spec = RolloutSpec.model_validate(
        {"steps": [{"weight": 25}], "minimumStep": "3h", "checks": {"drift": None}}
    )
    started = EndpointStatus(
        routes=(Route.all_callers(OLD),),
        packages=(OLD, NEW),
        candidate=Candidate(version="2", phase=Phase.LOADED, ref=NEW, options="o" * 32),
    )
    with fake_kubernetes() as fake:
        store = WholeEndpoints(
            KubernetesEndpointStore(fake.client(), NAMESPACE),
            ClusterRecords(fake.client(), NAMESPACE),
        )
        largest: list[int] = []

        def put(each: ModelEndpoint) -> ModelEndpoint:
            stored = store.put(each)
            (item,) = fake.all("modelendpoints")
            largest.append(len(json.dumps(item, separators=(",", ":")).encode()))
            return stored

        current = old_rollouts.age(
            store.put(endpoint(started, spec=EndpointSpec(model="m", rollout=spec))),
            (OLD, NEW),
            0,
            labels=tuple(f"label number {at}" for at in range(labels)),
            store=put,
            seed=labels,
        )
        state = current.status.rollout
        assert state is not None
        assert len(state.series) > 100
        assert all(check.figures for check in state.checks)
        assert max(largest) < WATCHED_BYTES
        records = [len(record["text"]) for record in fake.all("endpointrecords")]
        assert max(records) > 2 * WATCHED_BYTES
